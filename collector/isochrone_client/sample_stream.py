"""Streams of samples that survive broken connections: new samples as they are stored, and exports.

An export continues behind the last sample received. A collector that resumes a stream of new samples at an instant
sends every sample of that instant or later, because it does not know which of them arrived. The client therefore keeps
the id of each sample it received since and drops the repeats, so that no sample is lost or repeated.
"""

import time
from collections.abc import Callable, Iterable, Iterator

from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_wire.answers import Selection
from isochrone_wire.fleet import SampleList, StoredSample

_RETRY_SECONDS = 1.0
_EXPORT_ATTEMPTS = 30
_RETRIABLE = (UnreachableError, SlowError)


class SampleStream:
    """The samples of a selection at one collector; `report` receives a sentence when it is lost and when it is back."""

    def __init__(self, client: ObservatoryClient, selection: Selection, *, report: Callable[[str], None]) -> None:
        self._client = client
        self._selection = selection
        self._report = report
        # The instant of receipt of each sample that the collector may send again, by the sample's id.
        self._seen: dict[str, int] = {}
        self._resume_at = 0
        self._failures = 0

    def samples(self, *, limit: int) -> Iterator[tuple[StoredSample, ...]]:
        """Yield up to `limit` of the newest samples, possibly none, then new samples in batches, without end.

        Raises `ClientError` if the collector refuses the request or cannot be reached at the start.
        """
        batches = self._client.follow_samples(self._selection)
        # The stream starts here. Samples stored before `list_samples` answers are found by both calls.
        self._resume_at = next(batches, SampleList()).resume_at
        yield self._new(self._client.list_samples(self._selection, limit=limit), self._resume_at)
        while True:
            try:
                for batch in batches:
                    self._succeed()
                    if new := self._new(batch.samples, batch.resume_at):
                        yield new
                self._fail("the stream of samples ended")
            except _RETRIABLE as error:
                self._fail(str(error))
            batches = self._client.follow_samples(self._selection, since_at=self._resume_at)

    def _new(self, samples: Iterable[StoredSample], resume_at: int) -> tuple[StoredSample, ...]:
        """Return the samples that were not received before; the stream would resume at `resume_at`."""
        new = tuple(row for row in samples if row.id not in self._seen)
        self._seen |= {row.id: row.received_at for row in new}
        self._seen = {name: at for name, at in self._seen.items() if at >= resume_at}
        self._resume_at = resume_at
        return new

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
    """Yield each sample of the selection once. After a broken connection, resume behind the last sample received.

    `report` receives a sentence about each break. Raises `ClientError` if the collector cannot be reached at the start
    or does not come back.
    """
    last, failures = "", 0
    while True:
        try:
            for samples in client.export_samples(selection, after=last):
                last, failures = samples[-1].id, 0
                yield samples
        except _RETRIABLE as error:
            failures += 1
            if not last or failures > _EXPORT_ATTEMPTS:
                raise
            if failures == 1:
                report(f"{error}; continuing when it is back")
            time.sleep(_RETRY_SECONDS)
        else:
            return
