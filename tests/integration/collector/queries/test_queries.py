"""Queries over pushed samples, checked against results worked out by hand."""

import time
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import grpc
import pytest

from fixtures.collector import KEEP_A_MONTH, Caller, Collector, StartCollector
from isochrone_wire.answers import Decision, Metric, Selection, Window
from isochrone_wire.model import SECOND_US, Batch, Outcome, Sample, Vantage

MS = 1_000
PLAN = """\
baseline: us-east-2
every: 10s
targets:
  - {model: a, provider: sim, base_url: http://h, price: {usd_per_m_output: 2.5}}
  - {model: b, provider: sim, base_url: http://h}
"""
US = Vantage(name="us-1", region="us-east-2")
SG = Vantage(name="sg-1", region="ap-southeast-1")
FULL: dict[str, Any] = {
    "dns_us": 1,
    "tls_us": 3,
    "ttft_us": 10,
    "ttfat_us": 12,
    "e2e_us": 99,
    "tokens_per_second": 7.5,
    "rtt_us": 4,
}


@dataclass
class World:
    """A collector with a plan, and a short way to push samples of past rounds."""

    call: Caller
    start_at: int
    epoch: int
    seq: int = 0

    def target(self, name: str) -> int:
        return next(target.id for target in self.call.targets().targets if target.name == name)

    def sample(self, round_number: int, target: str = "sim/a", **fields: Any) -> Sample:
        round_at = self.start_at + round_number * 10 * SECOND_US
        plain = Sample(target_id=self.target(target), round_at=round_at, outcome=Outcome.OK, dispatched_at=round_at)
        return replace(plain, **fields)

    def push(self, vantage: Vantage, *samples: Sample) -> None:
        self.seq += 1
        receipt = self.call.push(Batch(vantage=vantage, epoch=self.epoch, seq=self.seq, samples=samples))
        assert receipt.stored == len(samples), receipt

    def select(self, **fields: Any) -> Selection:
        window = Window(from_at=self.start_at, until_at=self.start_at + 1_260 * SECOND_US)
        return Selection(window=window, **fields)


NUMBERS = count()


def a_world(collector: Collector) -> World:
    """Twenty minutes of rounds, which no other world has."""
    collector.call.apply(PLAN)
    number = next(NUMBERS)
    start_at = time.time_ns() // 1000 - (1_200 + 3_600 * number) * SECOND_US
    return World(call=collector.call, start_at=start_at, epoch=5 + number)


@pytest.fixture
def world(shared_collector: Collector) -> World:
    """Twenty minutes of rounds to fill, in a collector that other tests use too."""
    return a_world(shared_collector)


@pytest.fixture(scope="module")
def asked(shared_collector: Collector) -> World:
    """A read-only world: one full sample in each of two regions."""
    shared = a_world(shared_collector)
    for vantage in (US, SG):
        shared.push(vantage, shared.sample(0, **FULL))
    return shared


