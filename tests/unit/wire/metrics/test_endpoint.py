"""The Prometheus endpoint: loopback only, closed after the block, and an error for a port in use."""

import urllib.error
import urllib.request

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric

from isochrone_wire.address import Address
from isochrone_wire.metrics.endpoint import parse_listen, serve_metrics

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
    """`off` disables the endpoint; without a port, the default port is used."""
    assert parse_listen(text, default_port=4690) == address


@pytest.mark.parametrize("text", ["0.0.0.0:0", "[::]:4690", "192.0.2.7", "collector.example:4690", "x:y"])
def test_other_machines_are_kept_out(text: str) -> None:
    """An address that other machines can reach is refused with a message."""
    with pytest.raises(ValueError, match=r"reached from other machines|no valid port"):
        parse_listen(text, default_port=4690)


def test_a_scrape_asks_anew_and_the_door_closes() -> None:
    """Each scrape returns the current values; after the block, connections are refused."""
    with serve_metrics(LOOPBACK, one) as address:
        assert "isochrone_answer 42.0" in fetch(address)
        assert "process_cpu_seconds_total" in fetch(address)
    with pytest.raises(urllib.error.URLError):
        fetch(address)


def test_a_taken_port_is_told() -> None:
    """A second endpoint on the same port raises `OSError`."""
    with serve_metrics(LOOPBACK, one) as address, pytest.raises(OSError, match="in use"), serve_metrics(address, one):
        pass
