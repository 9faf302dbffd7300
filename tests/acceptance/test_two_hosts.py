"""Two hosts a known distance away: what the instrument says of the network is what the cable is."""

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fix_network import HUB_ADDRESS, HUB_NAME, ROUND_TRIPS_US, WideArea, started_telling
from fix_simulator import certificate_for

PORT = 8443
MODEL = "steady"
TTFT_US = 200_000
RUNS = 7
# Of the configured delay; the rest is what two busy cores add to every packet.
TOLERANCE = 0.05
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


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of the hub's name; its key lies beside it."""
    folder = tmp_path / "tls"
    folder.mkdir()
    return certificate_for(folder, f"DNS:{HUB_NAME}")


@pytest.fixture
def provider(wide_area: WideArea, certificate: Path, tmp_path: Path) -> Iterator[str]:
    """The base URL of a simulator in the hub, over TLS."""
    world = tmp_path / "world.json"
    world.write_text(json.dumps(WORLD))
    tls = ["--tls-cert", str(certificate), "--tls-key", str(certificate.with_name("key.pem"))]
    listen = ["--listen", f"hub={HUB_ADDRESS}:{PORT}", "--allow-remote", "--world", str(world)]
    command = wide_area.command("hub", [sys.executable, "-m", "isochrone_sim", "serve", *listen, *tls])
    with started_telling(command):
        yield f"https://{HUB_NAME}:{PORT}/v1"


def probed(area: WideArea, place: str, base_url: str, ca: Path) -> list[dict[str, Any]]:
    """The samples of `probe` in a namespace."""
    what = ["--base-url", base_url, "--model", MODEL, "--runs", str(RUNS), "--ca-file", str(ca), "--output", "json"]
    samples: list[dict[str, Any]] = json.loads(area.run(place, "isochrone_agent", "probe", *what))["samples"]
    assert [sample["outcome"] for sample in samples] == ["ok"] * RUNS, samples
    return samples


def median(samples: list[dict[str, Any]], field: str) -> float:
    """The median of one field, in microseconds."""
    return statistics.median(float(sample[field]) for sample in samples)


@pytest.mark.slow
def test_every_phase_is_as_long_as_the_cable(wide_area: WideArea, provider: str, certificate: Path) -> None:
    """Name, TCP and TLS cost one round trip each, the kernel reports it, and TTFT is it plus the provider's own time;
    between the two vantages the differences are those of the cables.
    """
    found = {place: probed(wide_area, place, provider, certificate) for place in ROUND_TRIPS_US}
    apart_us = ROUND_TRIPS_US["far"] - ROUND_TRIPS_US["near"]
    for phase in ("dns_us", "tcp_us", "tls_us", "rtt_us"):
        medians = {place: median(samples, phase) for place, samples in found.items()}
        assert medians["far"] == pytest.approx(ROUND_TRIPS_US["far"], rel=TOLERANCE), (phase, medians)
        assert medians["far"] - medians["near"] == pytest.approx(apart_us, rel=TOLERANCE), (phase, medians)
    server_us = {place: median(samples, "ttft_us") - ROUND_TRIPS_US[place] for place, samples in found.items()}
    assert server_us == {place: pytest.approx(TTFT_US, rel=TOLERANCE) for place in ROUND_TRIPS_US}
