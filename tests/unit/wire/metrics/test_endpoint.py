"""The Prometheus endpoint: few scrapes at once, closed after the block, and an error for a port in use."""

import socket
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric

from isochrone_common.address import Address
from isochrone_common.metrics_server import MAX_SCRAPES, parse_listen, serve_metrics
from testdata.waiting import eventually

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
        ("0.0.0.0:9464", Address("0.0.0.0", 9464)),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    """`off` disables the endpoint; without a port, the default port is used."""
    assert parse_listen(text, default_port=4690) == address


@pytest.mark.parametrize("text", ["x:y", "127.0.0.1:70000"])
def test_a_malformed_address_is_an_error(text: str) -> None:
    """An address that is none is refused with a message."""
    with pytest.raises(ValueError, match="no valid port"):
        parse_listen(text, default_port=4690)


def test_other_paths_are_not_found() -> None:
    """Only /metrics is served."""
    with serve_metrics(LOOPBACK, one) as address, pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{address}/", timeout=10)
    refused.value.close()
    assert refused.value.code == 404


def test_the_number_of_scrapes_is_limited() -> None:
    """Connections that send nothing take a place each, and further ones are closed until these end."""
    with serve_metrics(LOOPBACK, one) as address, ExitStack() as stack:
        place = (address.host, address.port)
        idle = [stack.enter_context(socket.create_connection(place, 10)) for _ in range(MAX_SCRAPES)]
        refused = stack.enter_context(socket.create_connection(place, 10))
        assert refused.recv(1) == b""
        for connection in idle:
            connection.close()
        eventually(5, lambda: answers(address), "a scrape is answered")


def answers(address: Address) -> bool:
    try:
        return "isochrone_answer" in fetch(address)
    except OSError:
        return False


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
