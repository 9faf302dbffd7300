"""Log of refused requests at a bounded rate, with the number of those that were left out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from isochrone_collector.auth.rate_limit import LeakyBucket
from isochrone_collector.clock import now_at
from isochrone_collector.errors import DatabaseUnavailable

_PER_SECOND = 1.0
_BURST = 50.0

_log = structlog.get_logger()


class RefusalLog:
    """Logs at most one `event` per second after a burst of 50. `clock` returns microseconds since the epoch."""

    def __init__(self, event: str = "request.refused", *, clock: Callable[[], int] = now_at) -> None:
        self._event = event
        self._clock = clock
        self._bucket = LeakyBucket(per_second=_PER_SECOND, burst=_BURST)
        self._left_out = 0

    def write(self, **fields: str) -> None:
        """Log an event, or count it for the next line."""
        if not self._bucket.take(self._clock()):
            self._left_out += 1
            return
        left_out, self._left_out = self._left_out, 0
        _log.warning(self._event, **fields, **({"left_out": left_out} if left_out else {}))


REFUSALS = RefusalLog()
"""The log of this process, for gRPC and HTTP."""

_UNAVAILABLE = RefusalLog("database.unavailable")


@contextmanager
def without_details() -> Iterator[None]:
    """Replace errors of the database by one without its text, for callers without a credential. The log has it."""
    try:
        yield
    except DatabaseUnavailable as error:
        _UNAVAILABLE.write(reason=str(error))
        raise DatabaseUnavailable("the database is unavailable at the moment; try again later") from error
