"""Metrics in the formats of Prometheus, and an endpoint for them: `/metrics` over plain HTTP, served by a thread.

`prometheus_client` is imported when it is used, so that an agent without metrics does not load it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from isochrone_wire.address import Address, parse_address

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@dataclass(frozen=True, slots=True)
class _CallbackCollector:
    """A Prometheus collector that calls `collect` at every scrape."""

    collect: "Callable[[], Iterable[Metric]]"


def encode_metrics(families: "Iterable[Metric]", accept: str) -> tuple[bytes, str]:
    """Return these metrics, and the memory and CPU use of this process, in the format that the value of an `Accept`
    header requests; with the media type.
    """
    from prometheus_client import ProcessCollector  # noqa: PLC0415  # see above
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415  # as above

    try:
        encode, media_type = choose_encoder(accept)
    except (TypeError, ValueError):
        # A version that is no number.
        encode, media_type = choose_encoder("")
    process = ProcessCollector(registry=None).collect()
    return encode(_CallbackCollector(lambda: chain(families, process))), media_type


def parse_listen(text: str, *, default_port: int) -> Address | None:
    """Parse `host:port` (port 0 selects a free port); return `None` for `off`.

    Raises `ValueError` with a message for users, also for an address that other machines can reach.
    """
    if text == "off":
        return None
    address = parse_address(text, default_port=default_port)
    if not address.is_loopback:
        raise ValueError(f"{address} can be reached from other machines: metrics are served on loopback only")
    return address


@contextmanager
def serve_metrics(listen: Address, collect: "Callable[[], Iterable[Metric]]") -> Iterator[Address]:
    """Serve the metrics from `collect`, and the memory and CPU use of this process, until the block ends.

    Yields the address with the actual port. `collect` is called from other threads. Raises `OSError` if the port is in
    use.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server  # noqa: PLC0415  # see above

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_CallbackCollector(collect))
    server, thread = start_http_server(listen.port, addr=listen.host, registry=registry)
    try:
        yield Address(listen.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
