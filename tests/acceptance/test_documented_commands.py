"""The commands of the pages on gateways, Prometheus and OpenTelemetry lead to what the pages show."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import litellm
from fixtures.envoy import ENVOY, requires_envoy
from fixtures.litellm import requires_litellm
from fixtures.otlp import OtlpReceiver, attributes
from fixtures.portkey import VARIABLE, requires_portkey
from testdata.documented_commands import blocks_of, running, section, short_checkout, unused_ports, with_ports
from testdata.waiting import eventually

FLEET = section("gateways.md", "A fleet for Envoy and Portkey")
MEMBERS = ("glm-5", "qwen3-32b")


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_checkout() as path:
        yield path


@pytest.fixture
def fleet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same for commands that use a collector."""
    # As by default; but until the socket is there, another collector at port 4600 would get the plan.
    monkeypatch.setenv("ISOCHRONE_COLLECTOR", f"unix:{folder}/data/isochrone/collector/collector.sock")
    return folder


def output_of(command: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        timeout=240,
    )
    return done.stdout or done.stderr


def completion(block: str, folder: Path, log: Path, **environment: str) -> str:
    answers: list[str] = []

    def is_answered() -> bool:
        answers.append(output_of(block, folder, **environment))
        return '"choices"' in answers[-1]

    eventually(90, is_answered, "a completion", every=0.5)
    model = json.loads(answers[-1])["model"]
    assert model in MEMBERS, answers[-1] + log.read_text()[-2000:]
    return str(model)


@pytest.mark.slow
@requires_envoy
def test_envoy_answers_with_a_member(fleet: Path) -> None:
    """The last command returns a completion of a member's model, although the request names another one."""
    (fleet / "bin" / "envoy").symlink_to(str(ENVOY))
    ports = unused_ports(("8081", "4600", "4680", "10000"))
    text = with_ports(FLEET + section("gateways.md", "Envoy"), ports)
    for written, port in ports.items():
        text = text.replace("sed -e", f"sed -e 's/port_value: {written}/port_value: {port}/' -e", 1)
    *programs, request = blocks_of(text)
    assert len(programs) == 3
    with running(programs, fleet) as log:
        assert completion(request, fleet, log)
        assert "error: keys" not in log.read_text()


@pytest.mark.slow
@requires_portkey
def test_portkey_answers_with_a_member(fleet: Path) -> None:
    """A request that names the route as its model is served by a member; so is the one that brings the config."""
    (fleet / "node_modules").symlink_to(Path(os.environ[VARIABLE]).resolve())
    ports = unused_ports(("8081", "4600", "4680", "8787"))
    *programs, request, request_with_config = blocks_of(with_ports(FLEET + section("gateways.md", "Portkey"), ports))
    assert len(programs) == 3
    with running(programs, fleet) as log:
        for block in (request, request_with_config):
            assert completion(block, fleet, log, ZHIPU_API_KEY="a-key-of-zhipu", QWEN_API_KEY="a-key-of-qwen")


@pytest.mark.slow
@requires_litellm
def test_litellm_has_another_first_choice_in_each_region(fleet: Path) -> None:
    """The third block prints what the page shows, the fourth the metrics; the program prints its region's choice.

    Without a table LiteLLM chooses by chance, which may be what the page shows: the metrics tell one from the other.
    """
    settings = litellm.environment(fleet)
    given = " ".join(f"{key}={value}" for key, value in settings.items() if os.environ.get(key) != value)
    command = fleet / "bin" / "litellm"
    command.write_text(f'#!/bin/sh\nexec env {given} {Path(litellm.PYTHON).parent / "litellm"} "$@"\n')
    command.chmod(0o755)
    page = with_ports(section("gateways.md", "LiteLLM"), unused_ports(("8081", "8082", "4600", "4680", "4000")))
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (program,) = [text for language, text in found if language == "python"]
    (shown,) = [text for language, text in found if not language]
    *start, ask, scrape = blocks_of(page)
    assert len(start) == 2
    regions = ("us-east-2", "ap-southeast-1")
    by_table = [f'{{client_region="{region}",outcome="table",route="chat"}}' for region in regions]

    def is_as_shown() -> bool:
        metrics = output_of(scrape, fleet) if output_of(ask, fleet) == shown else ""
        return all(labels in metrics for labels in by_table)

    (fleet / "program.py").write_text(program)
    with running(start, fleet):
        eventually(120, is_as_shown, "the output that the page shows", every=0.5)
        assert output_of(f"{litellm.PYTHON} program.py", fleet, **settings).splitlines()[-1] == "step-3.5-flash"


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus")
def test_five_minutes_lead_to_a_median_in_prometheus(folder: Path) -> None:
    """The query of the page returns the median time to first token of the plan's target."""
    ports = unused_ports(("8081", "9464", "9090"))
    *programs, query = blocks_of(with_ports(section("prometheus.md", "Prometheus in five minutes"), ports))
    assert len(programs) == 2
    answers = []

    def is_answered() -> bool:
        answers.append(output_of(query, folder))
        return "zhipu/glm-5" in answers[-1] and "NaN" not in answers[-1]

    with running(programs, folder) as log:
        eventually(60, is_answered, "a median", every=0.5)
        assert re.search(r'region="local".*=> \d+\.\d+', answers[-1]), answers[-1]
        assert "SUCCESS" in log.read_text()


def test_the_commands_export_probes_to_opentelemetry(otlp_receiver: OtlpReceiver, folder: Path) -> None:
    """The commands of the page lead to traces and metrics of the plan's target."""
    text = section("prometheus.md", "OpenTelemetry").replace("http://127.0.0.1:4318", otlp_receiver.url)
    name = "gen_ai.client.operation.time_to_first_chunk"
    with running(blocks_of(with_ports(text, unused_ports(["8081"]))), folder) as log:
        eventually(60, lambda: bool(otlp_receiver.points(name)), "a first chunk")
    assert {attributes(one)["isochrone.target"] for one in otlp_receiver.roots} == {"zhipu/glm-5"}, log.read_text()
