"""Rounds that are not sent: the first obstacle decides; and rounds behind a probe in flight, which show an outage."""

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter

import pytest

from isochrone_agent.plan.probe_scheduler import skip_of, waited_us
from isochrone_agent.plan.schedule import ScheduledRound
from isochrone_wire.model import SECOND_US, Outcome, Overlap, Quality, Sample, Target
from testdata.outages import CONNECT_US, CYCLE_US, OUTAGE_SHARE, in_outage, record

S = SECOND_US
CYCLES = 48


def probe(round_s: int, outcome: Outcome = Outcome.OK, *, ttft_s: float | None = None) -> Sample:
    ttft_us = None if ttft_s is None else round(ttft_s * S)
    return Sample(target_id=7, round_at=round_s * S, outcome=outcome, dispatched_at=round_s * S, ttft_us=ttft_us)


def target(every_us: int = 10 * S) -> Target:
    return Target(id=7, name="t", provider="p", model="m", base_url="http://x", every_us=every_us)


def due(round_s: int) -> ScheduledRound:
    return ScheduledRound(target=target(), round_at=round_s * S, begins_at=round_s * S)


HUNG, HUNG_LATER = probe(0, Outcome.TIMED_OUT), probe(60, Outcome.TIMED_OUT)
FINE = probe(60, ttft_s=0.3)


def blocked(before: Sample | None, after: Sample | None, *, repeated: bool = True) -> list[int]:
    """Return the seconds at which a round between two probes is blocked; each has waited since the first one."""
    ends = {"before": (before,) if before else (), "after": (after,) if after else ()}
    waited = {at: waited_us(due(at), **ends, repeated=repeated) for at in range(10, 60, 10)}
    assert {at: us for at, us in waited.items() if us is not None} == {at: at * S for at, us in waited.items() if us}
    return [at for at, us in waited.items() if us is not None]


@pytest.mark.parametrize("after", [HUNG_LATER, probe(60, ttft_s=12), probe(60, Outcome.HTTP_ERROR)])
@pytest.mark.parametrize("repeated", [False, True])
def test_a_round_between_probes_that_hung_is_blocked(after: Sample, *, repeated: bool) -> None:
    """It would have met the same outage."""
    assert blocked(HUNG, after, repeated=repeated) == [10, 20, 30, 40, 50]


@pytest.mark.parametrize("after", [FINE, probe(60, Outcome.TRUNCATED, ttft_s=0.3), probe(60, Outcome.THROTTLED)])
@pytest.mark.parametrize("before", [HUNG, probe(0, Outcome.HTTP_ERROR)])
def test_before_an_answer_the_rounds_near_the_probe_that_hung_are_blocked(before: Sample, after: Sample) -> None:
    """They are fewer if the probe before was answered: a single request that is lost looks the same."""
    assert blocked(before, after) == [10, 20]
    assert blocked(before, after, repeated=False) == [10]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (probe(0, ttft_s=55), HUNG_LATER),
        (probe(0, Outcome.STALLED, ttft_s=0.3), HUNG_LATER),
        (probe(0, Outcome.THROTTLED), HUNG_LATER),
        (HUNG, None),
        (None, HUNG_LATER),
    ],
)
def test_a_round_behind_an_answer_is_not_blocked(before: Sample | None, after: Sample | None) -> None:
    """Neither is one of which the next probe is unknown."""
    assert blocked(before, after) == []


@pytest.mark.parametrize(("repeated", "share"), [(False, 0.25), (True, 0.5)])
def test_the_rounds_after_the_last_probe_that_hung_are_divided_on_average(*, repeated: bool, share: float) -> None:
    """Half of them are blocked, a quarter after a single probe that hung, though each is blocked or not."""
    counts = [
        sum(
            waited_us(
                due(at + behind),
                before=(probe(at, Outcome.TIMED_OUT),),
                after=(probe(at + 60, ttft_s=0.3),),
                repeated=repeated,
            )
            is not None
            for behind in range(10, 60, 10)
        )
        for at in range(0, 600_000, 600)
    ]
    assert set(counts) == ({2, 3} if repeated else {1, 2})
    assert sum(counts) / len(counts) == pytest.approx(5 * share, abs=0.01)


def test_a_burst_hung_if_all_its_streams_did() -> None:
    """One stream with an answer shows that the provider answers."""
    for before, expected in (((HUNG, HUNG), 10 * S), ((HUNG, probe(0, ttft_s=1)), None)):
        assert waited_us(due(10), before=before, after=(HUNG_LATER,), repeated=True) == expected


@pytest.mark.parametrize("step_s", [-3600, 3600])
def test_a_step_of_the_wall_clock_does_not_falsify_the_time_waited(step_s: int) -> None:
    """The time waited is never negative, and never longer than the limit that the probe reached."""
    stepped = replace(HUNG, dispatched_at=HUNG.dispatched_at + step_s * S, timeout_us=60 * S)
    expected = 60 * S if step_s < 0 else 0
    assert waited_us(due(10), before=(stepped,), after=(HUNG_LATER,), repeated=True) == expected


