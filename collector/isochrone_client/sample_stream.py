"""Samples as they are stored, without end: no sample is lost or repeated when the collector restarts."""

import time
from collections.abc import Callable, Iterator

from isochrone_client.client import ObservatoryClient
from isochrone_client.deduplication import Deduplication
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_wire.answers import SampleList, Selection, StoredSample

_RETRY_SECONDS = 1.0
_RETRIABLE = (UnreachableError, SlowError)


class SampleStream:
    """The samples of a selection at one collector; `report` receives a sentence when it is lost and when it is back."""

    def __init__(self, client: ObservatoryClient, selection: Selection, *, report: Callable[[str], None]) -> None:
        self._client = client
        self._selection = selection
        self._report = report
        self._seen = Deduplication(lambda row: row.received_at)
        self._resume_at = 0
        self._failures = 0

    def samples(self, *, limit: int) -> Iterator[tuple[StoredSample, ...]]:
        """Yield up to `limit` of the newest samples, possibly none, then new samples in batches, without end.

        Raises `ClientError` if the collector refuses the request or cannot be reached at the start.
        """
        batches = self._client.follow_samples(self._selection)
        # The stream starts here. Samples stored before `list_samples` answers are found by both calls.
        self._resume_at = next(batches, SampleList()).resume_at
        newest = self._client.list_samples(self._selection, limit=limit)
        self._seen.record(row for row in newest if row.received_at >= self._resume_at)
        yield newest
        while True:
            self._seen.expect_repeats()
            try:
                yield from self._new_samples(batches)
                self._fail("the stream of samples ended")
            except _RETRIABLE as error:
                self._fail(str(error))
            batches = self._client.follow_samples(self._selection, since_at=self._resume_at)

    def _new_samples(self, batches: Iterator[SampleList]) -> Iterator[tuple[StoredSample, ...]]:
        for batch in batches:
            self._succeed()
            new = self._seen.drop_repeats(batch.samples)
            self._resume_at = batch.resume_at
            self._seen.forget_before(batch.resume_at)
            if new:
                yield new

    def _fail(self, why: str) -> None:
        """Retry at once and without a report after the first failure: collectors close connections that grow old."""
        self._failures += 1
        if self._failures == 2:  # noqa: PLR2004  # the first failure that is reported
            self._report(f"{why}; continuing when it is back")
        if self._failures > 1:
            time.sleep(_RETRY_SECONDS)

    def _succeed(self) -> None:
        if self._failures > 1:
            self._report("the collector is back")
        self._failures = 0
