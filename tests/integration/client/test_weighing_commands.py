"""The ranking commands against a real socket: their requests and the examples of their help."""

import json
import re
import shlex

import pytest
from click.testing import CliRunner, Result

from fixtures.fake_collector import FakeCollector
from isochrone_client.cli import cli
from isochrone_wire.answers import Order


def run(observatory: FakeCollector, *arguments: str) -> Result:
    """Run the command in this process against the fake."""
    environment = {"ISOCHRONE_COLLECTOR": observatory.address}
    return CliRunner().invoke(cli, arguments, env=environment, prog_name="isochrone")


@pytest.mark.parametrize("command", ["leaderboard", "slo", "tiers"])
def test_every_example_of_the_help_works(observatory: FakeCollector, command: str) -> None:
    """Every example of the help gets an answer."""
    text = run(observatory, command, "--help").stdout
    examples = re.findall(rf"^\s+(isochrone {command}.*)$", text, re.MULTILINE)
    assert examples
    assert [run(observatory, *shlex.split(line)[1:]).exit_code for line in examples] == [0] * len(examples)


@pytest.mark.parametrize("order", list(Order))
def test_leaderboards_are_requested_in_an_order(observatory: FakeCollector, order: Order) -> None:
    """`--by` is passed on, and the answer names the order."""
    result = run(observatory, "leaderboard", "--by", order.value, "-o", "json")
    assert result.exit_code == 0
    assert observatory.requests[-1].one("by") == order.value
    assert json.loads(result.stdout)["order"] == order.value


def test_budgets_of_the_uses_asked_for(observatory: FakeCollector) -> None:
    """Each `--use` is passed on, with targets and regions."""
    result = run(observatory, "slo", "--use", "voice", "--use", "step", "--region", "us-east-2")
    request = observatory.requests[-1]
    assert (result.exit_code, request.all("use")) == (0, ["voice", "step"])
    assert request.all("region") == ["us-east-2"]


def test_the_best_region_is_requested(observatory: FakeCollector) -> None:
    """`regions` requests the region costs by a metric, with and without `--best`; `vantages` does not."""
    result = run(observatory, "regions", "--best", "--metric", "ttft", "--target", "openai/*", "-o", "json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["schema"], document["metric"]) == (0, "isochrone.region-costs/1", "ttft")
    assert [row["decision"] for row in document["rows"]] == ["faster", "slower", "undecided"]
    run(observatory, "regions")
    run(observatory, "vantages")
    assert [request.path for request in observatory.requests] == [
        "/v1/region-costs",
        "/v1/region-costs",
        "/v1/vantages",
    ]


def test_nothing_of_a_metric_is_four(observatory: FakeCollector) -> None:
    """If no region has a value of the metric, there is a hint and, on request, exit code 4."""
    result = run(observatory, "regions", "--best", "--metric", "e2e", "--exit-code")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "isochrone coverage" in result.stderr
