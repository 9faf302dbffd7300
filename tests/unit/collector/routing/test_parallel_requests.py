"""Parallel requests: hedges, races, and the joint rounds that they are computed from."""

from dataclasses import astuple, replace
from itertools import pairwise
from math import nan

import numpy as np
import pytest

from isochrone_collector.routing.decision import decide
from isochrone_collector.routing.inputs import Comparison, Evidence, Inputs, rules_for
from isochrone_collector.routing.parallel_requests import (
    P99_ROUNDS,
    Gains,
    Tail,
    Tails,
    count_rounds,
    extended,
    hedge,
    known_gains,
    p99s,
    race_set,
    stall_lift,
)
from isochrone_collector.routing.switch import State, remember_tails
from isochrone_wire.answers import Quantile
from isochrone_wire.model import SECOND_US, Objective, Route, Slo, Timeouts, Workload
from isochrone_wire.routes import RaceSet
from testdata.routing_worlds import AT, RULES, evidence, inputs_for, joint_rounds, target_named

DELAY_MS = 400.0


def known(name: str) -> Evidence:
    delay = Quantile(value=DELAY_MS * 1e3, low=390e3, high=410e3)
    return replace(evidence(name, 300.0), ttft_p95_us=delay)


A, B = known("a"), known("b")


def pair(slow: tuple[int, int, int] = (5, 5, 0), *, joint: int = 100, slo_ms: int | None = None) -> Inputs:
    both = Comparison(left="a", right="b", joint=joint, slow_left=slow[0], slow_right=slow[1], slow_both=slow[2])
    slo = Slo(ttft_p95_us=None if slo_ms is None else slo_ms * 1000)
    return inputs_for(A, B, compared=(both,), route=Route(name="r", members=(), slo=slo))


def tail(*hedged_ms: float, rounds: int = 299) -> Tail:
    """Joint rounds of which the slow ones took 6 s alone, and this long with a hedge."""
    buckets = joint_rounds(a=[6000.0] * len(hedged_ms), b=hedged_ms).ttft
    return Tail(
        rounds=rounds,
        n=rounds,
        alone=tuple(bucket for bucket in buckets["a"] if bucket),
        hedged=tuple(bucket for bucket in buckets["b"] if bucket),
    )


HELPS = (tail(*[700.0] * 10),)


def test_a_hedge_shortens_the_tail_of_stalls() -> None:
    """Stalls that come to one of the two only: the second choice cuts p99 from seconds to twice the delay or so."""
    found = hedge(pair(), HELPS, "a", "b")
    assert (found.delay_us, found.reason, found.joint_rounds) == (400_000, "", 299)
    assert found.expected_p99_without_us == pytest.approx(6_000_000, rel=0.02)
    assert found.expected_p99_with_us == pytest.approx(700_000, rel=0.02)


@pytest.mark.parametrize(
    ("inputs", "tails", "reason"),
    [
        (pair((5, 5, 5)), HELPS, "the two stall together, 20.0 times as often as if they had nothing in common"),
        (
            pair(slo_ms=500),
            HELPS,
            "too late to win: what is left of the objective after the delay is less than its median",
        ),
        (
            replace(pair(), evidence=(Evidence(target="a", n=7), B)),
            HELPS,
            "too few samples: 7 of 59 for a 95th percentile",
        ),
        (replace(pair(), evidence=(A,)), HELPS, "the second choice has given no token yet"),
        (
            pair((0, 0, 0), joint=0),
            HELPS,
            "the two are not probed in the same rounds, so that common stalls would not show",
        ),
        (pair(), (tail(*[700.0] * 10, rounds=298),), "too few joint rounds: 298 of 299 for a 99th percentile"),
        (pair(), (), "too few joint rounds: 0 of 299 for a 99th percentile"),
        (pair(), (tail(*[700.0] * 7, *[5900.0] * 3),), "it would not shorten the tail"),
        (pair(), (tail(*[700.0] * 9, 5900.0),), "it is not certain to shorten the tail"),
    ],
)
def test_a_hedge_that_gains_nothing_is_refused(inputs: Inputs, tails: tuple[Tail, ...], reason: str) -> None:
    """A hedge without a delay has a reason."""
    found = hedge(inputs, tails, "a", "b")
    assert (found.delay_us, found.reason) == (None, reason)