@pytest.mark.parametrize("every_s", [10, 30, 60])
@pytest.mark.parametrize("outage_s", [20, 70, 100, 130])
def test_an_outage_counts_once_per_round(outage_s: int, every_s: int) -> None:
    """A probe that hangs keeps no round from starting, so that the rounds in the outage are those that failed."""
    of, hangs = target(every_s * S), partial(in_outage, outage_us=outage_s * S)
    # In the first cycle the outage begins at once, when no answer has been seen.
    samples = [
        sample
        for sample in record([of], from_at=0, until_at=CYCLES // 2 * CYCLE_US, hangs=hangs)
        if sample.round_at >= CYCLE_US
    ]
    assert all(sample.sent and sample.late_us == 0 for sample in samples)
    failed = [sample.outcome is Outcome.TIMED_OUT for sample in samples]
    assert failed == [hangs(sample.dispatched_at + CONNECT_US) for sample in samples]
    assert sum(failed) / len(failed) == pytest.approx(outage_s * S / CYCLE_US, abs=0.01)


@pytest.mark.parametrize("every_s", [10, 30])
def test_without_free_slots_the_rounds_behind_a_probe_that_hangs_are_blocked(every_s: int) -> None:
    """They count as if they had been sent, at the time waited, which is right for outages of 100 s."""
    of = target(every_s * S)
    samples = record([of], from_at=0, until_at=CYCLES * CYCLE_US, hangs=in_outage, concurrency=1)
    found = Counter(sample.outcome for sample in samples)
    share = found[Outcome.TIMED_OUT] / (found[Outcome.TIMED_OUT] + found[Outcome.OK])
    assert share == pytest.approx(OUTAGE_SHARE, abs=0.015)
    blocked = [sample for sample in samples if Quality.BLOCKED in sample.quality]
    assert blocked
    sent = sorted((sample for sample in samples if sample.sent), key=attrgetter("round_at"))
    for sample in blocked:
        assert sample.late_us == 0
        before = sent[bisect_left(sent, sample.round_at, key=attrgetter("round_at")) - 1]
        assert sample.timeout_us == sample.dispatched_at - before.dispatched_at - CONNECT_US


def test_requests_that_hang_independently_are_counted_once() -> None:
    """One request in 20 hangs: the next round shows that the target answers, so that no other is blocked."""
    hangs = random.Random(1)
    lost = [hangs.random() < 0.05 for _ in range(100 * CYCLE_US // (10 * S))]
    requests = iter(lost)
    samples = record([target()], from_at=0, until_at=100 * CYCLE_US, hangs=lambda _: next(requests))
    assert [sample.outcome is Outcome.TIMED_OUT for sample in samples] == lost


@pytest.mark.parametrize(("slots", "most"), [(8, 4), (100, 8)])
def test_probes_that_hang_leave_slots_to_others(slots: int, most: int) -> None:
    """At most half of the slots, and eight, are taken by probes of one target, evenly over the limit of 60 s."""
    samples = record([target(S)], from_at=0, until_at=CYCLE_US // 2, hangs=lambda at: at > 100 * S, concurrency=slots)
    hung = [sample.dispatched_at for sample in samples if sample.sent and sample.outcome is Outcome.TIMED_OUT]
    assert max(sum(at <= other < at + 60 * S for other in hung) for at in hung) == most


def test_nothing_is_blocked_without_an_outage() -> None:
    """Answers that take longer than the interval leave rounds skipped, not blocked, and no failure."""
    samples = record([target(S // 10)], from_at=0, until_at=60 * S, hangs=lambda _: False)
    assert {sample.outcome for sample in samples} == {Outcome.OK, Outcome.SKIPPED_OVERLAP}


TARGET = Target(id=1, name="p/m", provider="p", model="m", base_url="https://api.example.com")
PAUSED, OVERLAPPING = replace(TARGET, paused=True), replace(TARGET, overlap=Overlap.ALLOW)
REFUSED = replace(probe(0, Outcome.STREAM_ERROR), error="overloaded")


@pytest.mark.parametrize(
    ("ready", "outcome", "reason"),
    [
        (
            partial(skip_of, target=PAUSED, refusal="r", is_in_flight=True),
            Outcome.SKIPPED_PAUSED,
            "the plan pauses this target",
        ),
        (
            partial(skip_of, target=TARGET, refusal="no", is_in_flight=True, over_budget="b"),
            Outcome.SKIPPED_NOT_READY,
            "refused by the agent's policy: no",
        ),
        (
            partial(skip_of, target=TARGET, is_in_flight=True, is_throttled=True),
            Outcome.SKIPPED_OVERLAP,
            "the previous probe is still in flight",
        ),
        (
            partial(skip_of, target=TARGET, is_throttled=True, over_budget="b"),
            Outcome.SKIPPED_THROTTLED,
            "the provider asked to wait",
        ),
        (partial(skip_of, target=OVERLAPPING, is_in_flight=True, over_budget="b"), Outcome.SKIPPED_BUDGET, "b"),
        (partial(skip_of, target=TARGET, over_budget="b", failure=REFUSED), Outcome.SKIPPED_BUDGET, "b"),
        (
            partial(skip_of, target=TARGET, failure=REFUSED),
            Outcome.STREAM_ERROR,
            "not sent: the provider asked to wait after: overloaded",
        ),
    ],
)
def test_the_first_check_decides(ready: Callable[[], object], outcome: Outcome, reason: str) -> None:
    """Pause, policy, overlap, throttling and budget are checked in this order."""
    assert ready() == (outcome, reason)


@pytest.mark.parametrize(
    "ready", [partial(skip_of, target=TARGET), partial(skip_of, target=OVERLAPPING, is_in_flight=True)]
)
def test_a_round_without_an_obstacle_is_sent(ready: Callable[[], object]) -> None:
    """A probe in flight is no obstacle if the plan allows overlap."""
    assert ready() is None
