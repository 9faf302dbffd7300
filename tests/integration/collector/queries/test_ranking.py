"""Leaderboards, price tiers and region costs of pushed samples, checked by hand."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from fixtures.collector import KEEP_A_MONTH, Caller, Collector, StartCollector
from isochrone_wire.answers import Order, Selection, Source, Window
from isochrone_wire.model import SECOND_US, Batch, Outcome, Sample, Vantage

MS = 1_000
PLAN = """\
baseline: us-east-2
every: 10s
targets:
  - {provider: near, model: fast, base_url: http://h, price: {usd_per_m_input: 0.1, usd_per_m_output: 0.2}}
  - {provider: near, model: slow, base_url: http://h, price: {usd_per_m_output: 2.0}}
  - {provider: far, model: gift, base_url: http://h, price: {usd_per_m_output: 0.0}}
  - {provider: far, model: young, base_url: http://h}
"""
ROUNDS = 64
US, SG = "us-east-2", "ap-southeast-1"
# (target, region) → TTFT in ms, tokens per second.
WORLD = {
    ("near/fast", US): (100, 50.0),
    ("near/fast", SG): (250, 50.0),
    ("near/slow", US): (400, 90.0),
    ("near/slow", SG): (550, 90.0),
    ("far/gift", US): (700, 10.0),
    ("far/gift", SG): (600, 10.0),
}


class Asked:
    """A collector whose answers are known: 64 rounds of three targets from two regions, and few of a fourth."""

    def __init__(self, call: Caller, plan: str = PLAN) -> None:
        self.call = call
        self.start_at = time.time_ns() // 1000 - 1_200 * SECOND_US
        call.apply(plan)
        self._ids = {target.name: target.id for target in call.targets().targets}
        for seq, region in enumerate((US, SG), start=1):
            vantage = Vantage(name=f"{region}-1", region=region)
            samples = tuple(self._samples(region))
            receipt = call.push(Batch(vantage=vantage, epoch=1, seq=seq, samples=samples))
            assert receipt.stored == len(samples), receipt

    def _samples(self, region: str) -> Iterator[Sample]:
        for (target, where), (ttft, speed) in WORLD.items():
            for n in range(ROUNDS if where == region else 0):
                ttft_us = (ttft + n % 5) * MS
                yield self.sample(
                    n,
                    target,
                    ttft_us=ttft_us,
                    ttfat_us=ttft_us,
                    e2e_us=10 * ttft_us,
                    tcp_us=30 * MS,
                    tokens_per_second=speed,
                )
        yield from (self.sample(n, "far/young", ttft_us=50 * MS) for n in range(3))
        if region == US:
            yield self.sample(ROUNDS, "near/fast", outcome=Outcome.TIMED_OUT, timeout_us=60 * SECOND_US)
            yield self.sample(ROUNDS, "near/slow", outcome=Outcome.HTTP_ERROR)
            yield self.sample(ROUNDS, "near/slow", outcome=Outcome.THROTTLED)
            yield self.sample(ROUNDS, "near/slow", outcome=Outcome.SKIPPED_BUDGET)

    def sample(self, round_number: int, target: str, **fields: Any) -> Sample:
        round_at = self.start_at + round_number * 10 * SECOND_US
        plain = Sample(target_id=self._ids[target], round_at=round_at, outcome=Outcome.OK, dispatched_at=round_at)
        return replace(plain, **fields)

    def select(self, **fields: Any) -> Selection:
        window = Window(from_at=self.start_at, until_at=time.time_ns() // 1000 + 60 * SECOND_US)
        return Selection(window=window, **fields)


@pytest.fixture(scope="module")
def asked(shared_collector: Collector) -> Asked:
    return Asked(shared_collector.call)


@pytest.mark.parametrize(
    ("order", "ranking"),
    [
        (Order.TTFT, ["near/fast", "near/slow", "far/gift", "far/young"]),
        (Order.TTFT_COLD, ["near/fast", "near/slow", "far/gift", "far/young"]),
        (Order.TTFAT, ["near/fast", "near/slow", "far/gift", "far/young"]),
        (Order.E2E, ["near/fast", "near/slow", "far/gift", "far/young"]),
        (Order.TOKENS_PER_SECOND, ["near/slow", "near/fast", "far/gift", "far/young"]),
        (Order.TOKENS_PER_USD, ["far/gift", "near/fast", "near/slow", "far/young"]),
        (Order.PRICE, ["far/gift", "near/fast", "near/slow", "far/young"]),
        (Order.SUCCESS, ["far/gift", "near/fast", "near/slow", "far/young"]),
    ],
)
def test_a_leaderboard_of_every_order(asked: Asked, order: Order, ranking: list[str]) -> None:
    """Each order ranks by its quantity; targets with too little data come last."""
    board = asked.call.leaderboard(asked.select(regions=(US,)), order=order.value)
    assert (board.order, board.source) == (order, Source.SAMPLES)
    assert [line.target for line in board.standings] == ranking


def test_an_order_has_several_spellings(asked: Asked) -> None:
    """An order is found with `_` in place of `-`, as metrics are written."""
    board = asked.call.leaderboard(asked.select(regions=(US,)), order="tokens_per_second")
    assert board.order is Order.TOKENS_PER_SECOND


def test_a_standing_has_every_quantity(asked: Asked) -> None:
    """A standing has medians of all metrics, price, speed per dollar and outcomes; throttled and skipped apart."""
    board = asked.call.leaderboard(asked.select(regions=(US,), targets=("near/*",)))
    fast, slow = board.standings
    medians = {
        "ttft": slow.ttft_p50_us,
        "cold": slow.ttft_cold_p50_us,
        "ttfat": slow.ttfat_p50_us,
        "e2e": slow.e2e_p50_us,
        "speed": slow.tokens_per_second_p50,
    }
    assert {name: found.value for name, found in medians.items() if found} == {
        "ttft": 402 * MS,
        "cold": 432 * MS,
        "ttfat": 402 * MS,
        "e2e": 4020 * MS,
        "speed": 90.0,
    }
    assert (slow.usd_per_m_input, slow.usd_per_m_output, slow.tokens_per_second_per_usd) == (0.0, 2.0, 45.0)
    assert (slow.n, slow.failed, slow.throttled, slow.skipped) == (ROUNDS, 1, 1, 1)
    assert slow.success is not None
    assert (slow.success.n, slow.success.value) == (ROUNDS + 1, ROUNDS / (ROUNDS + 1))
    assert (fast.usd_per_m_input, fast.failed) == (0.1, 1)
    assert fast.ttft_p99_us is not None
    assert (fast.ttft_p99_us.value, fast.ttft_p99_us.high) == (60 * SECOND_US, None)


def test_tiers(asked: Asked) -> None:
    """Targets are ranked within their price tier."""
    lines = asked.call.tiers(asked.select(regions=(US,)))
    assert [(line.tier, line.rank, line.target) for line in lines] == [
        ("free", 1, "far/gift"),
        ("sweet spot", 1, "near/fast"),
        ("premium", 1, "near/slow"),
        ("unpriced", 1, "far/young"),
    ]
    assert (lines[1].tokens_per_second_per_usd, lines[0].tokens_per_second_per_usd) == (250.0, None)


def test_region_costs(asked: Asked) -> None:
    """Each provider has a best region, and the cost of the other one is estimated from paired rounds."""
    lines = asked.call.region_costs(asked.select())
    assert [(line.provider, line.region, line.best_region, line.decision.value) for line in lines] == [
        ("far", SG, SG, "faster"),
        ("far", US, SG, "slower"),
        ("near", US, US, "faster"),
        ("near", SG, US, "slower"),
    ]
    far, near = lines[1], lines[3]
    assert (far.added, near.added) == (100 * MS, 150 * MS)
    assert (far.targets, near.targets, near.n) == (2, 2, 2 * ROUNDS)
    assert near.median == (252 + 552) / 2 * MS


def test_region_costs_of_another_metric(asked: Asked) -> None:
    """Where regions are equal none is better; with one region the reason says that nothing can be compared."""
    best, other = asked.call.region_costs(asked.select(targets=("near/*",)), metric="tokens_per_second")
    assert (best.decision.value, other.decision.value) == ("undecided", "undecided")
    [line] = asked.call.region_costs(asked.select(regions=(US,), targets=("near/*",)))
    assert (line.decision.value, line.reason) == ("undecided", f"no other region to compare {US} with")


def test_a_region_with_a_problem_is_not_compared(start_collector: StartCollector) -> None:
    """If the control target fails, the region is not compared, and the line has the reason."""
    plan = PLAN + "  - {provider: us, model: control, base_url: http://h}\ncontrol: us/control\n"
    ill = Asked(start_collector(more=KEEP_A_MONTH).call, plan)
    lost = [ill.sample(n, "us/control", outcome=Outcome.CONNECT_FAILED) for n in range(40)]
    fine = [ill.sample(n, "us/control", ttft_us=10 * MS) for n in range(40)]
    for region, samples in ((SG, lost), (US, fine)):
        vantage = Vantage(name=f"{region}-1", region=region)
        ill.call.push(Batch(vantage=vantage, epoch=1, seq=9, samples=tuple(samples)))
    best, other = ill.call.region_costs(ill.select(targets=("near/*",)))
    assert (best.region, best.decision.value) == (US, "undecided")
    assert (other.region, other.decision.value, other.added) == (SG, "undecided", None)
    assert other.reason.startswith(f"{SG} has a problem of its own")


@pytest.mark.parametrize(
    ("ask", "code", "said"),
    [
        (lambda a: a.call.leaderboard(a.select(), order="prize"), "INVALID_ARGUMENT", "did you mean 'price'?"),
        (lambda a: a.call.leaderboard(a.select(), order="sucess"), "INVALID_ARGUMENT", "did you mean 'success'?"),
        (lambda a: a.call.tiers(a.select(targets=("near/quick",))), "NOT_FOUND", "unknown target"),
        (lambda a: a.call.region_costs(a.select(), metric="tfft"), "INVALID_ARGUMENT", "did you mean 'ttft'?"),
        (lambda a: a.call.region_costs(a.select(regions=("us-east",))), "NOT_FOUND", "did you mean 'us-east-2'?"),
        (lambda a: a.call.tiers(a.select(regions=("us-east",))), "NOT_FOUND", "did you mean 'us-east-2'?"),
    ],
)
def test_unknown_names_get_the_most_similar_one(asked: Asked, ask: Any, code: str, said: str) -> None:
    """The error for an unknown order, use, metric, region or target has the most similar name."""
    with pytest.raises(grpc.RpcError) as refused:
        ask(asked)
    error: Any = refused.value
    assert (error.code().name, said in error.details()) == (code, True)


def test_without_samples_there_are_no_lines(start_collector: StartCollector) -> None:
    """Before the first sample every result is empty."""
    call = start_collector(more=KEEP_A_MONTH).call
    nothing = Selection(window=Window(from_at=0, until_at=1))
    assert (call.region_costs(nothing), call.latency_budgets(nothing), call.tiers(nothing)) == ((), (), ())