def test_a_timeout_counts_towards_the_delay() -> None:
    """A probe that timed out is slower than any delay: 57 first tokens and two timeouts show a 95th percentile."""
    few = replace(A, n=57, censored={900: 2})
    assert hedge(replace(pair(), evidence=(few, B)), HELPS, "a", "b").delay_us == 400_000
    less = replace(few, censored={900: 1})
    found = hedge(replace(pair(), evidence=(less, B)), HELPS, "a", "b")
    assert found.reason == "too few samples: 58 of 59 for a 95th percentile"


def test_one_common_stall_is_chance() -> None:
    """Three slow rounds of sixty each meet in one by chance often enough: a lift from one round refuses nothing."""
    inputs = pair((3, 3, 1))
    assert (stall_lift(inputs.comparisons[0]) or 0) > 3
    assert hedge(inputs, HELPS, "a", "b").delay_us is not None


CERTAIN, UNCERTAIN, NONE = ((tail(*[700.0] * 10),), (tail(*[700.0] * 9, 5900.0),), (tail(*[700.0] * 7, *[5900.0] * 3),))


def test_a_known_gain_lasts_until_the_p99_does_not_show_it() -> None:
    """A common stall makes a gain uncertain: a known one stays until the p99 does not show it, then starts again."""
    gains: Gains = {}
    seen = []
    for tails in (UNCERTAIN, CERTAIN, UNCERTAIN, CERTAIN, UNCERTAIN, NONE, UNCERTAIN, CERTAIN, ()):
        gains = known_gains({"a": {"b": tails}}, RULES, gains)
        is_known = "b" in gains.get("a", ())
        assert (hedge(pair(), tails, "a", "b", is_known=is_known).delay_us is not None) == is_known
        seen.append(is_known)
    assert seen == [False, True, True, True, True, False, False, True, False]


def test_a_known_gain_does_not_help_against_common_stalls() -> None:
    """Members that stall together have no hedge, whatever was known of them."""
    assert hedge(pair((5, 5, 5)), HELPS, "a", "b", is_known=True).reason.startswith("the two stall together")


def test_a_gain_is_known_of_a_pair() -> None:
    """Of each pair, in this direction; one whose rounds are forgotten is forgotten too."""
    before = {"a": ("b", "c"), "c": ("a",)}
    tails = {"a": {"b": UNCERTAIN, "c": NONE}, "b": {"a": CERTAIN}, "d": {"a": UNCERTAIN}}
    assert known_gains(tails, RULES, before) == {"a": ("b",), "b": ("a",)}


def test_a_decision_remembers_the_gain() -> None:
    """The first certain table publishes the hedge, the next ones keep it; an outage of the second suspends it."""
    failing = replace(pair(), evidence=(A, replace(B, fails_here=True)))
    state = State(order=("a", "b"), incumbent="a", weights={"a": 1.0}, tails={"a": {"b": CERTAIN}}, tails_until_at=1)
    published = []
    for inputs, tails in ((pair(), CERTAIN), (pair(), UNCERTAIN), (failing, UNCERTAIN), (pair(), UNCERTAIN)):
        decision = decide(inputs, replace(state, tails={"a": {"b": tails}}, tails_until_at=1))
        state = decision.state
        found = decision.entries[0].hedge
        published.append(found is not None and found.delay_us is not None)
    assert published == [True, True, False, True]


STEADY = (300.0,) * 100
STALLING = (300.0,) * 90 + (6000.0,) * 10
Member = tuple[str, tuple[float, ...]]


def member(name: str, *ttft_ms: float) -> Member:
    return name, ttft_ms


def raced(
    *members: Member, usd: tuple[float, ...] = (), weight: float = 0.0, failing: tuple[str, ...] = ()
) -> RaceSet | None:
    """Return the race set of members in rank order with these rounds, prices and weight of the price."""
    names = [name for name, _ in members]
    length = max(len(ttft_ms) for _, ttft_ms in members)
    joint = joint_rounds(**{name: [*ttft_ms, *[nan] * (length - len(ttft_ms))] for name, ttft_ms in members})
    known = [Evidence(target=name, fails_here=name in failing) for name in names]
    targets = {name: target_named(name, usd=price) for name, price in zip(names, usd, strict=False)}
    route = Route(name="r", members=(), objective=Objective(usd=weight))
    return race_set(inputs_for(*known, targets=targets, route=route, joint=joint), names)


