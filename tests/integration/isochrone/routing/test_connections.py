"""The connections of the transports: which are used again, and two requests at once in threads that block."""

import asyncio
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import httpcore
import pytest

from fixtures.loopback import Handler, serving
from fixtures.routing_client import PATIENCE, World, client_of, stream
from fixtures.simulator import certificate_for
from isochrone.routing import Routes, blocking, connections
from isochrone.routing.blocking import BlockingBackend, BlockingConnection, ThreadRacing, run
from isochrone.routing.connections import Backend, Connections
from isochrone_wire.routes import Hedge
from testdata.waiting import BUSY, eventually

LIMIT_S = PATIENCE * BUSY
Wait = Callable[[Any], Any]


@contextmanager
def provider() -> Iterator[tuple[str, Counter[int], list[int]]]:
    """A server's URL, its requests by the port of their connection, and the packets' sizes of each request's read."""
    ports, bodies = Counter[int](), list[int]()

    class Connection(Handler):
        def answer(self) -> None:
            ports[self.client_address[1]] += 1
            # What came with the head is already buffered, so that it can be read without waiting.
            bodies.append(len(self.rfile.peek(1)) if int(self.headers["content-length"]) else 0)  # type: ignore[attr-defined]  # it is buffered
            self.read()
            self.send(200, b"answer", **({"connection": "close"} if self.path == "/last" else {}))

    with serving(Connection) as port:
        yield f"http://127.0.0.1:{port}/", ports, bodies


def pools() -> Iterator[tuple[Connections, Wait]]:
    """A pool of either kind, and what runs its coroutines."""
    yield (
        Connections(
            lambda origin: BlockingConnection(
                httpcore.HTTPConnection(origin, keepalive_expiry=60, network_backend=BlockingBackend())
            ),
            nullcontext,
        ),
        run,
    )
    loop = asyncio.new_event_loop()
    yield (
        Connections(
            lambda origin: httpcore.AsyncHTTPConnection(origin, keepalive_expiry=60, network_backend=Backend())
        ),
        loop.run_until_complete,
    )
    loop.close()


async def begun(pool: Connections, url: str, body: bytes = b"") -> httpcore.Response:
    headers = [("host", "x"), ("content-length", str(len(body)))]
    return await pool.handle_async_request(httpcore.Request("POST", url, headers=headers, content=body))


async def ended(response: httpcore.Response) -> bytes:
    data = b"".join([part async for part in response.aiter_stream()])
    await response.aclose()
    return data


def test_connections_are_used_again() -> None:
    """A request takes the one that was used last, unless its server has closed it; two at once have one each."""
    for pool, wait in pools():
        with provider() as (url, ports, _):
            for _ in range(3):
                assert wait(ended(wait(begun(pool, url)))) == b"answer"
            assert list(ports.values()) == [3]
            first, second = wait(begun(pool, url)), wait(begun(pool, url))
            assert len(ports) == 2
            wait(ended(first))
            wait(ended(second))
            last = list(ports)[-1]
            wait(ended(wait(begun(pool, url))))
            assert ports[last] == 2
            wait(ended(wait(begun(pool, url + "last"))))
            wait(ended(wait(begun(pool, url))))
            assert len(ports) == 2
            wait(pool.aclose())


def test_a_response_that_is_not_read_is_not_kept() -> None:
    """Its connection has bytes of it left, so it is closed, and the next request opens another one."""
    for pool, wait in pools():
        with provider() as (url, ports, _):
            response = wait(begun(pool, url))
            wait(response.aclose())
            wait(response.aclose())
            wait(ended(wait(begun(pool, url))))
            assert list(ports.values()) == [1, 1]
            wait(pool.aclose())


SECOND = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecond"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\nx-trailer: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "body", "connections_used"),
    [
        (SECOND.replace(b"second", b"others") * 2, b"others", 2),
        (SECOND.replace(b"second", b"others") + b"HTTP/1.1 201 OK\r\nx: ", b"others", 2),
        (b"HTTP/1.1 204 OK\r\ncontent-length: 3\r\n\r\nxyz", b"", 2),
        (b"HTTP/1.1 304 OK\r\ncontent-length: 3\r\n\r\n", b"", 1),
        (b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + CHUNKED, b"first", 1),
        (CHUNKED + CHUNKED, b"first", 2),
        (CHUNKED.replace(b"OK\r\n", b"OK\r\nconnection: close\r\n"), b"first", 2),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nfirst", b"first", 2),
    ],
)
def test_a_response_is_that_of_its_request(first: bytes, body: bytes, connections_used: int) -> None:
    """What a server sends beyond one response is never a part of the next one."""
    for pool, wait in pools():
        answers, ports = [first, SECOND], set[int]()

        class Connection(Handler):
            def answer(self, answers: list[bytes] = answers, ports: set[int] = ports) -> None:
                ports.add(self.client_address[1])
                self.wfile.write(answers.pop(0))

        with serving(Connection) as port:
            url = f"http://127.0.0.1:{port}/"
            assert wait(ended(wait(begun(pool, url)))) == body
            assert wait(ended(wait(begun(pool, url)))) == b"second"
            assert len(ports) == connections_used
            wait(pool.aclose())


