"""The memory of slow joint rounds: counted once, and enough for a p99."""

from dataclasses import astuple, replace
from itertools import pairwise
from math import nan

import numpy as np
import pytest

from isochrone_collector.routing.inputs import Inputs, rules_for
from isochrone_collector.routing.parallel_requests import P99_ROUNDS, Tail, Tails, count_rounds, extended, p99s
from isochrone_collector.routing.switch import State, remember_tails
from isochrone_wire.answers import Quantile
from isochrone_wire.model import SECOND_US, Timeouts, Workload
from testdata.routing_inputs import AT, evidence, inputs_for, joint_rounds

EVERY_US = 60_000_000
ROUNDS = [300.0] * 72


def inputs(first_ms: list[float], second_ms: list[float], *, delay_ms: float = 500.0) -> Inputs:
    """The inputs of a and b, which have the same evidence, with these joint rounds until `AT`."""
    delay = Quantile(value=delay_ms * 1e3, low=delay_ms * 1e3, high=delay_ms * 1e3)
    known = [replace(evidence(name, 300.0), ttft_p95_us=delay) for name in "ab"]
    return inputs_for(*known, joint=joint_rounds(EVERY_US, a=first_ms, b=second_ms))


def remembered(of: Inputs, *, spans: int = 1, tails: Tails | None = None) -> tuple[Tail, ...]:
    """What is known of a and b after the rounds were added in this many parts."""
    known: Tails = tails or {}
    starts = np.linspace(of.joint.round_at[0], AT + 1, spans + 1).astype(int).tolist()
    for since_at, until_at in pairwise(starts):
        known = extended(known, of, ["a", "b"], since_at=since_at, until_at=until_at)
    return known["a"]["b"]


def figures(tails: tuple[Tail, ...]) -> tuple[float, ...]:
    """The p99s, in the order of their fields."""
    found = p99s(tails)
    assert found is not None
    return astuple(found)


@pytest.mark.parametrize("spans", [1, 2, 7, 300])
def test_each_round_is_counted_once(spans: int) -> None:
    """In however many parts the rounds come, each counts, and the slow ones are kept with their hedged latency."""
    first = [300.0] * 379 + [4000.0, 600.0, 800.0, 5000.0, nan]
    second = [200.0] * 382 + [9000.0, 100.0]
    found = remembered(inputs(first, second), spans=spans)
    assert (count_rounds(found), sum(tail.n for tail in found)) == (383, 383)
    assert [len(tail.alone) for tail in found] == [len(tail.hedged) for tail in found]
    assert figures(found) == pytest.approx((600e3, 600e3, 5000e3), rel=0.02)


def test_a_p99_takes_299_joint_rounds_and_is_never_the_largest() -> None:
    """With 298 rounds there is no p99; with 299 it is the third largest value."""
    slow = [3000.0, 4000.0, 5000.0]
    assert p99s(remembered(inputs([300.0] * 295 + slow, [100.0] * 298))) is None
    found = remembered(inputs([300.0] * 296 + slow, [100.0] * 299))
    assert figures(found) == pytest.approx((3000e3, 600e3, 600e3), rel=0.02)


def test_the_p99_of_a_changing_first_member_is_that_of_all_rounds() -> None:
    """Whatever the delay was when a round was counted, the slowest of all are remembered: here the delay is first
    within the stalls, because there are more of them than one in twenty, and then far below.
    """
    random = np.random.default_rng(1)
    first = 300 * np.exp(0.3 * random.standard_normal(360)) + 5000 * (np.arange(360) % 15 == 0) * (np.arange(360) < 72)
    second = 300 * np.exp(0.3 * random.standard_normal(360))
    tails: Tails = {}
    for end in range(6, 361, 6):
        window = slice(max(0, end - 72), end)
        of = inputs(first[window].tolist(), second[window].tolist(), delay_ms=float(np.quantile(first[window], 0.95)))
        tails = extended(tails, of, ["a", "b"], since_at=AT - 5 * EVERY_US, until_at=AT + 1)
    found = p99s(tails["a"]["b"])
    assert found is not None
    assert found.alone_us == pytest.approx(1e3 * np.sort(first)[-4], rel=0.02)


