"""Streams of samples: broken ones, silent ones, and those that replace a list that is too long."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fixtures.fake_collector import NOW_AT, SAMPLES, WINDOW, FakeCollector, stored
from isochrone_client.client import ReadClient
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_client.streams import SampleStream, export_samples
from isochrone_wire.answers import Selection
from isochrone_wire.fleet import SampleList, StoredSample

ALL = Selection(window=WINDOW)


def test_a_long_list_is_streamed(observatory: FakeCollector) -> None:
    """More samples than one document may have are requested as a stream and give the same list."""
    with ReadClient(observatory.address) as client:
        assert set(client.list_samples(ALL, limit=5_000)) == set(SAMPLES)
        assert len(client.list_samples(replace(ALL, regions=("us-east-2",)), limit=2)) == 2
    assert [request.path for request in observatory.requests] == ["/v1/samples/export", "/v1/samples"]


def test_a_silent_stream_times_out(observatory: FakeCollector) -> None:
    """A collector that sends nothing within the timeout counts as lost, even if the connection looks healthy."""
    observatory.released = threading.Event()
    with ReadClient(observatory.address, timeout_us=300_000) as client, pytest.raises(SlowError):
        next(client.follow_samples(ALL))
    observatory.released.set()


def test_an_export_resumes_where_it_broke(observatory: FakeCollector) -> None:
    """After a break each sample is exported once, even in the round of the break, and the break is reported."""
    twins = [stored(3, ttft_us=number) for number in range(3)]
    observatory.samples = (stored(5), *twins, stored(2), stored(1))
    observatory.cuts_export = True
    reports: list[str] = []
    with ReadClient(observatory.address) as client:
        rows = [row for batch in export_samples(client, ALL, report=reports.append) for row in batch]
    assert rows == [*observatory.samples]
    assert len(reports) == 1
    assert "the connection was closed" in reports[0]
    assert observatory.requests[-1].one("after") == rows[1].id


def test_an_export_that_never_started_fails(observatory: FakeCollector) -> None:
    """An export that received nothing cannot be resumed."""
    with ReadClient("127.0.0.1:1") as client, pytest.raises(UnreachableError):
        next(export_samples(client, ALL, report=pytest.fail))
    assert observatory.requests == []


def test_following_starts_with_the_newest(observatory: FakeCollector) -> None:
    """The stream starts with the newest samples, as many as requested, and does not repeat them."""
    with ReadClient(observatory.address) as client:
        batches = SampleStream(client, ALL, report=pytest.fail).samples(limit=2)
        assert set(next(batches)) == set(SAMPLES[:2])
        new = stored(0, ttft_us=77)
        observatory.samples = (*SAMPLES, new)
        assert next(batches) == (new,)


def test_following_an_absent_collector_fails() -> None:
    """At the start an absent collector is an error; the stream does not wait for it."""
    with ReadClient("127.0.0.1:1") as client, pytest.raises(UnreachableError):
        next(SampleStream(client, ALL, report=pytest.fail).samples(limit=1))


class Script:
    """A client whose streams of samples are written beforehand: each break resumes with the next one."""

    def __init__(self, *streams: Sequence[SampleList | Exception]) -> None:
        self.streams = list(streams)
        self.since: list[int] = []

    def list_samples(self, _selection: Selection, *, limit: int) -> tuple[StoredSample, ...]:
        """No samples."""
        assert limit
        return ()

    def follow_samples(self, _selection: Selection, *, since_at: int = 0) -> Iterator[SampleList]:
        """Yield the next stream."""
        self.since.append(since_at)
        for batch in self.streams.pop(0):
            if isinstance(batch, Exception):
                raise batch
            yield batch


def test_a_stream_that_resumes_drops_what_it_had() -> None:
    """Only samples that arrived before a break are dropped, however they are spread over batches; and those that cannot
    come again are forgotten.
    """
    one, two, three, four = (stored(place, received_at=NOW_AT + place) for place in range(4))
    broken = UnreachableError("gone", hint="wait")
    client: Any = Script(
        [SampleList(resume_at=NOW_AT), SampleList(samples=(one, two), resume_at=NOW_AT + 1), broken],
        [SampleList(samples=(two, three), resume_at=NOW_AT + 1), SampleList(resume_at=NOW_AT + 3)],
        [SampleList(samples=(four,), resume_at=NOW_AT + 3)],
    )
    stream = SampleStream(client, ALL, report=lambda _sentence: None)
    batches = stream.samples(limit=1)
    assert [next(batches) for _ in range(4)] == [(), (one, two), (three,), (four,)]
    assert client.since == [0, NOW_AT + 1, NOW_AT + 3]
    assert set(stream._seen) == {four.id}
