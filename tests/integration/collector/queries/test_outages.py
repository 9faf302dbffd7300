"""Outages in which requests hang, from the agent's rounds to every question: each reports their share of the time."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from fixtures.collector import KEEP_A_MONTH, Caller, StartCollector
from fixtures.postgres import opened
from isochrone_collector.jobs.rollup import LATE_EVERY_US, Rollup
from isochrone_wire.answers import Selection, Source, Window
from isochrone_wire.insights import Eligible
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Batch, Outcome, Sample, Target, Vantage
from testdata.outages import (
    CYCLE_US,
    OUTAGE_SHARE,
    Shares,
    coverage_shares,
    in_outage,
    leaderboard_shares,
    record,
    route_shares,
    slo_shares,
)
from testdata.waiting import eventually

US, SG = "us-east-2", "ap-southeast-1"
PLAN = f"""
baseline: {US}
targets:
  - {{provider: p, model: every-10, base_url: http://h, every: 10s}}
  - {{provider: p, model: every-30, base_url: http://h, every: 30s}}
  - {{provider: p, model: every-60, base_url: http://h, every: 60s}}
  - {{provider: p, model: rare, base_url: http://h, every: 300s}}
routes:
  - {{name: chat, members: [p/every-10, p/every-30, p/every-60, p/rare]}}
"""
# The window of a route has 72 rounds of its rarest member; the other ones have enough rounds in it to find the share.
PROBED = ("p/every-10", "p/every-30", "p/every-60")
SPAN_US = 48 * CYCLE_US
# No outage just before the end, so that the route has members that do not fail at present.
CALM_US = 4 * MINUTE_US


def last_calm(now_at: int) -> int:
    """Return the last instant that no outage precedes."""
    at = now_at
    while any(in_outage(at - before_us) for before_us in range(0, CALM_US, 10 * SECOND_US)):
        at -= 10 * SECOND_US
    return at


def push(call: Caller, region: str, samples: Sequence[Sample]) -> None:
    vantage = Vantage(name=f"{region}-1", region=region)
    receipt = call.push(Batch(vantage=vantage, epoch=1, seq=1, samples=tuple(samples)))
    assert receipt.stored == len(samples), receipt


def series_shares(call: Caller, selection: Selection) -> Shares:
    series = call.series(selection).series
    failed = {line.target: sum(point.failed for point in line.points) for line in series}
    return {line.target: failed[line.target] / sum(p.ok + p.failed for p in line.points) for line in series}


def differential_shares(call: Caller, selection: Selection) -> Shares:
    pairs = call.differentials(selection, baseline=US)
    sides = {pair.target: pair.baseline_side for pair in pairs}
    return {target: side.failures.value for target, side in sides.items() if side.failures}


async def roll_up(database_url: str, now_at: int) -> None:
    async with opened(database_url) as database:
        await Rollup(database=database, clock=lambda: now_at + LATE_EVERY_US + MINUTE_US).run()


def test_an_outage_has_its_share_in_every_answer(start_collector: StartCollector) -> None:
    """Outages of 100 s in every 600 s are 16.7 % of the rounds at every interval, also in summaries and a route."""
    collector = start_collector(more=KEEP_A_MONTH)
    call = collector.call
    call.apply(PLAN)
    targets: tuple[Target, ...] = call.targets().targets
    now_at = time.time_ns() // 1000
    until_at = last_calm(now_at)
    window = Window(from_at=until_at - SPAN_US, until_at=until_at)
    push(call, US, record(targets, from_at=window.from_at, until_at=until_at, hangs=in_outage))
    push(call, SG, record(targets, from_at=window.from_at, until_at=until_at, hangs=lambda _: False))

    selection = Selection(window=window, targets=PROBED, regions=(US,))
    long = Selection(window=Window(from_at=now_at - 9 * DAY_US, until_at=now_at), targets=PROBED, regions=(US,))
    eventually(30, lambda: route_shares(collector.http_address, US).keys() >= {*PROBED}, "every member has evidence")
    asyncio.run(roll_up(collector.database_url, now_at))
    found = {
        "coverage": coverage_shares(call, selection),
        "leaderboard": leaderboard_shares(call, selection),
        "summaries": leaderboard_shares(call, long),
        "differentials": differential_shares(call, Selection(window=window, targets=PROBED)),
        "slo": slo_shares(call, selection),
        "series": series_shares(call, selection),
        "route": {
            target: share for target, share in route_shares(collector.http_address, US).items() if target in PROBED
        },
    }
    assert call.leaderboard(long).source is Source.SUMMARIES
    truth = pytest.approx(OUTAGE_SHARE, abs=0.015)
    assert found == dict.fromkeys(found, dict.fromkeys(PROBED, truth))


def test_an_outage_counts_against_a_latency_target(start_collector: StartCollector) -> None:
    """The rounds of an outage are values beyond every limit, so that no use with a limit for p95 is met."""
    call = start_collector(more=KEEP_A_MONTH).call
    call.apply(PLAN)
    until_at = time.time_ns() // 1000
    samples = record(call.targets().targets, from_at=until_at - SPAN_US, until_at=until_at, hangs=in_outage)
    push(call, US, samples)
    selection = Selection(window=Window(from_at=until_at - SPAN_US, until_at=until_at))
    # A round that began before the window may have started in it.
    inside = [sample for sample in samples if sample.round_at >= selection.window.from_at]
    with_value = [sample for sample in inside if sample.outcome in (Outcome.OK, Outcome.TIMED_OUT)]
    for line in call.latency_budgets(selection, "web"):
        target = next(target for target in call.targets().targets if target.name == line.target)
        assert line.n == sum(sample.target_id == target.id for sample in with_value)
        assert line.eligible is Eligible.NO
