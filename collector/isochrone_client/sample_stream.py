"""Streams of samples that survive broken connections: new samples as they are stored, and exports.

A collector that resumes a stream at an instant sends every sample of that instant or later, because it does not know
which of them arrived. The client therefore keeps a hash of each sample it received since and drops the repeats, so that
no sample is lost or repeated.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_wire.answers import Selection
from isochrone_wire.fleet import SampleList, StoredSample

_RETRY_SECONDS = 1.0
_EXPORT_ATTEMPTS = 30
_RETRIABLE = (UnreachableError, SlowError)


class Deduplication:
    """The samples received, back to the instant at which the stream would resume; `instant` returns the instant of a
    sample in microseconds since the epoch.
    """

    def __init__(self, instant: Callable[[StoredSample], int]) -> None:
        self._instant = instant
        self._received: list[tuple[int, int]] = []
        self._expected: Counter[int] = Counter()

    def record(self, samples: Iterable[StoredSample]) -> None:
        """Record received samples."""
        self._received += [(self._instant(row), _identity(row)) for row in samples]

    def expect_repeats(self) -> None:
        """Expect each recorded sample once more: the stream is about to be resumed."""
        self._expected = Counter(identity for _, identity in self._received)

    def drop_repeats(self, samples: Iterable[StoredSample]) -> tuple[StoredSample, ...]:
        """Return and record the samples that are not expected repeats."""
        new = tuple(row for row in samples if not self._is_repeat(row))
        self.record(new)
        return new

    def forget_before(self, at: int) -> None:
        """Forget samples from before the instant `at`: they will not be sent again."""
        self._received = [received for received in self._received if received[0] >= at]

    def _is_repeat(self, row: StoredSample) -> bool:
        identity = _identity(row)
        if not self._expected[identity]:
            return False
        self._expected[identity] -= 1
        return True


def _identity(row: StoredSample) -> int:
    # Without the target's name: a new plan can give that name to another target.
    return hash((row.vantage, row.received_at, row.sample))


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


def export_samples(
    client: ObservatoryClient, selection: Selection, *, report: Callable[[str], None]
) -> Iterator[tuple[StoredSample, ...]]:
    """Yield each sample of the selection once. After a broken connection, resume at the newest round received.

    `report` receives a sentence about each break. Raises `ClientError` if the collector cannot be reached at the start
    or does not come back.
    """
    seen, newest_at, failures = Deduplication(lambda row: row.sample.round_at), 0, 0
    while True:
        try:
            for samples in client.export_samples(_since(selection, newest_at)):
                new = seen.drop_repeats(samples)
                if new:
                    newest_at, failures = new[-1].sample.round_at, 0
                    seen.forget_before(newest_at)
                    yield new
        except _RETRIABLE as error:
            failures += 1
            if not newest_at or failures > _EXPORT_ATTEMPTS:
                raise
            if failures == 1:
                report(f"{error}; continuing when it is back")
            time.sleep(_RETRY_SECONDS)
            seen.expect_repeats()
        else:
            return


def _since(selection: Selection, newest_at: int) -> Selection:
    window = selection.window
    return replace(selection, window=replace(window, from_at=max(window.from_at, newest_at)))
