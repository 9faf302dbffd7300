"""Latency targets of pushed samples, checked by hand."""

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

from fixtures.collector import KEEP_A_MONTH, Caller, Collector, StartCollector
from fixtures.postgres import opened
from isochrone_collector.jobs.rollup import Rollup
from isochrone_collector.store import partitions
from isochrone_wire.answers import Metric, Selection, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import LatencyBudget
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Batch, Outcome, Quality, Sample, Vantage, day_of

MS = 1_000
US, SG = "us-east-2", "ap-southeast-1"
NAMES = ("fast", "failing", "hanging", "refusing", "young", "daily", "speedy", "odd")
PLAN = "baseline: us-east-2\nevery: 10s\ntargets:\n" + "".join(
    f"  - {{provider: p, model: {name}, base_url: 'http://h'}}\n" for name in NAMES
)
ANSWER = Sample(
    target_id=0,
    round_at=0,
    dispatched_at=0,
    outcome=Outcome.OK,
    ttft_us=100 * MS,
    ttfat_us=100 * MS,
    e2e_us=2_100 * MS,
    tokens_per_second=100.0,
    prompt_tokens=20,
    output_tokens=201,
    first_chunk_tokens=1,
)
FAILURE = replace(ANSWER, outcome=Outcome.HTTP_ERROR, ttft_us=None, ttfat_us=None, e2e_us=None, tokens_per_second=None)
TIMEOUT = replace(FAILURE, outcome=Outcome.TIMED_OUT, timeout_us=60 * SECOND_US)
BEHIND = replace(FAILURE, outcome=Outcome.TIMED_OUT, timeout_us=50 * SECOND_US)
THROTTLED = replace(FAILURE, outcome=Outcome.THROTTLED)
PAUSED = replace(FAILURE, outcome=Outcome.SKIPPED_PAUSED)


class World:
    """Rounds of several targets up to now, one every ten seconds, from one vantage."""

    def __init__(self, call: Caller) -> None:
        self.call = call
        self.until_at = time.time_ns() // 1000
        call.apply(PLAN)
        self._ids = {target.model: target.id for target in call.targets().targets}
        self._seq = 0
        self.push("fast", [ANSWER] * 100)
        self.push("fast", [replace(ANSWER, ttft_us=250 * MS)] * 100, region=SG)
        self.push("failing", [FAILURE if 41 * place % 100 < 41 else ANSWER for place in range(100)])
        self.push("hanging", ([ANSWER] * 50 + [TIMEOUT] + [BEHIND] * 9) * 6)
        self.push("refusing", [*([ANSWER] * 5), THROTTLED] * 20 + [PAUSED] * 30)
        self.push("young", [ANSWER] * 3)

    def push(self, model: str, samples: Iterable[Sample], *, region: str = US, every_us: int = 10 * SECOND_US) -> None:
        """Push samples of a target, the last one of the newest round."""
        listed = list(samples)
        rounds = range(self.until_at - len(listed) * every_us, self.until_at, every_us)
        placed = [
            replace(sample, target_id=self._ids[model], round_at=at, dispatched_at=at)
            for sample, at in zip(listed, rounds, strict=True)
        ]
        self._seq += 1
        batch = Batch(vantage=Vantage(name=f"{region}-1", region=region), epoch=1, seq=self._seq, samples=tuple(placed))
        receipt = self.call.push(batch)
        assert receipt.stored == len(placed), receipt

    def select(self, *models: str, regions: tuple[str, ...] = (US,), days: int = 1) -> Selection:
        window = Window(from_at=self.until_at - days * DAY_US, until_at=self.until_at + MINUTE_US)
        return Selection(window=window, regions=regions, targets=tuple(f"p/{model}" for model in models))

    def one(self, model: str, use: str = "voice", **more: Any) -> LatencyBudget:
        uses = () if more.get("limit_us") else (use,)
        (line,) = self.call.latency_budgets(self.select(model), *uses, **more)
        return line


@pytest.fixture(scope="module")
def world(shared_collector: Collector) -> World:
    """A world that tests only add targets to."""
    return World(shared_collector.call)


