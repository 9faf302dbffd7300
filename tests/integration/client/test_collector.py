"""The command against a real collector on a real database, to check what the fake assumes."""

import json
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result

from fixtures.collector import Collector, StartCollector
from isochrone_client.cli import cli
from isochrone_client.window import now_at
from isochrone_wire.codec import encode
from isochrone_wire.model import SECOND_US, Batch, Outcome, Sample, Vantage
from isochrone_wire.rounds import round_at
from isochrone_wire.v1.fleet_pb2_grpc import FleetStub

PLAN = """
baseline: us-east-2
every: 10s
providers:
  openai: {base_url: "https://api.openai.com/v1"}
targets:
  - {provider: openai, model: gpt-5-mini, price: {usd_per_m_input: 0.25, usd_per_m_output: 2.0}}
"""
EVERY_US = 10 * SECOND_US
ROUNDS = 70
MEDIAN_US = {"us-east-2": 320_000, "ap-southeast-1": 510_000}


def ask(collector: Collector, *arguments: str) -> Result:
    """Run the command against this collector."""
    environment = {"ISOCHRONE_COLLECTOR": collector.http_address}
    return CliRunner().invoke(cli, arguments, env=environment, prog_name="isochrone")


def push(collector: Collector, target_id: int) -> None:
    """Samples of the last rounds from two regions, the second 190 ms slower."""
    newest_at = round_at(now_at(), target_id=target_id, every_us=EVERY_US)
    with grpc.insecure_channel(collector.address) as channel:
        for region, median_us in MEDIAN_US.items():
            samples = tuple(
                sample(target_id, newest_at - place * EVERY_US, ttft_us=median_us + 1000 * (place % 7))
                for place in range(ROUNDS)
            )
            batch = Batch(vantage=Vantage(name=f"{region}-a", region=region), epoch=1, seq=1, samples=samples)
            FleetStub(channel).Push(encode(batch), timeout=30)


def sample(target_id: int, at: int, *, ttft_us: int) -> Sample:
    """A sample without any failure."""
    return Sample(
        target_id=target_id,
        round_at=at,
        outcome=Outcome.OK,
        dispatched_at=at + 500,
        ttft_us=ttft_us,
        e2e_us=4 * ttft_us,
        tokens_per_second=100.0,
    )


@pytest.fixture
def collector(start_collector: StartCollector) -> Collector:
    return start_collector()


def test_a_collector_without_a_plan_gives_hints(collector: Collector) -> None:
    """Before the first plan every command ends with a hint and, with --exit-code, exit code 4 or 2."""
    commands = ("targets", "diff", "leaderboard", "samples")
    codes = {command: ask(collector, command, "--exit-code").exit_code for command in commands}
    assert codes == {"targets": 4, "diff": 2, "leaderboard": 4, "samples": 4}
    assert [ask(collector, command).exit_code for command in commands] == [0, 2, 0, 0]
    unknown = ask(collector, "samples", "--target", "openai/*")
    assert (unknown.exit_code, unknown.stdout) == (2, "")


def test_pushed_samples_appear_in_every_table(collector: Collector, tmp_path: Path) -> None:
    """From a pushed sample to each table: medians, decision, ranks, rounds and single probes."""
    collector.apply(PLAN, tmp_path)
    rows = json.loads(ask(collector, "targets", "-o", "json").stdout)["rows"]
    push(collector, rows[0]["id"])

    diff = json.loads(ask(collector, "diff", "--window", "1h", "-o", "json").stdout)["rows"]
    assert [(row["region"], row["decision"]) for row in diff] == [("ap-southeast-1", "slower")]
    assert diff[0]["shift_low"] <= 190_000 <= diff[0]["shift_high"]

    board = json.loads(ask(collector, "leaderboard", "-o", "json").stdout)["rows"]
    assert {row["region"]: round(row["ttft_p50_us"]["value"], -4) for row in board} == MEDIAN_US

    seen = json.loads(ask(collector, "samples", "--limit", "3", "--region", "us-east-2", "-o", "json").stdout)["rows"]
    assert [row["region"] for row in seen] == ["us-east-2"] * 3
    assert sorted(row["round_at"] for row in seen) == [row["round_at"] for row in seen]

    vantages = json.loads(ask(collector, "vantages", "-o", "json").stdout)["rows"]
    assert {row["region"]: row["liveness"] for row in vantages} == dict.fromkeys(MEDIAN_US, "online")
    spend = json.loads(ask(collector, "coverage", "--spend", "-o", "json").stdout)["rows"]
    assert {(row["vantage"], row["provider"]) for row in spend} == {(f"{region}-a", "openai") for region in MEDIAN_US}

    for command in ("diff", "leaderboard", "samples", "coverage", "targets"):
        result = ask(collector, command)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "gpt-5-mini" in result.stdout


def test_a_real_collector_refuses_with_sentences(collector: Collector, tmp_path: Path) -> None:
    """Unknown names and invalid windows are usage errors with the collector's sentence."""
    collector.apply(PLAN, tmp_path)
    for arguments in (
        ["diff", "--target", "nobody"],
        ["leaderboard", "--region", "mars"],
        ["samples", "--window", "99w"],
    ):
        result = ask(collector, *arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert len(result.stderr.splitlines()) == 2
