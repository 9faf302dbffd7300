"""Single samples: pages of all of them, and following."""

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from fixtures.collector import Collector
from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from isochrone_client.client import ReadClient
from isochrone_client.errors import ClientError
from isochrone_collector.queries import samples
from isochrone_collector.queries.context import QueryContext
from isochrone_wire.answers import Selection, Window
from isochrone_wire.fleet import SampleList, StoredSample
from isochrone_wire.model import MINUTE_US, SECOND_US, Batch, Outcome, Sample, Vantage

PLAN = """\
baseline: us-east-2
every: 1s
targets:
  - {model: a, provider: sim, base_url: http://h}
  - {model: b, provider: sim, base_url: http://h}
"""
WAIT = 20.0


class Place:
    def __init__(self, collector: Collector) -> None:
        self.call = collector.call
        self.client = ReadClient(collector.http_address)
        self.seq = 0
        self.call.apply(PLAN)
        self.targets = {target.name: target.id for target in self.call.targets().targets}

    def push(self, vantage: str, *samples: Sample) -> None:
        self.seq += 1
        batch = Batch(vantage=Vantage(name=f"{vantage}-1", region=vantage), epoch=9, seq=self.seq, samples=samples)
        assert self.call.push(batch).stored == len(samples)

    def sample(self, at: int, target: str = "sim/a", **more: Any) -> Sample:
        return Sample(target_id=self.targets[target], round_at=at, outcome=Outcome.OK, dispatched_at=at, **more)

    def export(self, selection: Selection, **more: Any) -> list[StoredSample]:
        return [row for portion in self.client.export_samples(selection, **more) for row in portion]

    def follow(self, selection: Selection, since_at: int = 0) -> Iterator[SampleList]:
        """New samples in portions."""
        return self.client.follow_samples(selection, since_at=since_at)


@pytest.fixture(scope="module")
def place(shared_collector: Collector) -> Iterator[Place]:
    """A collector shared by the tests of this module, each with its own rounds or regions."""
    place = Place(shared_collector)
    yield place
    place.client.close()


def hours_ago(hours: float) -> int:
    return time.time_ns() // 1000 - int(hours * 3600) * SECOND_US


