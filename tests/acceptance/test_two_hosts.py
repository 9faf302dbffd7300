"""Two hosts a known distance away: what the instrument says of the network is what the cable is.

A busy machine adds to every packet and handshake. The reference is therefore a plain client in the same namespace at
the same time: what it takes longer than the cable is what the machine adds. No figure may be less than the cable.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fixtures.network import HUB_ADDRESS, HUB_NAME, ROUND_TRIPS_US, WideArea, started_with_json
from fixtures.simulator import certificate_for
from testdata.waiting import BUSY, eventually

PORT = 8443
MODEL = "steady"
TTFT_US = 200_000
RUNS = 7
APART_US = ROUND_TRIPS_US["far"] - ROUND_TRIPS_US["near"]
PHASES = ("dns_us", "tcp_us", "tls_us", "rtt_us", "ttft_us")
# The provider's jitter, and the resolution of the cable's timer.
CLOCK_US = 1_000
# Of the distance between the regions, from the plain client.
TOLERANCE = 0.05
PLAIN_CLIENT = Path(__file__).resolve().parents[1] / "testdata" / "plain_client.py"
WORLD = {
    "title": "One steady model",
    "baseline": "hub",
    "regions": {"hub": "the hub"},
    "load_amplitude": 0,
    "pace_amplitude": 0,
    "models": [
        {
            "id": MODEL,
            "provider": "sim",
            "ttft_ms": TTFT_US / 1000,
            "tokens_per_second": 100,
            "answer_tokens": 30,
            "jitter_ms": 0.1,
        }
    ],
}

pytestmark = pytest.mark.slow


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of the hub's name; its key lies beside it."""
    folder = tmp_path / "tls"
    folder.mkdir()
    return certificate_for(folder, f"DNS:{HUB_NAME}")


@pytest.fixture
def provider(wide_area: WideArea, certificate: Path, tmp_path: Path) -> Iterator[str]:
    world = tmp_path / "world.json"
    world.write_text(json.dumps(WORLD))
    tls = ["--tls-cert", str(certificate), "--tls-key", str(certificate.with_name("key.pem"))]
    listen = ["--listen", f"hub={HUB_ADDRESS}:{PORT}", "--allow-remote", "--world", str(world)]
    command = wide_area.command("hub", [sys.executable, "-m", "isochrone_sim", "serve", *listen, *tls])
    with started_with_json(command):
        yield f"https://{HUB_NAME}:{PORT}/v1"


Measurements = list[dict[str, Any]]


@contextmanager
def plain_client(area: WideArea, place: str, base_url: str, ca: Path) -> Iterator[Measurements]:
    """Measure with a plain client in a namespace for the block; the list has its measurements after the block."""
    found: Measurements = []
    command = area.command(place, [sys.executable, str(PLAIN_CLIENT), base_url, MODEL, str(ca)])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield found
            found += json.loads(process.communicate(timeout=60)[0])
        finally:
            process.kill()


def probed(area: WideArea, place: str, base_url: str, ca: Path) -> Measurements:
    """The samples of `probe` in a namespace."""
    what = ["--base-url", base_url, "--model", MODEL, "--runs", str(RUNS), "--ca-file", str(ca), "--output", "json"]
    samples: Measurements = json.loads(area.run(place, "isochrone_agent", "probe", *what))["samples"]
    assert [sample["outcome"] for sample in samples] == ["ok"] * RUNS, samples
    return samples


def median(samples: Measurements, field: str) -> float:
    return statistics.median(float(sample[field]) for sample in samples)


def test_every_phase_is_as_long_as_the_cable(wide_area: WideArea, provider: str, certificate: Path) -> None:
    """Name, TCP and TLS cost one round trip each, the kernel reports it, and TTFT is it plus the provider's time."""
    for place, round_trip_us in ROUND_TRIPS_US.items():
        with plain_client(wide_area, place, provider, certificate) as plain:
            samples = probed(wide_area, place, provider, certificate)
        for phase in PHASES:
            shortest_us = round_trip_us + (TTFT_US if phase == "ttft_us" else 0)
            assert min(sample[phase] for sample in samples) >= shortest_us - CLOCK_US, (place, phase, samples)
            measured_us, plain_us = median(samples, phase), median(plain, phase)
            tolerance_us = TOLERANCE * APART_US + BUSY * max(0, plain_us - shortest_us)
            assert abs(measured_us - plain_us) <= tolerance_us, (place, phase, measured_us, plain_us)


PLAN = f"""
baseline: near
every: 2s
targets:
  - provider: sim
    model: {MODEL}
    base_url: {{base_url}}
    workload: {{{{max_output_tokens: 30, timeouts: {{{{connect: 3s, first_token: 5s, gap: 3s, total: 10s}}}}}}}}
"""
COLLECTOR = f"{HUB_ADDRESS}:4600"
ROUNDS = 12
# The phases of a metric, and the number of round trips in it.
METRICS = {"rtt": (["rtt_us"], 1), "connect": (["dns_us", "tcp_us", "tls_us"], 3), "ttft": (["ttft_us"], 1)}
PARTITION_SECONDS = 65.0
JSON = ("--output", "json")


