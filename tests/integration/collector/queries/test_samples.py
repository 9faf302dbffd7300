"""Single samples over gRPC: pages of all of them, answers that are too large, and following."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from fixtures.collector import Collector
from isochrone_wire import codec
from isochrone_wire.answers import Selection, Window
from isochrone_wire.fleet import SampleList
from isochrone_wire.model import SECOND_US, Batch, Outcome, Sample, Vantage
from isochrone_wire.v1 import observatory_pb2

PLAN = """\
baseline: us-east-2
every: 1s
targets:
  - {model: a, provider: sim, base_url: http://h}
  - {model: b, provider: sim, base_url: http://h}
"""
LONG = "x" * 500
WAIT = 20.0


class Place:
    """A collector, and an unused batch number."""

    def __init__(self, collector: Collector) -> None:
        self.call = collector.call
        self.seq = 0
        self.call.apply(PLAN)
        self.targets = {target.name: target.id for target in self.call.targets().targets}

    def push(self, vantage: str, *samples: Sample) -> None:
        """Store samples of a vantage in a region of its own name."""
        self.seq += 1
        batch = Batch(vantage=Vantage(name=f"{vantage}-1", region=vantage), epoch=9, seq=self.seq, samples=samples)
        assert self.call.push(batch).stored == len(samples)

    def sample(self, at: int, target: str = "sim/a", **more: Any) -> Sample:
        """A sample of a round."""
        return Sample(target_id=self.targets[target], round_at=at, outcome=Outcome.OK, dispatched_at=at, **more)

    def portions(self, method: Any, request: Any) -> Iterator[SampleList]:
        """The portions of a stream."""
        for response in method(request, timeout=WAIT):
            yield codec.decode(SampleList, response)

    def export(self, selection: Selection, **more: Any) -> list[SampleList]:
        """A whole export."""
        request = observatory_pb2.ExportSamplesRequest(selection=codec.encode(selection), **more)
        return list(self.portions(self.call.observatory.ExportSamples, request))


@pytest.fixture(scope="module")
def place(shared_collector: Collector) -> Place:
    """A collector shared by the tests of this module, each with its own rounds or regions."""
    return Place(shared_collector)


def hours_ago(hours: float) -> int:
    """An instant before now."""
    return time.time_ns() // 1000 - int(hours * 3600) * SECOND_US


def test_an_export_has_every_sample_once_in_order(place: Place) -> None:
    """Dense and empty stretches, two targets in one round, bursts: all come, oldest round first, in portions."""
    start_at = hours_ago(30)
    dense = [place.sample(start_at + number // 2, ("sim/a", "sim/b")[number % 2]) for number in range(4_100)]
    burst = [place.sample(start_at + 9 * 3600 * SECOND_US, ttft_us=number) for number in range(7)]
    for part in (dense[:3_000], dense[3_000:], burst):
        place.push("dense", *part)
    portions = place.export(Selection(window=Window(from_at=start_at, until_at=hours_ago(20)), regions=("dense",)))
    rows = [row.sample for portion in portions for row in portion.samples]
    assert len(rows) == len(set(rows)) == 4_107
    assert set(rows) == {*dense, *burst}
    assert [row.round_at for row in rows] == sorted(row.round_at for row in rows)
    assert max(len(portion.samples) for portion in portions) <= 500


def test_an_export_of_the_newest_is_the_list(place: Place) -> None:
    """`newest` returns in portions what ListSamples returns at once."""
    start_at = hours_ago(40)
    place.push("newest", *(place.sample(start_at + number) for number in range(600)))
    selection = Selection(window=Window(from_at=start_at, until_at=hours_ago(39)), regions=("newest",))
    portions = place.export(selection, newest=400)
    assert [row for portion in portions for row in portion.samples] == place.call.samples(selection, limit=400)
    assert len(portions) > 1


def test_what_is_too_large_for_a_message_is_refused_in_words(place: Place) -> None:
    """Thousands of samples with long texts exceed one message: the error states it, and a stream has them all."""
    start_at = hours_ago(50)
    told = {"error": LONG, "request_id": LONG[:200], "edge": LONG[:200]}
    rows = [place.sample(start_at + number, **told) for number in range(9_000)]
    for first in range(0, len(rows), 3_000):
        place.push("long", *rows[first : first + 3_000])
    selection = Selection(window=Window(from_at=start_at, until_at=hours_ago(49)), regions=("long",))
    with pytest.raises(grpc.RpcError) as refused:
        place.call.samples(selection, limit=10_000)
    error: Any = refused.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "do not fit into one message" in error.details()
    assert sum(len(portion.samples) for portion in place.export(selection, newest=10_000)) == 9_000


def test_a_refusal_of_a_stream_is_a_sentence(place: Place) -> None:
    """An unknown region ends a stream with the same error as any other query."""
    window = Window(from_at=0, until_at=1)
    for method, request in (
        (place.call.observatory.ExportSamples, observatory_pb2.ExportSamplesRequest),
        (place.call.observatory.FollowSamples, observatory_pb2.FollowSamplesRequest),
    ):
        asked = request(selection=codec.encode(Selection(window=window, regions=("mars",))))
        with pytest.raises(grpc.RpcError, match="unknown region 'mars'"):
            list(place.portions(method, asked))


def test_following_returns_only_new_samples(place: Place) -> None:
    """Following returns only new samples of the selection, each once, late rounds included."""
    now_at = hours_ago(0)
    place.push("followed", place.sample(now_at))
    place.push("other", place.sample(now_at))
    selection = Selection(window=Window(from_at=0, until_at=1), regions=("followed",), targets=("sim/a",))
    request = observatory_pb2.FollowSamplesRequest(selection=codec.encode(selection))
    portions = place.portions(place.call.observatory.FollowSamples, request)
    assert next(portions).samples == ()
    new, late = place.sample(now_at + 1), place.sample(hours_ago(100))
    place.push("other", place.sample(now_at + 2))
    place.push("followed", new, late, place.sample(now_at, "sim/b"))
    told = next(portions)
    assert {row.sample for row in told.samples} == {new, late}
    assert told.resume_at <= told.samples[0].received_at
    last = place.sample(now_at + 3)
    place.push("followed", last)
    assert [row.sample for row in next(portions).samples] == [last]


def test_resuming_misses_nothing(place: Place) -> None:
    """Resuming from a portion's `resume_at` repeats what came before the interruption and adds what came since."""
    now_at = hours_ago(0)
    place.push("resumed", place.sample(now_at))
    selection = Selection(window=Window(from_at=0, until_at=1), regions=("resumed",))
    asked = observatory_pb2.FollowSamplesRequest(selection=codec.encode(selection))
    first = place.portions(place.call.observatory.FollowSamples, asked)
    start_at = next(first).resume_at
    rows = [place.sample(now_at + number) for number in range(1, 4)]
    place.push("resumed", rows[0])
    told = next(first)
    place.push("resumed", rows[1])
    asked.since_at = told.resume_at
    assert told.resume_at >= start_at
    again = place.portions(place.call.observatory.FollowSamples, asked)
    assert [row.sample for row in next(again).samples] == rows[:2]
    place.push("resumed", rows[2])
    assert [row.sample for row in next(again).samples] == rows[2:]


def test_following_from_long_ago_is_refused(place: Place) -> None:
    """Following from long ago is refused, with a hint to export older samples."""
    selection = codec.encode(Selection(window=Window(from_at=0, until_at=1)))
    asked = observatory_pb2.FollowSamplesRequest(selection=selection, since_at=hours_ago(24 * 9))
    with pytest.raises(grpc.RpcError, match="export older samples"):
        list(place.portions(place.call.observatory.FollowSamples, asked))


def test_following_does_not_hold_a_connection(place: Place) -> None:
    """More followers than pool connections leave room for pushes and queries."""
    selection = Selection(window=Window(from_at=0, until_at=1), regions=("crowd",))
    place.push("crowd", place.sample(hours_ago(0)))
    asked = observatory_pb2.FollowSamplesRequest(selection=codec.encode(selection))
    streams = [place.portions(place.call.observatory.FollowSamples, asked) for _ in range(12)]
    for stream in streams:
        assert next(stream).samples == ()
    sample = place.sample(hours_ago(0))
    place.push("crowd", sample)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda one=one: found.append(next(one).samples[0].sample)) for one in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert found == [sample] * 12
