"""Objects with a lock and a thread of their own that survive a fork, such as that of a server's workers.

A forked process has only the thread that forked. So no other thread may hold a lock then, and what belongs to the
threads of the parent is given up in the child.
"""

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple


class _Registered(NamedTuple):
    lock: Any  # an RLock has no type of its own
    in_child: Callable[[Any], None]


_registered: "weakref.WeakKeyDictionary[object, _Registered]" = weakref.WeakKeyDictionary()
_forking = threading.Lock()
_held: list[tuple[object, _Registered]] = []


def register(owner: object, lock: Any, in_child: Callable[[Any], None]) -> None:  # noqa: ANN401  # an RLock
    """Hold the lock of `owner` during each fork, and call `in_child(owner)` in the child before it is released."""
    _registered[owner] = _Registered(lock, in_child)


def _before() -> None:
    _forking.acquire()
    _held[:] = _registered.items()
    for _, registered in _held:
        registered.lock.acquire()


def _after(*, is_child: bool) -> None:
    for owner, registered in _held:
        if is_child:
            registered.in_child(owner)
        registered.lock.release()
    _held.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before,
        after_in_parent=lambda: _after(is_child=False),
        after_in_child=lambda: _after(is_child=True),
    )