@pytest.fixture
def collector(wide_area: WideArea, tmp_path: Path) -> Iterator[Path]:
    """A collector in the hub, over TLS, as the folder of its data."""
    folder = tmp_path / "collector"
    command = ["isochrone_collector", "serve", "--listen", COLLECTOR, "--data-dir", str(folder)]
    with started_with_json(wide_area.command("hub", [sys.executable, "-m", *command])):
        yield folder


def operate(area: WideArea, folder: Path, *words: str) -> str:
    return area.run("hub", "isochrone_collector", *words, "--identity", str(folder / "operator.json"))


def ask(area: WideArea, folder: Path, *words: str) -> dict[str, Any]:
    """Return the answer of `isochrone` in the hub; exit code 4 means that the data are insufficient."""
    identity = ["--identity", str(folder / "operator.json")]
    answer: dict[str, Any] = json.loads(area.run("hub", "isochrone_client", *words, *identity, *JSON, fine=(0, 4)))
    return answer


def data_dir(folder: Path) -> list[str]:
    """The option that says where an agent keeps what it keeps."""
    return ["--data-dir", str(folder)]


@contextmanager
def vantage(area: WideArea, collector: Path, place: str, ca: Path, folder: Path) -> Iterator[None]:
    """An agent that joins from its region with a one-time token, and runs."""
    invitation = json.loads(operate(area, collector, "vantage", "add", f"{place}-1", "--region", place, *JSON))
    data = data_dir(folder)
    # The provider has an address that is not public.
    folder.mkdir(mode=0o700)
    (folder / "policy.toml").write_text('networks = ["10.77.0.0/24"]\n')
    area.run(place, "isochrone_agent", "join", COLLECTOR, "--token", invitation["token"], *data)
    command = [sys.executable, "-m", "isochrone_agent", "run", *data, "--ca-file", str(ca), "--log-format", "json"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(area.command(place, command), stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def test_regions_apart(wide_area: WideArea, provider: str, certificate: Path, collector: Path, tmp_path: Path) -> None:
    """Differentials of round trips, connections and first tokens are the cable's; a cut of a minute loses nothing."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.format(base_url=provider))
    operate(wide_area, collector, "apply", str(plan), "--yes")
    with ExitStack() as agents:
        with ExitStack() as plain_clients:
            plain = {}
            for place in ROUND_TRIPS_US:
                agents.enter_context(vantage(wide_area, collector, place, certificate, tmp_path / place))
                measuring = plain_client(wide_area, place, provider, certificate)
                plain[place] = plain_clients.enter_context(measuring)
            found = differentials(wide_area, collector)
        for metric, (phases, trips) in METRICS.items():
            plain_us = {place: median([summed(one, phases) for one in plain[place]], "sum") for place in plain}
            server_us = TTFT_US if metric == "ttft" else 0
            added_us = sum(abs(plain_us[place] - trips * ROUND_TRIPS_US[place] - server_us) for place in plain)
            tolerance_us = trips * TOLERANCE * APART_US + added_us
            assert abs(found[metric] - trips * APART_US) <= tolerance_us, (metric, found[metric], plain_us)
        wide_area.cut("near")
        time.sleep(PARTITION_SECONDS)
        wide_area.mend("near")
        # A push states how many samples wait as it leaves, its own included.
        eventually(
            60, lambda: vantage_line(wide_area, collector, "near-1")["spool_depth"] <= 2, "the spool is empty", every=2
        )
    kept = json.loads(wide_area.run("near", "isochrone_agent", "spool", "inspect", *data_dir(tmp_path / "near"), *JSON))
    line = vantage_line(wide_area, collector, "near-1")
    assert kept["depth"]["finished"] >= ROUNDS + PARTITION_SECONDS / 2 - 2 - line["rounds_missed"]
    assert (kept["depth"]["stored"], kept["depth"]["dropped"]) == (kept["depth"]["finished"], {})
    assert line["ledgered"] == kept["depth"]["finished"]


def summed(measurement: dict[str, Any], phases: Sequence[str]) -> dict[str, Any]:
    return {"sum": sum(measurement[phase] for phase in phases)}


def differentials(area: WideArea, collector: Path) -> dict[str, float]:
    """The differential of far against near, by metric, in microseconds."""

    def found(metric: str) -> dict[str, Any]:
        words = ["diff", "--baseline", "near", "--against", "far", "--metric", metric, "--window", "10m"]
        lines: list[dict[str, Any]] = ask(area, collector, *words)["rows"]
        return lines[0] if lines else {"n": 0}

    def heard() -> bool:
        vantages = ask(area, collector, "vantages")["rows"]
        return {line["region"] for line in vantages if line["newest_sample_at"]} == ROUND_TRIPS_US.keys()

    # Each question starts a program.
    eventually(60, heard, "samples from both regions", every=3)
    eventually(90, lambda: found("ttft")["n"] >= ROUNDS, f"{ROUNDS} rounds seen from both regions", every=4)
    return {metric: found(metric)["shift"] for metric in METRICS}


def vantage_line(area: WideArea, collector: Path, name: str) -> dict[str, Any]:
    return next(line for line in ask(area, collector, "vantages")["rows"] if line["name"] == name)