def test_every_use_is_decided(world: World) -> None:
    """Each target and region has a line per use, or selected use, in the order of limits; the answer has its own."""
    lines = world.call.latency_budgets(world.select("fast", regions=(US, SG)))
    verdicts = {(line.region, line.use): line.eligible.value for line in lines}
    assert len(verdicts) == 18
    assert [verdicts[region, "translation"] for region in (US, SG)] == ["unknown", "no"]
    assert [verdicts[US, use] for use in ("inline", "step", "agent")] == ["no", "unknown", "unknown"]
    lines = world.call.latency_budgets(world.select("fast"), "code", "voice")
    assert [(line.use, line.metric) for line in lines] == [("voice", Metric.TTFT), ("code", Metric.TTFT)]


def test_a_target_that_fails_is_not_fast_enough(world: World) -> None:
    """Of 100 requests 41 failed at once: the goodput is 59 %, the verdict no, and the reason names the failures."""
    line = world.one("failing")
    assert (line.goodput and line.goodput.value, line.eligible.value, line.n) == (0.59, "no", 100)
    assert line.reason == "41 of 100 requests failed"


def test_a_hang_counts_for_as_long_as_it_lasts(world: World) -> None:
    """A hang of 100 s in every 600 s is 16.7 % of the requests, though only one of them in ten was sent."""
    line = world.one("hanging", "agent")
    assert line.goodput is not None
    assert 1 - line.goodput.value == pytest.approx(1 / 6)
    assert (line.n, line.eligible.value) == (360, "no")


def test_refusals_are_not_answers_and_pauses_are_no_requests(world: World) -> None:
    """A throttled request was not answered, an unsent one is none, and below 59 there is no verdict."""
    line = world.one("refusing")
    assert (line.n, line.goodput and line.goodput.value) == (120, 100 / 120)
    assert line.reason == "20 of 120 requests were throttled"
    line = world.one("young")
    assert (line.eligible.value, line.n, line.reason) == ("unknown", 3, "3 of 59 samples")


def test_hours_of_the_day(world: World) -> None:
    """A target that is slow in one hour of each day has a line that shows it, in the rows by hour."""
    hours = 3 * 24
    first = (world.until_at - hours * HOUR_US) % DAY_US // HOUR_US
    slow = replace(ANSWER, ttft_us=900 * MS)
    for n in range(20):
        spread = [slow if (first + hour) % 24 == 7 else ANSWER for hour in range(hours)]
        world.push("daily", spread, region=f"r{n}", every_us=HOUR_US)
    lines = world.call.latency_budgets(world.select("daily", regions=("r0", "r1"), days=4), "voice", by="hour")
    share = {(line.region, line.hour): line.goodput and line.goodput.value for line in lines}
    assert len(share) == 48
    assert {key for key, value in share.items() if value == 0} == {("r0", 7), ("r1", 7)}
    whole = world.call.latency_budgets(world.select("daily", regions=("r0",), days=4), "voice")
    assert [(line.hour, line.n) for line in whole] == [(None, hours)]


@pytest.mark.parametrize(
    ("tokens", "expected_ms"),
    [(1, 100), (201, 2_100), (501, 5_100)],
)
def test_an_answer_of_another_length(world: World, tokens: int, expected_ms: int) -> None:
    """e2e(N) = ttft + (N - tokens of the first chunk) / speed; for the measured length it is the measured time."""
    line = world.one("fast", answer=tokens, limit_us=5 * SECOND_US)
    assert (line.metric, line.answer_tokens, line.use) == (Metric.E2E, tokens, "limit")
    assert line.quantile is not None
    assert line.quantile.value == pytest.approx(expected_ms * MS)
    assert line.eligible.value == ("unknown" if expected_ms <= 5_000 else "no")


def test_the_estimate_is_per_request(world: World) -> None:
    """Where fast first tokens go with slow streams, the p95 of e2e(N) is not that of the two percentiles."""
    early_and_slow = replace(ANSWER, ttft_us=100 * MS, ttfat_us=100 * MS, tokens_per_second=50.0)
    late_and_fast = replace(ANSWER, ttft_us=2_100 * MS, ttfat_us=2_100 * MS, tokens_per_second=100.0)
    world.push("speedy", [early_and_slow, late_and_fast] * 50)
    line = world.one("speedy", answer=201, limit_us=5 * SECOND_US)
    assert line.quantile is not None
    assert line.quantile.value == pytest.approx(4_100 * MS)