def refusal(call: Any, *arguments: Any, **more: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call(*arguments, **more)
    error: Any = refused.value
    return error.code(), error.details()


def test_a_differential_worked_out_by_hand(world: World) -> None:
    """Six rounds 30 to 80 ms slower: 55 ms in a wider interval; unpaired rounds do not count, six decide nothing."""
    world.push(US, *(world.sample(n, ttft_us=(100 + n) * MS) for n in range(6)))
    later = (0, 40, 20, 50, 10, 30)
    world.push(SG, *(world.sample(n, ttft_us=(130 + n + later[n]) * MS) for n in range(6)))
    world.push(SG, *(world.sample(n, ttft_us=9_000 * MS) for n in range(20, 40)))
    found = {line.target: line for line in world.call.differentials(world.select(), metric="ttft")}
    line = found["sim/a"]
    assert line.shift == 55.0 * MS
    assert line.shift_low is not None
    assert line.shift_low < 30 * MS
    assert (line.baseline_median, line.region_median) == (102.5 * MS, 158.5 * MS)
    assert (line.n, line.baseline_n, line.region_n) == (6, 6, 26)
    assert (line.baseline, line.region, line.decision) == ("us-east-2", "ap-southeast-1", Decision.UNDECIDED)
    assert line.reason.endswith("; 6 of 24 rounds needed")
    assert line.newest_at == world.start_at + 50 * SECOND_US
    assert (found["sim/b"].decision, found["sim/b"].reason) == (Decision.UNDECIDED, "no ttft from us-east-2")


def test_vantages_of_a_region_are_pooled(world: World) -> None:
    """A region's value in a round is the median of its samples there."""
    second = Vantage(name="us-2", region="us-east-2")
    world.push(US, *(world.sample(n, ttft_us=100 * MS) for n in range(6)))
    world.push(second, *(world.sample(n, ttft_us=300 * MS) for n in range(6)))
    world.push(SG, *(world.sample(n, ttft_us=100 * MS) for n in range(6)))
    [line] = world.call.differentials(world.select(targets=("sim/a",)))
    assert (line.baseline_median, line.shift) == (200.0 * MS, -100.0 * MS)


def test_timeouts_count_against_who_had_them(world: World) -> None:
    """A round that timed out in one region counts with its limit; one that timed out in both is left out."""
    lost: dict[str, Any] = {"outcome": Outcome.TIMED_OUT, "timeout_us": 60 * SECOND_US}
    world.push(US, *(world.sample(n, ttft_us=100 * MS) for n in range(24)), world.sample(24, **lost))
    world.push(SG, *(world.sample(n, **lost) for n in range(25)))
    [line] = world.call.differentials(world.select(targets=("sim/a",)))
    assert (line.n, line.decision) == (24, Decision.SLOWER)
    assert line.region_median == 60.0 * SECOND_US


@pytest.mark.parametrize("metric", list(Metric))
def test_sql_and_the_model_agree(asked: World, metric: Metric) -> None:
    """SQL computes each metric of a stored sample as the model does."""
    [line] = asked.call.differentials(asked.select(targets=("sim/a",)), metric=metric.value)
    attribute = metric.value if metric is Metric.TOKENS_PER_SECOND else f"{metric.value}_us"
    assert line.baseline_median == getattr(asked.sample(0, **FULL), attribute)
    assert line.unit == metric.unit


def test_failed_probes_have_no_latency(world: World) -> None:
    """Durations of throttled, garbled, failed or skipped probes are not compared."""
    nothing = (Outcome.THROTTLED, Outcome.GARBLED, Outcome.SKIPPED_BUDGET, Outcome.HTTP_ERROR)
    world.push(US, *(world.sample(n, ttft_us=MS, outcome=outcome) for n, outcome in enumerate(nothing)))
    world.push(SG, *(world.sample(n, ttft_us=MS) for n in range(6)))
    [line] = world.call.differentials(world.select(targets=("sim/a",)))
    assert (line.baseline_n, line.region_n, line.reason) == (0, 6, "no ttft from us-east-2")


def test_samples_newest_first(world: World) -> None:
    """Samples are listed newest first, of the selected regions and targets, up to the limit."""
    world.push(US, *(world.sample(n) for n in range(5)), world.sample(9, target="sim/b"))
    world.push(SG, world.sample(7))
    everything = world.call.samples(world.select())
    rounds = [(found.sample.round_at - world.start_at) // (10 * SECOND_US) for found in everything]
    assert rounds == [9, 7, 4, 3, 2, 1, 0]
    assert len(world.call.samples(world.select(), limit=2)) == 2
    assert {found.vantage for found in world.call.samples(world.select(regions=("ap-southeast-1",)))} == {"sg-1"}
    assert {found.target for found in world.call.samples(world.select(targets=("*/b",)))} == {"sim/b"}


def test_the_window_is_half_open(world: World) -> None:
    """The window includes a round at its beginning and excludes one at its end."""
    world.push(US, *(world.sample(n) for n in range(3)))
    window = Window(from_at=world.start_at, until_at=world.start_at + 20 * SECOND_US)
    assert len(world.call.samples(Selection(window=window))) == 2


def test_a_leaderboard(world: World) -> None:
    """Targets are ranked within their region, with failures counted and the price beside them."""
    world.push(US, *(world.sample(n, ttft_us=200 * MS, tokens_per_second=50.0) for n in range(6)))
    world.push(US, *(world.sample(n, target="sim/b", ttft_us=100 * MS) for n in range(6)))
    world.push(
        US,
        world.sample(7, outcome=Outcome.HTTP_ERROR),
        world.sample(8, outcome=Outcome.THROTTLED),
        world.sample(9, outcome=Outcome.SKIPPED_OVERLAP),
    )
    first, second = world.call.leaderboard(world.select()).standings
    assert (first.target, first.rank, second.target, second.rank) == ("sim/b", 1, "sim/a", 2)
    assert (second.n, second.failed, second.usd_per_m_output) == (6, 1, 2.5)
    assert second.ttft_p50_us is not None
    # The values lie on whole milliseconds, so that the interval is at least one wide to either side.
    assert (second.ttft_p50_us.low, second.ttft_p50_us.value) == (199.0 * MS, 200.0 * MS)
    assert second.tokens_per_second_p50 is not None
    assert second.tokens_per_second_p50.value == 50.0
    assert first.tokens_per_second_p50 is None
    assert second.newest_at == world.start_at + 90 * SECOND_US


def test_coverage_counts_what_is_absent(world: World) -> None:
    """Rounds planned since the plan was applied count for every vantage and target, recorded or not."""
    world.push(US, world.sample(0), world.sample(0), world.sample(1, outcome=Outcome.SKIPPED_BUDGET))
    found = {line.target: line for line in world.call.coverage(world.select())}
    line = found["sim/a"]
    assert (line.vantage, line.region, line.recorded) == ("us-1", "us-east-2", 2)
    assert line.outcomes == {"ok": 2, "skipped_budget": 1}
    # Nothing was planned before the plan was applied, and that was moments ago.
    assert 0 <= line.planned <= 3


def test_an_altered_target_keeps_its_past(start_collector: StartCollector) -> None:
    """After a plan change the old series is kept under a distinct name, and the new one has the plain name."""
    world = a_world(start_collector(more=KEEP_A_MONTH))
    world.push(US, world.sample(0, ttft_us=MS))
    old = world.target("sim/a")
    world.call.apply(PLAN.replace("model: a,", "model: a, workload: {max_output_tokens: 5},"))
    world.push(US, world.sample(1, ttft_us=MS))
    assert world.target("sim/a") != old
    names = [found.target for found in world.call.samples(world.select())]
    assert names == ["sim/a", f"sim/a~{old % 2**24:06x}"]
    assert len(world.call.samples(world.select(targets=("sim/a",)))) == 1
    assert len(world.call.samples(world.select(targets=("sim/a*",)))) == 2


@pytest.mark.parametrize(
    ("question", "code", "said"),
    [
        ({"baseline": "us-eat-2"}, "NOT_FOUND", "unknown region 'us-eat-2'; did you mean 'us-east-2'? known: ap-s"),
        ({"against": ["mars"]}, "NOT_FOUND", "unknown region 'mars'"),
        ({"against": ["us-east-2"]}, "INVALID_ARGUMENT", "is the baseline"),
        ({"metric": "tfft"}, "INVALID_ARGUMENT", "did you mean 'ttft'?"),
        ({"targets": ("sim/z",)}, "NOT_FOUND", "unknown target 'sim/z'; did you mean 'sim/b'? known: sim/a"),
        ({"targets": ("nix*",)}, "NOT_FOUND", "unknown target 'nix*'"),
        ({"regions": ("us-west",)}, "NOT_FOUND", "unknown region 'us-west'"),
        ({"window": Window(from_at=5, until_at=5)}, "INVALID_ARGUMENT", "window is empty"),
        ({"window": Window(from_at=0, until_at=0)}, "INVALID_ARGUMENT", "window is empty"),
        ({"window": Window(from_at=0, until_at=10**15)}, "INVALID_ARGUMENT", "longer than 400 days"),
    ],
)
def test_unknown_names_are_refused(asked: World, question: dict[str, Any], code: str, said: str) -> None:
    """The error for an unknown name lists the known names and the most similar one."""
    parts = {key: question[key] for key in ("targets", "regions", "window") if key in question}
    more = {key: part for key, part in question.items() if key not in parts}
    status, details = refusal(asked.call.differentials, replace(asked.select(), **parts), **more)
    assert status.name == code
    assert said in details


@pytest.mark.parametrize("limit", [-1, 10_001])
def test_sample_limits_are_bounded(asked: World, limit: int) -> None:
    """A limit above 10 000 or below 0 is refused."""
    assert refusal(asked.call.samples, asked.select(), limit)[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_an_empty_observatory_answers(start_collector: StartCollector) -> None:
    """Before the first plan and push, results are empty and names are unknown."""
    call = start_collector(more=KEEP_A_MONTH).call
    nothing = Selection(window=Window(from_at=0, until_at=1))
    assert call.samples(nothing) == []
    assert call.leaderboard(nothing).standings == ()
    assert call.coverage(nothing) == ()
    assert "known: none yet" in refusal(call.samples, replace(nothing, targets=("x",)))[1]
    assert refusal(call.differentials, nothing)[0] is grpc.StatusCode.INVALID_ARGUMENT