def targets_of(found: RaceSet | None) -> tuple[str, ...]:
    assert found is not None
    return found.targets


def test_the_soonest_member_is_named_whatever_the_others_cost() -> None:
    """The race names the soonest member, whatever the others cost, once the first has enough samples."""
    fast, slow = member("a", *STEADY), member("b", *[625.0] * 100)
    assert targets_of(raced(fast, slow, usd=(10.0, 0.1))) == ("a",)
    assert targets_of(raced(slow, fast, usd=(0.1, 10.0))) == ("a",)
    slow = member("c", *[625.0] * 100)
    assert raced(member("a", *STEADY[:58]), slow) is None
    found = raced(member("a", *STEADY[:59]), member("b", *STEADY[:58]), slow)
    assert found is not None
    assert found.targets == ("a",)
    assert found.reason == "a alone: no request beside it would be answered sooner; fewer than 59 samples of b"


def test_members_that_stall_are_raced() -> None:
    """Members that stall are raced, unless they stall together or their rounds are of one only."""
    both = raced(member("a", *STALLING), member("b", *STALLING[::-1]), usd=(1.0, 2.0))
    assert both is not None
    assert (both.targets, both.usd_factor, both.reason) == (("a", "b"), 3.0, "")
    assert both.expected_p95_us == pytest.approx(300_000, rel=0.01)
    assert targets_of(raced(member("a", *STEADY), member("b", *STEADY))) == ("a",)
    both = raced(member("a", *STALLING), member("b", *STALLING), usd=(1.0, 2.0))
    assert both is not None
    assert (both.targets, both.reason) == (("a",), "a alone: no request beside it would be answered sooner")
    assert both.expected_p95_us == pytest.approx(6_000_000, rel=0.01)
    both = raced(member("a", *STALLING, *[nan] * 100), member("b", *[nan] * 100, *STALLING))
    assert both is not None
    assert (both.targets, both.reason) == (("a",), "a alone: fewer than 59 joint rounds with b")


def test_a_request_that_hardly_gains_is_not_sent() -> None:
    """A request that hardly gains is not sent; a price counts as the objective says, or by the number of requests."""
    nearly = [300.0] * 94 + [310.0] * 6
    assert targets_of(raced(member("a", *nearly), member("b", *nearly), member("c", *nearly))) == ("a",)
    members, usd = (member("a", *STALLING), member("b", *STALLING[::-1])), (1.0, 99.0)
    assert targets_of(raced(*members, usd=usd)) == ("a", "b")
    assert targets_of(raced(*members, usd=usd, weight=100.0)) == ("a",)
    found = raced(member("a", *STALLING), member("b", *STALLING[::-1]), usd=(1.0,))
    assert found is not None
    assert (found.usd_factor, found.reason) == (2.0, "prices are not all known: each request counts the same")


def test_a_failing_member_is_not_raced() -> None:
    """A failing member is not raced, even if its few answers are fast."""
    found = raced(member("a", *STALLING), member("b", *STALLING[::-1]), failing=("b",))
    assert found is not None
    assert (found.targets, found.reason) == (("a",), "a alone: no other member can answer")


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
    """Whatever the delay was when a round was counted, the slowest rounds of all are remembered."""
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
    """A common stall of five vantages counts once: the interval of the hedged p99 reaches it as with one vantage."""
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
    """After an epoch, or after a timeout if that is longer, but after half a window at the latest."""
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


NAN = float("nan")


def test_only_complete_rows_are_joint() -> None:
    """A row counts for those members only that all have a value in it; a member without any has no joint row."""
    rows = joint_rounds(10, a=[100, 200, NAN], b=[300, NAN, 500])
    rounds_at, ttft_us = rows.of("a", "b")
    assert rounds_at.tolist() == [AT - 20]
    assert ttft_us.tolist() == [pytest.approx([100e3, 300e3], rel=0.01)]
    assert [len(rows.of(*names)[0]) for names in (("a",), ("b",), ("c",), ("a", "c"))] == [2, 2, 0, 0]