def test_an_export_has_every_sample_once_in_order(place: Place) -> None:
    """An export has every sample once, oldest first, and `newest` what the list returns."""
    start_at = hours_ago(30)
    dense = [place.sample(start_at + number // 2, ("sim/a", "sim/b")[number % 2]) for number in range(4_100)]
    burst = [place.sample(start_at + 9 * 3600 * SECOND_US, ttft_us=number) for number in range(7)]
    for part in (dense[:3_000], dense[3_000:], burst):
        place.push("dense", *part)
    selection = Selection(window=Window(from_at=start_at, until_at=hours_ago(20)), regions=("dense",))
    rows = [row.sample for row in place.export(selection)]
    assert len(rows) == len(set(rows)) == 4_107
    assert set(rows) == {*dense, *burst}
    assert [row.round_at for row in rows] == sorted(row.round_at for row in rows)
    start_at = hours_ago(40)
    place.push("newest", *(place.sample(start_at + number) for number in range(600)))
    selection = Selection(window=Window(from_at=start_at, until_at=hours_ago(39)), regions=("newest",))
    assert place.export(selection, newest=400) == place.call.samples(selection, limit=400)


def test_following_returns_only_new_samples(place: Place) -> None:
    """Following returns only new samples of the selection, each once, late rounds included."""
    now_at = hours_ago(0)
    place.push("followed", place.sample(now_at))
    place.push("other", place.sample(now_at))
    selection = Selection(window=Window(from_at=0, until_at=1), regions=("followed",), targets=("sim/a",))
    portions = place.follow(selection)
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
    first = place.follow(selection)
    start_at = next(first).resume_at
    rows = [place.sample(now_at + number) for number in range(1, 4)]
    place.push("resumed", rows[0])
    told = next(first)
    place.push("resumed", rows[1])
    assert told.resume_at >= start_at
    again = place.follow(selection, told.resume_at)
    assert [row.sample for row in next(again).samples] == rows[:2]
    place.push("resumed", rows[2])
    assert [row.sample for row in next(again).samples] == rows[2:]


@pytest.mark.parametrize("ahead_us", [-4 * MINUTE_US, -90 * SECOND_US, 4 * MINUTE_US])
async def test_following_ignores_the_clocks_of_collectors(local: InProcessCollector, ahead_us: int) -> None:
    """A collector whose clock is minutes off stores samples; they are followed once, and so is what comes later."""
    await local.begin(DAY_AT)
    context = QueryContext(database=local.database, plans=local.plans, clock=local.clock)
    vantage, selection = Vantage(name="us-1", region="us"), Selection(window=Window(from_at=0, until_at=1))
    async with aclosing(samples.follow(context, selection)) as portions:
        assert (await anext(portions)).samples == ()
        for number in range(3):
            local.clock.at += ahead_us
            await local.push(vantage, [local.sample(DAY_AT + number)])
            local.clock.at -= ahead_us
            async with asyncio.timeout(WAIT):
                told = await anext(portions)
            assert [row.sample.round_at for row in told.samples] == [DAY_AT + number]
            assert told.resume_at == DAY_AT


def test_following_does_not_hold_a_connection(place: Place) -> None:
    """More followers than pool connections leave room for pushes and queries."""
    selection = Selection(window=Window(from_at=0, until_at=1), regions=("crowd",))
    place.push("crowd", place.sample(hours_ago(0)))
    streams = [place.follow(selection) for _ in range(12)]
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


FILTERED: dict[str, dict[str, Any]] = {
    "fast": {"ttft_us": 200_000, "http_status": 200, "tcp_us": 4_000},
    "slow": {"ttft_us": 700_000, "http_status": 200},
    "late": {"outcome": Outcome.TIMED_OUT, "error": "no byte after 60 s, 100 %"},
    "lost": {"outcome": Outcome.HTTP_ERROR, "http_status": 503, "error": "upstream_reset, try again"},
}
ALL = set(FILTERED)


@pytest.fixture(scope="module")
def filtered(place: Place) -> Selection:
    """Four samples of `sim/a` from one region, which their index names, and one of `sim/b` from another."""
    start_at = hours_ago(60)
    for number, more in enumerate(FILTERED.values()):
        place.push("filter-eu", replace(place.sample(start_at + number), **more))
    place.push("filter-us", place.sample(start_at, "sim/b", ttft_us=1))
    return Selection(window=Window(from_at=start_at, until_at=hours_ago(59)), regions=("filter-eu", "filter-us"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", {*ALL, "other"}),
        ("ttft>500", {"slow"}),
        ("ttft>=200", {"fast", "slow"}),
        ("ttft<0.5s", {"fast", "other"}),
        ("ttft:700000us", {"slow"}),
        ("-ttft>500", {*ALL - {"slow"}, "other"}),
        ("connect<5", {"fast"}),
        ("http_status>=500", {"lost"}),
        ("outcome:timed_out", {"late"}),
        ("outcome:timed_out,http*", {"late", "lost"}),
        ("-outcome:ok", {"late", "lost"}),
        ("outcome:ok ttft<300 target:a", {"fast"}),
        ("region:filter-u*", {"other"}),
        ("-target:sim/a", {"other"}),
        ("vantage:FILTER-us-?", {"other"}),
        ('error:"*100 %*"', {"late"}),
        ('error:"upstream?reset, *"', {"lost"}),
        ("error:upstreamXreset*", set()),
        ("-error:*reset*", {*ALL - {"lost"}, "other"}),
    ],
)
def test_a_filter_selects_samples(place: Place, filtered: Selection, text: str, names: set[str]) -> None:
    """Every word holds of each sample; a list, an export and its newest ones agree."""
    start_at = filtered.window.from_at
    known = {(start_at + number, "sim/a"): name for number, name in enumerate(FILTERED)} | {
        (start_at, "sim/b"): "other"
    }

    def named(rows: Iterable[StoredSample]) -> set[str]:
        return {known[row.sample.round_at, row.target] for row in rows}

    assert named(place.client.list_samples(filtered, limit=10, matching=text)) == names
    assert named(place.export(filtered, matching=text)) == names
    assert named(place.export(filtered, newest=10, matching=text)) == names


def test_following_passes_a_filter(place: Place) -> None:
    """Only new samples that pass it are sent; a wrong one is refused at once."""
    now_at = hours_ago(0)
    selection = Selection(window=Window(from_at=0, until_at=1))
    place.push("passing", place.sample(now_at))
    portions = place.client.follow_samples(selection, matching="region:passing ttft>1")
    assert next(portions).samples == ()
    new = place.sample(now_at + 1, ttft_us=2_000)
    place.push("passing", place.sample(now_at + 2, ttft_us=500), new)
    assert [row.sample for row in next(portions).samples] == [new]
    with pytest.raises(ClientError, match="filter, character 1: unknown field 'tfft'"):
        next(place.client.follow_samples(selection, matching="tfft>1"))