def test_rounds_of_several_vantages_count_once() -> None:
    """Five vantages that probe in the same 60 rounds make 60 joint rounds, not 300."""
    of = inputs([300.0] * 295 + [9000.0] * 5, [300.0] * 300)
    at = tuple(AT - 60 * EVERY_US + place // 5 * EVERY_US for place in range(300))
    found = remembered(replace(of, joint=replace(of.joint, round_at=at)))
    assert (count_rounds(found), found[0].n, p99s(found)) == (60, 300, None)


def test_a_stall_that_all_vantages_meet_is_one_round() -> None:
    """Of 300 rounds that five vantages probe, one has a common stall: the interval of the hedged p99 reaches it, as it
    does with one vantage.
    """
    of = inputs([300.0] * 1495 + [9000.0] * 5, [300.0] * 1495 + [9000.0] * 5)
    at = tuple(AT - 300 * EVERY_US + place // 5 * EVERY_US for place in range(1500))
    found = p99s(remembered(replace(of, joint=replace(of.joint, round_at=at))))
    assert found is not None
    assert (found.hedged_us, found.hedged_high_us) == pytest.approx((300e3, 9000e3), rel=0.02)


@pytest.mark.parametrize(
    ("every_us", "timeout_s", "age_s"),
    [(1_000_000, 60, 60), (1_000_000, 5, 10), (1_000_000, 180, 60), (EVERY_US, 60, 360)],
)
def test_a_round_counts_when_its_slowest_probe_has_ended(every_us: int, timeout_s: int, age_s: int) -> None:
    """After an epoch, or a timeout if that is longer: otherwise the probes that stalled would be missing. But after
    half a window at the latest.
    """
    patient = Workload(timeouts=Timeouts(first_token_us=timeout_s * SECOND_US))
    of = inputs([300.0], [300.0])
    targets = tuple(replace(one, workload=patient) for one in of.targets)
    joint = joint_rounds(every_us, a=ROUNDS, b=ROUNDS)
    of = replace(of, rules=rules_for([every_us]), targets=targets, joint=joint)
    state = remember_tails(State(), of, ["a", "b"])
    # The last round is that of `AT`.
    assert count_rounds(state.tails["a"]["b"]) == len(ROUNDS) - 1 - age_s * SECOND_US // every_us


def test_old_rounds_are_forgotten() -> None:
    """At most about 600 rounds are kept: those that filled one part, and the ones since then."""
    tails: Tails = {}
    of = inputs([300.0, 4000.0] * 50, [300.0] * 100)
    for _ in range(20):
        tails = extended(tails, of, ["a", "b"], since_at=0, until_at=AT + 1)
        assert count_rounds(tails["a"]["b"]) <= 2 * P99_ROUNDS + 100
    assert count_rounds(tails["a"]["b"]) >= P99_ROUNDS


def test_a_switch_keeps_the_rounds_of_its_two_members() -> None:
    """The pair is known both ways; pairs without the first choice are forgotten, and one without a delay waits."""
    of = inputs([300.0] * 100, [300.0] * 100)
    tails = extended({}, of, ["a", "b"], since_at=0, until_at=AT)
    later = extended(tails, of, ["b", "a", "c"], since_at=AT, until_at=AT + 1)
    assert {first: set(seconds) for first, seconds in later.items()} == {"b": {"a", "c"}, "a": {"b"}, "c": {"b"}}
    assert [count_rounds(later[first][second]) for first, second in ("ba", "ab", "bc", "cb")] == [100, 100, 0, 0]
    assert extended({}, replace(of, evidence=()), ["a", "b"], since_at=0, until_at=AT) == {
        "a": {"b": ()},
        "b": {"a": ()},
    }
