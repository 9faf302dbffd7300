"""The door for Prometheus, the same on both sides: `/metrics` over plain HTTP, on this machine only, from a thread.

Prometheus' own library is imported when the door is opened and not before: an agent that nobody scrapes does not pay
for it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isochrone_wire.address import Address, parse_address

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@dataclass(frozen=True, slots=True)
class _CallbackCollector:
    """What the registry asks at every scrape."""

    collect: "Callable[[], Iterable[Metric]]"


def parse_listen(text: str, *, default_port: int) -> Address | None:
    """Where to open the door: `host:port` (port 0 takes a free one), or `None` for `off`.

    Raises `ValueError` with a sentence for people, also for an address that other machines can reach.
    """
    if text == "off":
        return None
    address = parse_address(text, default_port=default_port)
    if not address.is_loopback:
        raise ValueError(f"{address} can be reached from other machines, and metrics are for this one only")
    return address


@contextmanager
def serve_metrics(listen: Address, collect: "Callable[[], Iterable[Metric]]") -> Iterator[Address]:
    """Answer scrapes with what `collect` gives, and with the memory and CPU of this process, for the length of the
    block; yields the address with its real port. `collect` is called in threads. Raises `OSError` when the port is
    taken.
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
