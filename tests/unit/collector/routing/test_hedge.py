"""Hedges: recommended only if joint rounds show that they shorten the p99."""

from dataclasses import replace

import pytest

from isochrone_collector.routing.decision import decide
from isochrone_collector.routing.inputs import Comparison, Evidence, Inputs
from isochrone_collector.routing.parallel_requests import Gains, Tail, hedge, known_gains, stall_lift
from isochrone_collector.routing.switch import State
from isochrone_wire.answers import Quantile
from isochrone_wire.model import Route, Slo
from testdata.routing_inputs import RULES, evidence, inputs_for, joint_rounds

DELAY_MS = 400.0


def known(name: str) -> Evidence:
    delay = Quantile(value=DELAY_MS * 1e3, low=390e3, high=410e3)
    return replace(evidence(name, 300.0), ttft_p95_us=delay)


A, B = known("a"), known("b")


def pair(slow: tuple[int, int, int] = (5, 5, 0), *, joint: int = 100, slo_ms: int | None = None) -> Inputs:
    """A and b, with so many slow rounds of each and of both among the joint ones."""
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
        (
            pair(),
            (tail(*[700.0] * 10, rounds=298),),
            "too few joint rounds: 298 of 299 for a 99th percentile",
        ),
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


CERTAIN, UNCERTAIN, NONE = (
    (tail(*[700.0] * 10),),
    (tail(*[700.0] * 9, 5900.0),),
    (tail(*[700.0] * 7, *[5900.0] * 3),),
)


def test_a_known_gain_lasts_until_the_p99_does_not_show_it() -> None:
    """One common stall makes a gain uncertain: it does not become known so, but a known one stays; a p99 without the
    gain ends it, and then it has to be certain again.
    """
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
    """The first table with certainty publishes the hedge, and the next ones keep it; an outage of the second choice
    suspends it.
    """
    failing = replace(pair(), evidence=(A, replace(B, fails_here=True)))
    state = State(order=("a", "b"), incumbent="a", weights={"a": 1.0}, tails={"a": {"b": CERTAIN}}, tails_until_at=1)
    published = []
    for inputs, tails in ((pair(), CERTAIN), (pair(), UNCERTAIN), (failing, UNCERTAIN), (pair(), UNCERTAIN)):
        decision = decide(inputs, replace(state, tails={"a": {"b": tails}}, tails_until_at=1))
        state = decision.state
        found = decision.entries[0].hedge
        published.append(found is not None and found.delay_us is not None)
    assert published == [True, True, False, True]
