"""A queue of jobs that are not urgent: one job per turn of the event loop.

Planning a response takes a fraction of a millisecond. When many requests arrive at once, they are all timestamped first
and then planned one by one, so that due tokens of other streams are sent in between.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class JobQueue:
    """Runs jobs in order, one per turn of the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[Callable[[], None]] = deque()

    def add(self, job: Callable[[], None]) -> None:
        """Run `job` in a later turn of the loop. Its errors go to the loop's exception handler."""
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        try:
            self._jobs[0]()
        finally:
            self._jobs.popleft()
            if self._jobs:
                self._loop.call_soon(self._work)
