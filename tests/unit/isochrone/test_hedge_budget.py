"""The budget of second requests, which the threads of a service share."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from isochrone.routing import Routes


def test_two_threads_do_not_take_the_same_token() -> None:
    """While one thread has seen a token and not yet taken it, no other one sees it."""
    meeting = threading.Barrier(2)

    class Tokens(float):
        def __lt__(self, other: float) -> bool:
            with suppress(threading.BrokenBarrierError):  # the other thread waits for the lock
                meeting.wait(0.5)
            return float(self) < other

    routes = Routes("http://127.0.0.1:9", "us-east-2", cache_folder=None)
    routes._budget.tokens = Tokens(1.0)
    with ThreadPoolExecutor(2) as threads:
        granted = list(threads.map(lambda _: routes.take_hedge(), range(2)))
    assert sorted(granted) == [False, True]
