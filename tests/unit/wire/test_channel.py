"""Channels: the certificate that a server presents, pings, and proxies."""

import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import grpc
import pytest

from fixtures.simulator import certificate_for
from isochrone_common.address import Address, parse_address
from isochrone_common.channel import (
    CLIENT_OPTIONS,
    CLIENT_PING_EVERY_MS,
    SERVER_OPTIONS,
    SERVER_PING_TOLERANCE_MS,
    open_aio_channel,
    open_channel,
)
from isochrone_common.trust import PLAIN, presented_certificate


@contextmanager
def presenting(certificates: Sequence[Path]) -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Thread(target=_handshakes, args=(listener, certificates), daemon=True)
        server.start()
        yield Address("127.0.0.1", listener.getsockname()[1])
        server.join(10)


def _handshakes(listener: socket.socket, certificates: Sequence[Path]) -> None:
    for certificate in certificates:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.parent / "key.pem")
        accepted, _ = listener.accept()
        try:
            with context.wrap_socket(accepted, server_side=True) as connection:
                connection.recv(1)
        except ssl.SSLError:
            accepted.close()  # by a client that refuses the certificate


def test_a_certificate_that_is_replaced_meanwhile(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The new one is returned when the server switches between the two connections of the look."""
    old, new = (certificate_for(tmp_path_factory.mktemp(name), f"DNS:{name}.example") for name in ("old", "new"))
    with presenting([old, new, new, new]) as address:
        found = presented_certificate(address)
    assert found.name == "new.example"
    assert found.certificate.strip() == new.read_text().strip()


def test_a_certificate_that_cannot_be_used(tmp_path: Path) -> None:
    """One that has expired is not taken for one that was replaced."""
    expired = certificate_for(tmp_path, "DNS:a.example", ("20200101000000Z", "20200102000000Z"))
    with presenting([expired] * 3) as address, pytest.raises(ValueError, match="certificate has expired"):
        presented_certificate(address)


# So many times as fast: a ping per second, which is the most that gRPC sends.
HASTE = 30
PINGS = 6


@contextmanager
def grpc_server(options: Sequence[tuple[str, int]] = ()) -> Iterator[Address]:
    with ThreadPoolExecutor(max_workers=1) as threads:
        server = grpc.server(threads, options=options)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield parse_address(f"127.0.0.1:{port}")
        server.stop(grace=None).wait()


def hurried(options: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    times = (CLIENT_PING_EVERY_MS, SERVER_PING_TOLERANCE_MS)
    return [(name, value // HASTE if value in times else value) for name, value in options]


def test_pings_are_tolerated() -> None:
    """The pings of a client that sends nothing else are no reason for the server to close the connection."""
    states: list[grpc.ChannelConnectivity] = []
    is_open, is_lost = threading.Event(), threading.Event()

    def note(state: grpc.ChannelConnectivity) -> None:
        states.append(state)
        if state is grpc.ChannelConnectivity.READY:
            is_open.set()
        elif is_open.is_set():
            is_lost.set()

    with (
        grpc_server(hurried(SERVER_OPTIONS)) as address,
        grpc.insecure_channel(str(address), options=hurried(CLIENT_OPTIONS)) as channel,
    ):
        channel.subscribe(note, try_to_connect=True)
        assert is_open.wait(20)
        assert not is_lost.wait(PINGS * CLIENT_PING_EVERY_MS / HASTE / 1000), states
        channel.unsubscribe(note)


async def test_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators and agents, too, reach a collector on loopback directly where a proxy is set for everything."""
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with grpc_server() as address:
        with open_channel(address, PLAIN) as channel:
            grpc.channel_ready_future(channel).result(10)
        async with open_aio_channel(address, PLAIN) as aio_channel:
            await aio_channel.channel_ready()
