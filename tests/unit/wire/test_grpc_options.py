"""The options that a client and the collector must agree on, with a real server."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

from isochrone_common.channel import CLIENT_OPTIONS, CLIENT_PING_EVERY_MS, SERVER_OPTIONS, SERVER_PING_TOLERANCE_MS

# So many times as fast: a ping per second, which is the most that gRPC sends.
HASTE = 30
PINGS = 6


def hurried(options: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The options with shorter times between pings."""
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

    server = grpc.server(ThreadPoolExecutor(1), options=hurried(SERVER_OPTIONS))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=hurried(CLIENT_OPTIONS)) as channel:
            channel.subscribe(note, try_to_connect=True)
            assert is_open.wait(20)
            assert not is_lost.wait(PINGS * CLIENT_PING_EVERY_MS / HASTE / 1000), states
            channel.unsubscribe(note)
    finally:
        server.stop(None)
