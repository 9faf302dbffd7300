"""Streams of samples: broken ones, silent ones, and those that replace a list that is too long."""

import threading
from dataclasses import replace

import pytest

from fixtures.fake_collector import SAMPLES, WINDOW, FakeObservatory, stored
from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_client.sample_stream import SampleStream, export_samples
from isochrone_wire.answers import Selection

ALL = Selection(window=WINDOW)


def test_a_long_list_is_streamed(observatory: FakeObservatory) -> None:
    """More samples than fit into one message are requested as a stream and give the same list."""
    with ObservatoryClient(observatory.address) as client:
        assert set(client.list_samples(ALL, limit=5_000)) == set(SAMPLES)
        assert len(client.list_samples(replace(ALL, regions=("us-east-2",)), limit=2)) == 2
    assert [type(request).__name__ for request in observatory.requests] == [
        "ExportSamplesRequest",
        "ListSamplesRequest",
    ]


def test_a_silent_stream_times_out(observatory: FakeObservatory) -> None:
    """A collector that sends nothing within the timeout counts as lost, even if the connection looks healthy."""
    observatory.released = threading.Event()
    with ObservatoryClient(observatory.address, timeout_us=300_000) as client, pytest.raises(SlowError):
        next(client.follow_samples(ALL))
    observatory.released.set()


def test_an_export_resumes_where_it_broke(observatory: FakeObservatory) -> None:
    """After a break each sample is exported once, even in the round of the break, and the break is reported."""
    twins = [stored(3, ttft_us=number) for number in range(3)]
    observatory.samples = (stored(5), *twins, stored(2), stored(1))
    observatory.breaking = True
    reports: list[str] = []
    with ObservatoryClient(observatory.address) as client:
        rows = [row for batch in export_samples(client, ALL, report=reports.append) for row in batch]
    assert len(rows) == 6
    assert set(rows) == set(observatory.samples)
    assert len(reports) == 1
    assert "cut off" in reports[0]
    again = observatory.requests[-1].selection.window
    assert again.from_at == twins[0].sample.round_at


def test_an_export_that_never_started_fails(observatory: FakeObservatory) -> None:
    """An export that received nothing cannot be resumed."""
    with ObservatoryClient("127.0.0.1:1") as client, pytest.raises(UnreachableError):
        next(export_samples(client, ALL, report=pytest.fail))
    assert observatory.requests == []


def test_following_starts_with_the_newest(observatory: FakeObservatory) -> None:
    """The stream starts with the newest samples, as many as requested, and does not repeat them."""
    with ObservatoryClient(observatory.address) as client:
        batches = SampleStream(client, ALL, report=pytest.fail).samples(limit=2)
        assert set(next(batches)) == set(SAMPLES[:2])
        new = stored(0, ttft_us=77)
        observatory.samples = (*SAMPLES, new)
        assert next(batches) == (new,)


def test_following_an_absent_collector_fails() -> None:
    """At the start an absent collector is an error; the stream does not wait for it."""
    with ObservatoryClient("127.0.0.1:1") as client, pytest.raises(UnreachableError):
        next(SampleStream(client, ALL, report=pytest.fail).samples(limit=1))