def test_a_floor_on_speed(world: World) -> None:
    """With a floor, requests below it are too slow, whatever their first token."""
    line = world.one("fast", min_speed=101.0)
    assert (line.goodput and line.goodput.value, line.min_tokens_per_second) == (0.0, 101.0)
    kept = world.one("fast", min_speed=100.0)
    assert (kept.goodput and kept.goodput.value, kept.eligible.value) == (1.0, "unknown")


def test_durations_that_are_not_the_models_are_left_out(world: World) -> None:
    """Answers from a cache, and those during a step of the clock, are successes without a duration."""
    cached = replace(ANSWER, ttft_us=1 * MS, quality=Quality.CACHED, cached_tokens=16)
    barely = replace(ANSWER, quality=Quality.CACHED, cached_tokens=3)
    stepped = replace(ANSWER, ttft_us=1 * MS, quality=Quality.CLOCK_STEPPED)
    stopped = replace(ANSWER, outcome=Outcome.SKIPPED_NOT_READY, timeout_us=1 * SECOND_US)
    world.push("odd", [ANSWER] * 60 + [cached] * 60 + [barely] * 10 + [stepped] * 20 + [stopped] * 5)
    line = world.one("odd")
    assert (line.n, line.quantile and line.quantile.value) == (70, 100 * MS)
    (standing,) = world.call.leaderboard(world.select("odd")).standings
    assert standing.ttft_p50_us is not None
    assert (standing.ttft_p50_us.value, standing.failed) == (100 * MS, 0)


@pytest.mark.parametrize(
    ("uses", "more", "code", "said"),
    [
        (("voise",), {}, "NOT_FOUND", "did you mean 'voice'?"),
        (("voice",), {"by": "hours"}, "INVALID_ARGUMENT", "did you mean 'hour'?"),
        (("voice",), {"limit_us": SECOND_US}, "INVALID_ARGUMENT", "name either"),
        ((), {"answer": -1}, "INVALID_ARGUMENT", "answer: '-1' is not a whole number"),
        ((), {"min_speed": -1.0}, "INVALID_ARGUMENT", "'-1.0' is not a positive number"),
        ((), {"min_speed": float("nan")}, "INVALID_ARGUMENT", "'nan' is not a positive number"),
        ((), {"limit_us": -1}, "INVALID_ARGUMENT", "is not a number of seconds"),
    ],
)
def test_bad_requests_fail(world: World, uses: tuple[str, ...], more: dict[str, Any], code: str, said: str) -> None:
    """The error names the value and, for a name, the most similar one."""
    with pytest.raises(grpc.RpcError) as refused:
        world.call.latency_budgets(world.select("fast"), *uses, **more)
    error: Any = refused.value
    assert (error.code().name, said in error.details()) == (code, True)


async def test_deleted_samples_have_no_hours(start_collector: StartCollector) -> None:
    """Hours of a window whose samples were deleted are refused, with the way out; with samples, any length has them."""
    running = start_collector(more=KEEP_A_MONTH)
    world = World(running.call)
    world.push("daily", [ANSWER] * 60, every_us=3 * HOUR_US)
    long = world.select("daily", days=9)
    assert {line.hour is None for line in world.call.latency_budgets(long, "voice", by="hour")} == {False}
    async with opened(running.database_url) as database:
        await Rollup(database=database, clock=lambda: world.until_at + DAY_US).run()
        await partitions.retire(database, before_at=day_of(world.until_at) - 3 * DAY_US)
    with pytest.raises(grpc.RpcError) as refused:
        world.call.latency_budgets(long, "voice", by="hour")
    error: Any = refused.value
    kept = datetime.fromtimestamp((day_of(world.until_at) - 3 * DAY_US) / SECOND_US, UTC).date()
    assert (error.code().name, f"choose a window from {kept} on" in error.details()) == ("INVALID_ARGUMENT", True)
    assert [line.hour for line in world.call.latency_budgets(long, "voice")] == [None]
