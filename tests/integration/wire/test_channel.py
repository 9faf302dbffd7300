"""Channels to a collector on this machine."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from isochrone_common.address import Address, parse_address
from isochrone_common.channel import open_aio_channel, open_channel
from isochrone_common.trust import PLAIN


@pytest.fixture
def address() -> Iterator[Address]:
    """A server without services."""
    with ThreadPoolExecutor(max_workers=1) as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield parse_address(f"127.0.0.1:{port}")
        server.stop(grace=None).wait()


async def test_a_proxy_is_not_asked_for_this_machine(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators and agents, too, reach a collector on loopback directly where a proxy is set for everything."""
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with open_channel(address, PLAIN) as channel:
        grpc.channel_ready_future(channel).result(10)
    async with open_aio_channel(address, PLAIN) as aio_channel:
        await aio_channel.channel_ready()
