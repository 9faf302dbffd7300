"""An event loop in its own thread, for callers without one; and objects that survive a fork, such as that of a server's
workers.

A forked process has only the thread that forked. So no other thread may hold a lock then, and what belongs to the
threads of the parent is given up in the child.
"""

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Registered = tuple[Any, Callable[[Any], None]]  # an RLock, which is a function and has no type; and `in_child`
_registered: "weakref.WeakKeyDictionary[object, _Registered]" = weakref.WeakKeyDictionary()
_forking = threading.Lock()
_held: list[tuple[object, _Registered]] = []


def register_for_forks(owner: object, lock: Any, in_child: Callable[[Any], None]) -> None:  # noqa: ANN401  # an RLock
    """Hold the lock of `owner` during each fork, and call `in_child(owner)` in the child before it is released."""
    _registered[owner] = (lock, in_child)


def _before() -> None:
    _forking.acquire()
    _held[:] = _registered.items()
    for _, (lock, _) in _held:
        lock.acquire()


def _after(*, is_child: bool) -> None:
    for owner, (lock, in_child) in _held:
        if is_child:
            in_child(owner)
        lock.release()
    _held.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(is_child=False), after_in_child=lambda: _after(is_child=True)
    )


Value = TypeVar("Value")


class BackgroundLoop:
    """An event loop in a daemon thread. It starts when it is first used, and again in a forked process."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """True if the loop runs in this process."""
        return self._pid == os.getpid()

    def start(self) -> None:
        """Start the loop unless it runs in this process."""
        if self.is_running:
            return
        with self._starting:
            if os.getpid() == self._pid:  # another thread was first
                return
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="isochrone-routing", daemon=True)
            self._thread.start()
            self._pid = os.getpid()

    def submit(self, work: Coroutine[Any, Any, Value]) -> "concurrent.futures.Future[Value]":
        """Start work on the loop."""
        self.start()
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Run work on the loop and return its result; an exception here, such as Ctrl-C, cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def renew_lock(self) -> None:
        """Begin again in a forked process, where no other thread is left to release a lock."""
        self._starting = threading.Lock()

    def stop(self) -> None:
        """Cancel all work and end the thread."""
        if self.is_running and self._loop is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(_stop(), self._loop)
            self._thread.join()
        self._pid = 0


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _stop() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    asyncio.get_running_loop().stop()
