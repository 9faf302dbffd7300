"""Requests of the engine in the thread of their caller, over connections that block.

The engine consists of coroutines. Here they never wait, because each step blocks: `run` executes a coroutine without an
event loop or another thread. A thread can have an alarm: its read stops at that time, the alarm calls its function, and
the read continues. So the thread of a second request starts only when that request is due. The request that loses ends
when its socket is shut down.
"""

import math
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpcore

from isochrone.routing.connections import MOST_WAITING_BYTES
from isochrone.routing.racing import Attempt, Attempted, Race, Start

Value = TypeVar("Value")
_here = threading.local()


def run(work: Coroutine[Any, Any, Value]) -> Value:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Value = end.value
        return result
    work.close()
    raise RuntimeError("a coroutine waits for an event loop, which a blocking transport has not")


class BlockingConnection(httpcore.AsyncConnectionInterface):
    """A blocking connection with the methods that `Connections` calls."""

    def __init__(self, connection: httpcore.HTTPConnection | httpcore.HTTPProxy) -> None:
        self._connection: Any = connection

    def has_expired(self) -> bool:
        """As httpcore."""
        return bool(self._connection.has_expired())

    def is_idle(self) -> bool:
        """As httpcore."""
        return bool(self._connection.is_idle())

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """As httpcore."""
        response = self._connection.handle_request(request)
        body = BlockingBody(response, response.iter_stream())
        return httpcore.Response(
            response.status, headers=response.headers, content=body, extensions=response.extensions
        )

    async def aclose(self) -> None:
        """Close it."""
        self._connection.close()


@dataclass(slots=True, eq=False)
class BlockingBody:
    """The body of a blocking response, of which the engine reads the beginning, and the caller the rest."""

    response: httpcore.Response
    rest: Iterator[bytes]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        data = next(self.rest, None)
        if data is None:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        """End it."""
        self.response.close()


class _LostError(BaseException):
    """The other attempt has answered. Nothing but the race handles it."""


@dataclass(eq=False)
class _Watch:
    """The state of a thread that waits for its connection: alarm, deadline, and whether its attempt has lost."""

    act: Callable[[], None] = lambda: None
    alarm_s: float = math.inf
    deadline_s: float = math.inf
    has_lost: bool = False
    stream: httpcore.NetworkStream | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def lose(self) -> None:
        """End what the thread waits for; called in another one."""
        with self.lock, suppress(OSError):  # it is closed
            self.has_lost = True
            if self.stream is not None:
                self.stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def take(self, step: Callable[[float | None], Value], timeout: float | None) -> Value:
        """Take a step with a timeout in seconds. Raises `_LostError` after `lose`."""
        until_s = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            self.require_wanted()  # `lose` ends what begins after this
            if time.monotonic() >= self.alarm_s:
                self.ring()
            limit_s = min(until_s, self.alarm_s, self.deadline_s) - time.monotonic()
            try:
                return step(None if math.isinf(limit_s) else max(0.001, limit_s))
            except httpcore.ReadTimeout:
                if until_s <= min(time.monotonic(), self.deadline_s):
                    raise
            finally:
                self.require_wanted()

    def require_wanted(self) -> None:
        """Raise `_LostError` after `lose`, and `TimeoutError` after the deadline."""
        if self.has_lost:
            raise _LostError
        if time.monotonic() >= self.deadline_s:
            raise TimeoutError

    def ring(self) -> None:
        """Act, once."""
        with self.lock:
            is_due, self.alarm_s = math.isfinite(self.alarm_s), math.inf
        if is_due:
            self.act()

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Ring in another thread while a connection is opened, which nothing can interrupt."""
        if math.isinf(self.alarm_s):
            yield
            return
        timer = threading.Timer(max(0.0, self.alarm_s - time.monotonic()), self.ring)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # what it began is known from now on

    def bounded(self, step: Callable[[float | None], Value], timeout: float | None) -> Value:
        """Take a step that cannot be taken again. Raises `TimeoutError` after the deadline."""
        limit_s = min(math.inf if timeout is None else timeout, self.deadline_s - time.monotonic())
        try:
            return step(None if math.isinf(limit_s) else max(0.001, limit_s))
        except httpcore.TimeoutException:
            self.require_wanted()
            raise

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the thread in the block."""
        _here.watch = self
        try:
            yield
        finally:
            _here.watch = None
            with self.lock:
                self.stream = None  # another request may use it from now on