async def test_a_handshake_that_is_cancelled_leaves_no_socket() -> None:
    """The server sees the end of the connection."""
    has_begun, has_ended = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        has_begun.set()
        await reader.read()
        has_ended.set()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        pool = Connections(lambda origin: httpcore.AsyncHTTPConnection(origin, network_backend=Backend()))
        request = asyncio.create_task(begun(pool, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"))
        await has_begun.wait()
        request.cancel()
        await asyncio.wait([request])
        await asyncio.wait_for(has_ended.wait(), LIMIT_S)


class Proxy(Handler):
    """A proxy to the origin that each request names, which counts the tunnels."""

    tunnels: Counter[str]

    def answer(self) -> None:
        if self.command == "CONNECT":
            return self.tunnel()
        self.read()
        self.wfile.write(SECOND.replace(b"second", self.path[-6:].encode()))
        return None

    def tunnel(self) -> None:
        self.tunnels[self.path] += 1
        host, port = self.path.split(":")
        with socket.create_connection((host, int(port))) as origin:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=relay, args=(origin, self.connection))
            back.start()
            relay(self.connection, origin)
            back.join()


def relay(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def test_connections_of_a_proxy(tmp_path: Path) -> None:
    """It gets the address of a request without TLS, and a tunnel for those with; both are used again."""
    certificate = certificate_for(tmp_path, "IP:127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.parent / "key.pem")
    Proxy.tunnels = Counter()

    class Origin(Handler):
        def setup(self) -> None:
            self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            super().finish()
            self.request.close()

        def answer(self) -> None:
            self.wfile.write(SECOND)

    loop = asyncio.new_event_loop()
    with serving(Proxy) as port, serving(Origin) as origin:
        trust = ssl.create_default_context(cafile=certificate)
        options: Any = {"proxy": f"http://127.0.0.1:{port}", "ssl_context": trust, "cache_folder": None}
        routes = Routes("http://127.0.0.1:9", "r", **options)
        for pool, wait in ((routes.new_pool(), loop.run_until_complete), (routes.new_blocking_pool(), run)):
            for url, body in ((f"https://127.0.0.1:{origin}/", b"second"), ("http://a.example/direct", b"direct")):
                for _ in range(3):
                    assert wait(ended(wait(begun(pool, url)))) == body
            assert len(pool._idle) == 2
            wait(pool.aclose())
    loop.close()
    assert Proxy.tunnels == {f"127.0.0.1:{origin}": 2}


def test_idle_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those beyond the limit the ones used longest ago are closed."""
    monkeypatch.setattr(connections, "_MOST_IDLE", 2)
    for pool, wait in pools():
        with provider() as (url, _, _):
            for response in [wait(begun(pool, url)) for _ in range(4)]:
                wait(ended(response))
            assert len(pool._idle) == 2
            assert not pool._busy
            wait(pool.aclose())
            assert not pool._idle


def test_a_small_request_is_one_write() -> None:
    """Its body is in the packet of its head; a large one is whole, too."""
    for pool, wait in pools():
        with provider() as (url, _, bodies):
            wait(ended(wait(begun(pool, url, b"x" * 100))))
            assert bodies == [100]
            assert wait(ended(wait(begun(pool, url, b"x" * 1_000_000)))) == b"answer"
            wait(pool.aclose())


class Ended:
    """An attempt, and whether it was given up."""

    def __init__(self, name: str, *, is_failed: bool = False) -> None:
        self.name, self.is_failed, self.is_discarded = name, is_failed, False

    async def discard(self) -> None:
        self.is_discarded = True


def test_an_attempt_that_ends_before_the_delay_is_alone() -> None:
    """No second one begins, also if the first one failed."""
    for is_failed in (False, True):
        attempt = Ended("first", is_failed=is_failed)

        async def first(attempt: Ended = attempt) -> Ended:
            return attempt

        assert run(ThreadRacing().race(first, pytest.fail, 60.0)) == [attempt]
        assert not attempt.is_discarded


def read(pool: Connections, url: str, name: str, *, is_failed: bool = False) -> Any:
    """An attempt that reads an answer."""

    async def attempt() -> Ended:
        try:
            await ended(await begun(pool, url))
        except httpcore.NetworkError:
            return Ended(name, is_failed=True)
        return Ended(name, is_failed=is_failed)

    return attempt


@contextmanager
def slow(*delays_s: float) -> Iterator[str]:
    """A server whose requests are answered after these times, one after the other; `inf`: when the test ends."""
    waiting, ending = list(delays_s), threading.Event()

    class Connection(Handler):
        def answer(self) -> None:
            self.read()
            delay_s = waiting.pop(0)
            ending.wait(min(delay_s, LIMIT_S))
            self.send(200, b"answer")

    with serving(Connection) as port:
        yield f"http://127.0.0.1:{port}/"
        ending.set()


@pytest.mark.parametrize(
    ("delays_s", "failed", "names"),
    [
        ((float("inf"), 0.0), (), ["second"]),
        ((0.5, float("inf")), (), ["first"]),
        ((0.5, 0.0), ("second",), ["second", "first"]),
        ((0.5, 0.0), ("second", "first"), ["second", "first"]),
        ((0.2, 0.5), ("first",), ["first", "second"]),
    ],
)
def test_two_attempts_in_threads(delays_s: tuple[float, float], failed: tuple[str, ...], names: list[str]) -> None:
    """The first success ends the race, and the other attempt; failures are returned before what followed them."""
    pool, _ = next(pools())
    with slow(*delays_s) as url:

        def second() -> Any:
            return read(pool, url, "second", is_failed="second" in failed)

        race = ThreadRacing().race(read(pool, url, "first", is_failed="first" in failed), second, 0.05)
        found: list[Ended] = run(race)
        assert [one.name for one in found] == names
        assert [one.is_discarded for one in found] == [*[True] * (len(found) - 1), False]
        eventually(PATIENCE, lambda: not pool._busy, "the other request has ended")
        run(pool.aclose())


def test_a_connection_of_a_lost_race_ends_alone(world: World) -> None:
    """The end of a loser shuts down its own connection: requests of other threads go on over theirs."""
    world.first_then("silence", "none", hedge=Hedge(target="sim/none", delay_us=20_000))
    routes = world.routes(hedge_ratio=1)
    client = client_of(routes)
    failures: list[BaseException] = []

    def ask_often() -> None:
        try:
            for _ in range(10):
                assert stream(client) == "fault-none"
        except BaseException as error:  # noqa: BLE001  # the main thread shows it
            failures.append(error)

    threads = [threading.Thread(target=ask_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert routes.counters["hedges_won"] == 40


def test_an_attempt_that_has_ended_is_not_watched() -> None:
    """Its connection is that of another request from then on: neither the end of the race nor the alarm touches it."""
    pool, _ = next(pools())
    with provider() as (url, ports, _):
        watch = blocking._Watch()
        with watch.watching():
            run(ended(run(begun(pool, url))))
        watch.lose()
        run(ended(run(begun(pool, url))))
        assert list(ports.values()) == [2]
        run(pool.aclose())


def test_an_attempt_is_given_up_when_it_is_not_watched() -> None:
    """A late response gives its connection back after the race has let go of it."""
    watches: list[object] = []

    class Late(Ended):
        async def discard(self) -> None:
            watches.append(blocking._here.watch)

    async def first() -> Ended:
        watch = blocking._here.watch
        watch.ring()  # as the delay does
        while not watch.has_lost:
            time.sleep(0.01)  # noqa: ASYNC251  # there is no event loop
        return Late("first")

    async def second() -> Ended:
        return Ended("second")

    assert [one.name for one in run(ThreadRacing().race(first, lambda: second, 60.0))] == ["second"]
    assert watches == [None]


def test_a_second_attempt_that_begins_while_the_first_fails_to_connect_is_known() -> None:
    """The race waits for it, so that no request goes on alone."""
    beginning, failing = threading.Event(), threading.Event()

    async def first() -> Ended:
        with blocking._here.watch.connecting():
            beginning.wait(LIMIT_S)
            failing.set()
        return Ended("first", is_failed=True)

    def second() -> Any:
        beginning.set()
        failing.wait(LIMIT_S)
        time.sleep(0.1)
        return succeed

    async def succeed() -> Ended:
        return Ended("second")

    assert run(ThreadRacing().race(first, second, 0.01))[-1].name == "second"


def test_an_interrupt_ends_both_attempts() -> None:
    """Ctrl-C in the thread of the caller ends the second request."""
    pool, _ = next(pools())
    with slow(float("inf")) as url:

        async def first() -> Ended:
            blocking._here.watch.ring()  # as the delay does
            while not pool._busy:
                time.sleep(0.01)  # noqa: ASYNC251  # there is no event loop
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(ThreadRacing().race(first, lambda: read(pool, url, "second"), 60.0))
        eventually(PATIENCE, lambda: not pool._busy, "the second request has ended")
