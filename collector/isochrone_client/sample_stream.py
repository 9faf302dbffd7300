"""Samples as they are stored, for as long as somebody looks: across restarts of the collector none is lost, and none
comes twice.
"""

import time
from collections.abc import Callable, Iterator

from isochrone_client.client import ObservatoryClient
from isochrone_client.deduplication import Deduplication
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_wire.answers import SampleList, Selection, StoredSample

_RETRY_SECONDS = 1.0
_AWAY = (UnreachableError, SlowError)


class Following:
    """Follows the samples of a selection at one collector; `tell` hears when that goes away and is back."""

    def __init__(self, client: ObservatoryClient, selection: Selection, *, tell: Callable[[str], None]) -> None:
        self._client = client
        self._selection = selection
        self._tell = tell
        self._recall = Deduplication(lambda row: row.received_at)
        self._resume_at = 0
        self._failures = 0

    def samples(self, *, limit: int) -> Iterator[tuple[StoredSample, ...]]:
        """Up to `limit` of the newest samples, perhaps none, and then portions of those that come, without end.

        Raises `ClientError` where the collector is not there at the beginning, or refuses.
        """
        portions = self._client.follow_samples(self._selection)
        # From here on it follows; what comes before the look at the newest is found by both.
        self._resume_at = next(portions, SampleList()).resume_at
        newest = self._client.list_samples(self._selection, limit=limit)
        self._recall.note(row for row in newest if row.received_at >= self._resume_at)
        yield newest
        while True:
            self._recall.expect_again()
            try:
                yield from self._untold(portions)
                self._fail("the stream of samples ended")
            except _AWAY as error:
                self._fail(str(error))
            portions = self._client.follow_samples(self._selection, since_at=self._resume_at)

    def _untold(self, portions: Iterator[SampleList]) -> Iterator[tuple[StoredSample, ...]]:
        for portion in portions:
            self._succeed()
            fresh = self._recall.untold(portion.samples)
            self._resume_at = portion.resume_at
            self._recall.forget_before(portion.resume_at)
            if fresh:
                yield fresh

    def _fail(self, why: str) -> None:
        """A connection also ends for its age, so the first failure is taken up at once and without a word."""
        self._failures += 1
        if self._failures == 2:  # noqa: PLR2004  # the first that is told
            self._tell(f"{why}; going on when it is back")
        if self._failures > 1:
            time.sleep(_RETRY_SECONDS)

    def _succeed(self) -> None:
        if self._failures > 1:
            self._tell("the collector is back")
        self._failures = 0