class ThreadRacing:
    """Attempts in threads: the first in the caller's thread, the second in a new one; see `Racing`."""

    async def sleep(self, seconds: float) -> None:
        """See `Racing`."""
        time.sleep(seconds)  # noqa: ASYNC251  # there is no event loop

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[None]:
        """See `Racing`."""
        with ExitStack() as stack:
            watch: _Watch | None = getattr(_here, "watch", None)
            if watch is None:
                watch = _Watch()
                stack.enter_context(watch.watching())
            watch.deadline_s = time.monotonic() + seconds
            try:
                yield
            finally:
                watch.deadline_s = math.inf

    async def race(
        self, first: Start[Attempt], second: Callable[[], Start[Attempt] | None], delay_s: float
    ) -> list[Attempt]:
        """See `Racing`."""
        race = _ThreadRace(second)
        race.own.alarm_s = time.monotonic() + delay_s
        with suppress(_LostError):
            try:
                with race.own.watching():
                    attempt = await first()
            except BaseException:
                race.other.lose()
                raise
            race.end(attempt, race.other)
        return race.result()


class _ThreadRace:
    """The attempts of a request in two threads."""

    def __init__(self, second: Callable[[], Any]) -> None:
        self.own, self.other = _Watch(self._begin), _Watch()
        self._second = second
        self._thread: threading.Thread | None = None
        self._race = Race[Any]()
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def _begin(self) -> None:
        if start := self._second():
            self._thread = threading.Thread(target=self._attempt, args=(start,), name="isochrone-hedge", daemon=True)
            self._thread.start()

    def _attempt(self, start: Start[Any]) -> None:
        with suppress(_LostError):
            try:
                with self.other.watching():
                    attempt = run(start())
            except Exception as error:  # noqa: BLE001  # the thread of the caller raises it
                self._error = error
                self.own.lose()
            else:
                self.end(attempt, self.own)

    def end(self, attempt: Attempted, rival: _Watch) -> None:
        """Add an attempt that has ended; a success ends the other one."""
        with self._lock:
            lost = self._race.add(attempt)
        if lost is not None:
            run(lost.discard())
        if not attempt.is_failed and lost is not attempt:
            rival.lose()

    def result(self) -> list[Any]:
        """Return the attempts that ended, when a success is the last, or both have failed."""
        if self._thread is not None and not self._race.is_won:
            self._thread.join()
        if self._error is not None and not self._race.is_won:
            raise self._error
        return self._race.ended


class BlockingBackend(httpcore.SyncBackend):
    """A network whose connections can be ended by a race, and send the head of a request together with its body."""

    def connect_tcp(self, *arguments: Any, **more: Any) -> httpcore.NetworkStream:  # noqa: ANN401  # httpcore's
        """As httpcore."""
        return _connected(super().connect_tcp, *arguments, **more)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream, self._written = stream, bytearray()
        self.close, self.get_extra_info = stream.close, stream.get_extra_info  # type: ignore[method-assign]  # as they are

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        watch: _Watch | None = getattr(_here, "watch", None)
        if self._written:
            self._send(timeout)
        if watch is None:
            return self._stream.read(max_bytes, timeout)
        watch.stream = self._stream
        return watch.take(lambda limit: self._stream.read(max_bytes, limit), timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._written += buffer
        if len(self._written) > MOST_WAITING_BYTES:
            self._send(timeout)

    def _send(self, timeout: float | None) -> None:
        sending, self._written = bytes(self._written), bytearray()
        watch: _Watch = getattr(_here, "watch", None) or _Watch()
        watch.stream = self._stream
        watch.bounded(lambda limit: self._stream.write(sending, limit), timeout)

    def start_tls(self, *arguments: Any, **more: Any) -> httpcore.NetworkStream:  # noqa: ANN401  # httpcore's
        return _connected(self._stream.start_tls, *arguments, **more)


def _connected(connect: Callable[..., httpcore.NetworkStream], *arguments: object, **more: Any) -> _Stream:  # noqa: ANN401  # httpcore's
    watch: _Watch | None = getattr(_here, "watch", None)
    if watch is None:
        return _Stream(connect(*arguments, **more))
    with watch.connecting():
        made = watch.bounded(lambda limit: connect(*arguments, **more | {"timeout": limit}), more.get("timeout"))
        stream = _Stream(made)
    if watch.has_lost:
        stream.close()
        raise _LostError
    return stream
