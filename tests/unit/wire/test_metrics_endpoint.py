"""The door for Prometheus: on this machine only, gone when it is closed, and told when somebody else stands in it."""

import urllib.error
import urllib.request

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric

from isochrone_wire.address import Address
from isochrone_wire.metrics_endpoint import parse_listen, serve_metrics

LOOPBACK = Address("127.0.0.1", 0)


def one() -> list[Metric]:
    return [GaugeMetricFamily("isochrone_answer", "The answer.", value=42)]


def fetch(address: Address) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        return str(page.read().decode())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("off", None),
        ("127.0.0.1", Address("127.0.0.1", 4690)),
        ("localhost:9", Address("localhost", 9)),
        ("[::1]:0", Address("::1", 0)),
    ],
)
def test_addresses_of_this_machine(text: str, address: Address | None) -> None:
    """`off` is no door; a port that is not said is the usual one."""
    assert parse_listen(text, default_port=4690) == address


@pytest.mark.parametrize("text", ["0.0.0.0:0", "[::]:4690", "192.0.2.7", "collector.example:4690", "x:y"])
def test_other_machines_are_kept_out(text: str) -> None:
    """What others could reach is refused with a sentence."""
    with pytest.raises(ValueError, match=r"reached from other machines|no valid port"):
        parse_listen(text, default_port=4690)


def test_a_scrape_asks_anew_and_the_door_closes() -> None:
    """Each scrape gets what is true then; after the block nobody answers."""
    with serve_metrics(LOOPBACK, one) as address:
        assert "isochrone_answer 42.0" in fetch(address)
        assert "process_cpu_seconds_total" in fetch(address)
    with pytest.raises(urllib.error.URLError):
        fetch(address)


def test_a_taken_port_is_told() -> None:
    """Two doors do not share a port."""
    with serve_metrics(LOOPBACK, one) as address, pytest.raises(OSError, match="in use"), serve_metrics(address, one):
        pass
