"""Streams of samples that break, fall silent, or are there because a list would be too long."""

import threading
from dataclasses import replace

import pytest

from fix_observatory import SAMPLES, WINDOW, FakeObservatory, stored
from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_client.export.pager import harvested
from isochrone_client.sample_stream import Following
from isochrone_wire.answers import Selection

ALL = Selection(window=WINDOW)


def test_a_long_list_comes_in_portions(observatory: FakeObservatory) -> None:
    """More samples than one message surely holds are asked for as a stream, and are the same list."""
    with ObservatoryClient(observatory.address) as client:
        assert set(client.list_samples(ALL, limit=5_000)) == set(SAMPLES)
        assert len(client.list_samples(replace(ALL, regions=("us-east-2",)), limit=2)) == 2
    assert [type(request).__name__ for request in observatory.asked] == ["ExportSamplesRequest", "ListSamplesRequest"]


def test_a_silent_stream_is_given_up(observatory: FakeObservatory) -> None:
    """A collector that sends no portion in time is away, however healthy the connection looks."""
    observatory.released = threading.Event()
    with ObservatoryClient(observatory.address, timeout_us=300_000) as client, pytest.raises(SlowError):
        next(client.follow_samples(ALL))
    observatory.released.set()


def test_an_export_goes_on_where_it_broke(observatory: FakeObservatory) -> None:
    """After a break every sample is there once, those of the round at the break too, and the reader is told."""
    twins = [stored(3, ttft_us=number) for number in range(3)]
    observatory.samples = (stored(5), *twins, stored(2), stored(1))
    observatory.breaking = True
    told: list[str] = []
    with ObservatoryClient(observatory.address) as client:
        rows = [row for portion in harvested(client, ALL, tell=told.append) for row in portion]
    assert len(rows) == 6
    assert set(rows) == set(observatory.samples)
    assert len(told) == 1
    assert "cut off" in told[0]
    again = observatory.asked[-1].selection.window
    assert again.from_at == twins[0].sample.round_at


def test_an_export_that_never_began_fails(observatory: FakeObservatory) -> None:
    """Where nothing came at all there is nothing to go on with."""
    with ObservatoryClient("127.0.0.1:1") as client, pytest.raises(UnreachableError):
        next(harvested(client, ALL, tell=pytest.fail))
    assert observatory.asked == []


def test_following_starts_with_the_newest(observatory: FakeObservatory) -> None:
    """First come the newest samples, as many as asked for, and then nothing that was among them."""
    with ObservatoryClient(observatory.address) as client:
        portions = Following(client, ALL, tell=pytest.fail).samples(limit=2)
        assert set(next(portions)) == set(SAMPLES[:2])
        new = stored(0, ttft_us=77)
        observatory.samples = (*SAMPLES, new)
        assert next(portions) == (new,)


def test_following_what_is_not_there_fails() -> None:
    """At the beginning an absent collector is an error, not something to wait for."""
    with ObservatoryClient("127.0.0.1:1") as client, pytest.raises(UnreachableError):
        next(Following(client, ALL, tell=pytest.fail).samples(limit=1))
