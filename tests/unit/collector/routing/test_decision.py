"""Each routing rule alone, on inputs written by hand, and the weights: members a and b, the first choice is a."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_collector.routing.decision import Decision, decide
from isochrone_collector.routing.inputs import Inputs, JointRounds, rules_for
from isochrone_collector.routing.objective import cost_of, eligible
from isochrone_collector.routing.present_levels import LEVELS, Present
from isochrone_collector.routing.switch import State, epoch_of, ranked_members, share_among
from isochrone_collector.routing.table import build_table, explain_steps, needs_publishing
from isochrone_collector.routing.weights import UNASSIGNED, caps, ramp, transfer, wanted_weights, within_plan
from isochrone_wire.answers import Proportion, Quantile
from isochrone_wire.insights import Eligible
from isochrone_wire.model import SECOND_US, Objective, Route, Slo, Target
from isochrone_wire.routes import ChangeKind, RouteState
from testdata.routing_worlds import AT, RULES, comparison, evidence, inputs_for, joint_rounds, target_named

EPOCH = RULES.epoch_us
A, B = evidence("a", 350), evidence("b", 350)
NOW = epoch_of(AT, RULES)
# By which the first choice is ahead of members that share its rank.
SLIGHT = 2e-6
# One epoch before AT: a leads, and nobody switched for long.
CALM = State(
    incumbent="a",
    since_at=AT - EPOCH,
    epoch=NOW - 1,
    order=("a", "b"),
    weights={"a": 1.0},
    epoch_weights={"a": 1.0},
    newest_at=AT - 1,
    plan_version=1,
)
BETTER = joint_rounds(a=[410.0] * 72, b=[350.0] * 72)
EQUAL = joint_rounds(a=[350.0] * 72, b=[350.0] * 72)
CHAT = Route(name="r", members=(), slo=Slo(name="chat", ttft_p95_us=SECOND_US))

EXPLAINED = """\
plan 1; window 1h, epoch 5m; 0 of 4 vantages are suspect, 0 of 2 in eu
a keeps the objective: maybe: p95 850 ms [600, 1100], limit 1000 ms
b keeps the objective: yes: p95 700 ms [700, 700], limit 1000 ms
a counts as 437 ms: 350 ms for its median, 50 ms for its p95 beyond the limit, \
37 ms for failures: its success may be as low as 96.3%
b counts as 387 ms: 350 ms for its median, 37 ms for failures: its success may be as low as 96.3%
hard: a does not fail
a against b: slower by 60 ms [30, 90] over 1h
soft: no, b is now ahead, by 0 ms as expected and 50% sure, of a; needed 20 ms and 80%; level 100% sure
decided (ramp): weights move towards a, b
weights: a 75.0% (rank 1), b 25.0% (rank 1)
hedge with b: no, too late to win: what is left of the objective after the delay is less than its median
race: a; p95 352 ms expected (a alone: no request beside it would be answered sooner)
"""


@pytest.mark.parametrize(
    ("goodput", "n_eff", "verdict"),
    [
        (Proportion(value=0.99, low=0.96, high=1.0, n=300), 300.0, Eligible.YES),
        (Proportion(value=0.97, low=0.94, high=0.99, n=300), 300.0, Eligible.MAYBE),
        (Proportion(value=0.59, low=0.49, high=0.68, n=100), 100.0, Eligible.NO),
        (Proportion(value=1.0, low=0.94, high=1.0, n=300), 50.0, Eligible.UNKNOWN),
    ],
)
def test_goodput_decides_on_the_objective(goodput: Proportion, n_eff: float, verdict: Eligible) -> None:
    """A member meets the limits if enough of all requests do, with certainty, whatever its percentile is."""
    found = replace(A, goodput=goodput, goodput_n_eff=n_eff)
    assert eligible(found, CHAT.slo) is verdict


def test_the_whole_answer_can_be_ranked() -> None:
    """With a weight for the whole answer, a member with a later first token and a faster stream comes first."""
    objective = Objective(ttft=1.0, answer=1.0)
    slo = Slo(answer_tokens=500, answer_p95_us=20 * SECOND_US)
    early = replace(evidence("a", 200), answer_p50_us=Quantile(value=9e6, low=8.9e6, high=9.1e6))
    fast = replace(evidence("b", 400), answer_p50_us=Quantile(value=4e6, low=3.9e6, high=4.1e6))
    inputs = inputs_for(early, fast, route=Route(name="r", members=(), slo=slo, objective=objective))
    assert ranked_members(inputs, ["a", "b"]) == ["b", "a"]
    cost = cost_of(inputs, "b")
    assert cost is not None
    assert (cost.answer, round(cost.total)) == (4_000.0, 4_437)
    unknown = inputs_for(evidence("a", 200), fast, route=inputs.route)
    assert cost_of(unknown, "a") is None


def after(epochs: int, inputs: Inputs, state: State = CALM) -> list[Decision]:
    found = []
    for epoch in range(epochs):
        at = inputs.at + epoch * EPOCH
        fresh = tuple(replace(one, newest_at=at) for one in inputs.evidence)
        found.append(decide(replace(inputs, at=at, evidence=fresh), state))
        state = found[-1].state
    return found


def changes(decisions: list[Decision]) -> list[ChangeKind]:
    return [decision.change for decision in decisions]


def test_a_member_that_leads_by_the_margin_takes_over() -> None:
    """Rounds without noise leave no doubt: the first choice changes at once, with all of its weight."""
    found = after(3, inputs_for(A, B, joint=BETTER))
    assert changes(found) == [ChangeKind.SOFT, ChangeKind.EVIDENCE, ChangeKind.EVIDENCE]
    assert [decision.state.weights for decision in found] == [{"b": 1.0}] * 3
    assert found[0].sentence == "a is now behind, by 55 ms as expected and 100% sure, of b"


def noisy(seed: int, *levels_ms: float) -> list[float]:
    """Rounds of these levels with a standard deviation of 45 % of a single value."""
    noise = np.random.default_rng(seed).normal(0, 0.45, len(levels_ms))
    return [float(one) for one in np.array(levels_ms) * np.exp(noise)]


@pytest.mark.parametrize(
    "joint",
    [
        joint_rounds(a=[365.0] * 72, b=[350.0] * 72),  # less than 20 ms
        joint_rounds(a=[290.0] * 72, b=[350.0] * 72),  # the other way round
        joint_rounds(a=[350.0] * 71 + [3500.0], b=[350.0] * 72),  # one outlier
        joint_rounds(a=noisy(1, *[350.0] * 72), b=noisy(2, *[350.0] * 72)),  # noise
        joint_rounds(),  # nothing to compare
    ],
)
def test_a_doubtful_lead_moves_nothing(joint: JointRounds) -> None:
    """A lead below the margin, or one that noise explains, switches nothing however long it lasts."""
    assert not {ChangeKind.SOFT, ChangeKind.FAST} & set(changes(after(8, inputs_for(A, B, joint=joint))))


def test_the_margin_is_a_share_of_a_large_median() -> None:
    """30 ms matter for a median of 350 ms, but not for one of two seconds."""
    slow = [evidence(name, 2000) for name in "ab"]
    assert ChangeKind.SOFT not in changes(
        after(6, inputs_for(*slow, joint=joint_rounds(a=[2030.0] * 72, b=[2000.0] * 72)))
    )
    assert ChangeKind.SOFT in changes(after(6, inputs_for(A, B, joint=joint_rounds(a=[380.0] * 72, b=[350.0] * 72))))


def test_a_sudden_slowdown_is_a_fast_switch() -> None:
    """A level three times as high switches at once, and so does `yes` beside `no`; `maybe` is not enough."""
    sudden = joint_rounds(a=noisy(1, *[350.0] * 66, *[1000.0] * 6), b=noisy(2, *[350.0] * 72))
    decision = decide(inputs_for(A, B, joint=sudden), CALM)
    assert (decision.change, decision.state.incumbent) == (ChangeKind.FAST, "b")
    assert decision.state.weights["b"] > 0.9
    broken = evidence("a", 350, p95_ms=(1100, 1300))
    for p95_ms, kind in (((600, 900), ChangeKind.FAST), ((600, 1200), ChangeKind.EVIDENCE)):
        inputs = inputs_for(broken, evidence("b", 400, p95_ms=p95_ms), route=CHAT)
        assert decide(inputs, CALM).change is kind


def test_a_member_that_keeps_the_objective_less_surely_is_no_challenger() -> None:
    """A better median does not outweigh a limit that may be exceeded."""
    may_break = evidence("b", 200, p95_ms=(900, 1100))
    keeps = evidence("a", 350, p95_ms=(600, 900))
    found = after(6, inputs_for(keeps, may_break, joint=joint_rounds(a=[350.0] * 72, b=[200.0] * 72), route=CHAT))
    assert set(changes(found)) == {ChangeKind.EVIDENCE}


@pytest.mark.parametrize(
    ("ok", "n", "kind"),
    [
        (100, 100, ChangeKind.EVIDENCE),
        (98, 100, ChangeKind.EVIDENCE),
        (90, 100, ChangeKind.HARD),
        (4, 6, ChangeKind.EVIDENCE),
    ],
)
def test_success_under_the_floor_is_a_failure(ok: int, n: int, kind: ChangeKind) -> None:
    """Success certainly below the minimum, with at least three failures, triggers the hard rule."""
    route = Route(name="r", members=(), slo=Slo(min_success=0.99))
    assert decide(inputs_for(evidence("a", 350, ok=ok, n=n), B, route=route), CALM).change is kind


def test_failures_in_a_run_are_failures_of_the_window() -> None:
    """Half of the window failed in one outage: worth few independent probes, and certainly below the minimum."""
    route = Route(name="r", members=(), slo=Slo(min_success=0.9))
    outage = replace(
        evidence("a", 350, ok=36, n=72), success=Proportion(value=0.5, low=0.08, high=0.92, n=72, n_eff=1.6)
    )
    assert eligible(outage, route.slo) is Eligible.NO
    assert decide(inputs_for(outage, B, route=route), CALM).change is ChangeKind.HARD


def test_a_failing_member_hands_over_at_once() -> None:
    """The weight of a failing member goes to the first choice at once; healthy members keep theirs."""
    shared = replace(CALM, sharing=("b",), weights={"a": 0.5, "b": 0.5}, epoch_weights={"a": 0.5, "b": 0.5})
    dead = replace(B, failing_vantages=2, failing_here=2)
    assert decide(inputs_for(A, dead), shared).state.weights == {"a": 1.0}
    hard = decide(inputs_for(replace(A, failing_vantages=2, failing_here=2), B), shared)
    assert (hard.change, hard.state.weights, hard.state.incumbent) == (ChangeKind.HARD, {"b": 1.0}, "b")


@pytest.mark.parametrize(
    ("failed_at", "answered_at", "kind"),
    [(AT, AT, ChangeKind.HARD), (AT, AT - 1, ChangeKind.EVIDENCE), (None, AT, ChangeKind.EVIDENCE)],
)
def test_a_member_that_just_failed_hands_over(failed_at: int | None, answered_at: int, kind: ChangeKind) -> None:
    """If all vantages just failed at the first choice, and reached another member since, the region is not at fault."""
    inputs = inputs_for(replace(A, failed_at=failed_at, answered_at=AT - 9), replace(B, answered_at=answered_at))
    assert decide(inputs, CALM).change is kind


def test_when_all_members_fail_no_traffic_moves() -> None:
    """If all members fail, no traffic moves, and the table is degraded."""
    shared = replace(CALM, sharing=("b",), weights={"a": 0.5, "b": 0.5}, epoch_weights={"a": 0.5, "b": 0.5})
    dead = [replace(one, failing_vantages=2, failing_here=2) for one in (A, B)]
    decision = decide(inputs_for(*dead), shared)
    assert decision.route_state is RouteState.DEGRADED
    assert decision.state.incumbent == "a"
    assert decision.state.weights == pytest.approx(shared.weights, abs=SLIGHT)


def test_equal_members_come_to_share() -> None:
    """Equal members come to share by steps; doubt does not end that, a lead does."""
    found = after(4, inputs_for(A, B, joint=EQUAL))
    assert [decision.state.weights.get("b", 0.0) for decision in found] == pytest.approx(
        [0.25, 0.5, 0.5, 0.5], abs=SLIGHT
    )
    assert [entry.rank for entry in found[-1].entries] == [1, 1]
    assert found[-1].entries[0].weight > found[-1].entries[1].weight
    shared = after(4, inputs_for(A, B, joint=EQUAL))[-1].state
    later = replace(shared, epoch=NOW - 1, levels=replace(shared.levels, until_at=AT - EPOCH))
    doubtful = joint_rounds(a=[350.0] * 71 + [300.0], b=[350.0] * 72)
    assert decide(inputs_for(A, B, joint=doubtful), later).state.weights == pytest.approx(
        {"a": 0.5, "b": 0.5}, abs=SLIGHT
    )
    worse = joint_rounds(a=[350.0] * 66 + [290.0] * 6, b=[350.0] * 72)
    assert decide(inputs_for(A, B, joint=worse), later).state.weights["a"] >= 0.75


def present(**logs: float) -> Present:
    """Levels that are certain: the logarithm of the ratio of two members, such as `ab`."""
    rows = {(pair[0], pair[1]): place for place, pair in enumerate(logs)}
    probabilities = np.array([np.abs(LEVELS - log) == np.abs(LEVELS - log).min() for log in logs.values()], float)
    return Present(rows=rows, probabilities=probabilities, caution=0.0, likely=0.5)


@pytest.mark.parametrize(("ac", "sharing"), [(0.36, ("c",)), (0.0, ())])
def test_who_shares_leads_what_the_first_choice_leads(ac: float, sharing: tuple[str, ...]) -> None:
    """A member that looks level with the first choice shares if it leads the slower member as well, else it waits."""
    known = inputs_for(A, B, evidence("c", 350))
    first = replace(CALM, incumbent="b")
    assert share_among(first, known, present(ab=0.36, bc=0.0, ac=ac), ["a", "b", "c"]).sharing == sharing
    shared = replace(first, sharing=("c",))
    assert share_among(shared, known, present(ab=0.36, bc=0.0, ac=ac), ["a", "b", "c"]).sharing == ("c",)


def test_the_first_choice_of_a_route_is_the_likeliest_one() -> None:
    """Six noisy rounds are not enough for a switch, but for the first choice, because there is nothing to stay with."""
    joint = joint_rounds(a=noisy(1, *[480.0] * 6), b=noisy(2, *[350.0] * 6))
    first = decide(inputs_for(A, B, joint=joint), State())
    assert first.state.incumbent == "b"
    assert decide(inputs_for(A, B, joint=joint), CALM).change is ChangeKind.EVIDENCE


def test_a_price_counts_as_the_objective_says() -> None:
    """Ten dollars a million tokens at 10 ms a dollar are worth 100 ms: the cheaper one wins although it is slower."""
    targets = {"a": target_named("a", usd=20.0), "b": target_named("b", usd=10.0)}
    joint = joint_rounds(a=[350.0] * 72, b=[390.0] * 72)
    for usd, expected in ((0.0, "a"), (10.0, "b")):
        route = Route(name="r", members=(), objective=Objective(usd=usd))
        found = after(4, inputs_for(A, B, joint=joint, targets=targets, route=route))
        assert found[-1].state.incumbent == expected
        assert ChangeKind.FAST not in changes(found)


def test_a_certain_tail_counts_as_the_objective_says() -> None:
    """A certain tail counts by its weight; an objective of only the price needs no latencies."""
    late, in_time = evidence("a", 350, p95_ms=(1200, 1400)), evidence("b", 350, p95_ms=(1010, 1100))
    for tail, expected in ((0.0, "a"), (1.0, "b")):
        route = replace(CHAT, objective=Objective(tail=tail))
        found = after(4, inputs_for(late, in_time, joint=EQUAL, route=route))
        assert found[-1].state.incumbent == expected
    targets = {"a": target_named("a", usd=20.0), "b": target_named("b", usd=10.0)}
    route = Route(name="r", members=(), objective=Objective(ttft=0.0, tail=0.0, usd=10.0, failure=0.0))
    assert after(4, inputs_for(A, B, targets=targets, route=route))[-1].state.incumbent == "b"


def test_one_member_alone_leads() -> None:
    """A route of one member gives it all the weight, failing or not, and has no hedge."""
    for only in (A, replace(A, fails_here=True)):
        decision = decide(inputs_for(only), State())
        assert [(entry.target, entry.weight, entry.hedge) for entry in decision.entries] == [("a", 1.0, None)]


@pytest.mark.parametrize(
    ("targets", "residency", "reason"),
    [
        ({"b": target_named("b", paused=True)}, (), "it is paused"),
        ({"b": target_named("b", region="us-east")}, ("eu",), "its endpoint is in us-east; allowed: eu"),
        ({}, ("eu",), "where its endpoint is is not known; allowed: eu"),
    ],
)
def test_excluded_members_have_a_reason(targets: dict[str, object], residency: tuple[str, ...], reason: str) -> None:
    """A member that is paused or outside the residency is not ranked."""
    known = {"a": target_named("a", region="EU-central"), **targets}
    route = Route(name="r", members=(), residency=residency)
    decision = decide(inputs_for(A, B, targets=known, route=route), State())  # type: ignore[arg-type]  # a table of mixed fields
    assert [(one.target, one.reason) for one in decision.excluded] == [("b", reason)]


def test_a_first_choice_that_is_left_out_is_replaced() -> None:
    """A paused first choice causes a hard switch; a removed one a plan change."""
    paused = decide(inputs_for(A, B, targets={"a": target_named("a", paused=True)}), CALM)
    assert (paused.change, paused.state.incumbent, paused.state.weights) == (ChangeKind.HARD, "b", {"b": 1.0})
    gone = decide(replace(inputs_for(B), plan_version=2), CALM)
    assert (gone.change, gone.state.weights) == (ChangeKind.PLAN, {"b": 1.0})


def test_lost_rounds_do_not_exclude_a_member_with_traffic() -> None:
    """A member with too few recorded rounds is not chosen, but a first choice is kept under the other rules."""
    gaps = replace(A, coverage=0.2)
    reason = "20% of its rounds were recorded; 50% needed"
    assert [one.reason for one in decide(inputs_for(gaps, B), State()).excluded] == [reason]
    found = after(2, inputs_for(gaps, B, joint=BETTER))
    assert changes(found) == [ChangeKind.SOFT, ChangeKind.EVIDENCE]
    assert found[-1].state.weights == {"b": 1.0}
    assert [one.reason for one in found[-1].excluded] == [reason]
    failing = replace(gaps, failing_vantages=2, failing_here=2)
    assert decide(inputs_for(failing, B), CALM).change is ChangeKind.HARD


def test_a_new_plan_publishes_one_table() -> None:
    """A new plan publishes one table even if nothing else changed."""
    first = decide(replace(inputs_for(A, B), plan_version=2), CALM)
    assert first.change is ChangeKind.PLAN
    assert decide(replace(inputs_for(A, B), plan_version=2), first.state).change is ChangeKind.EVIDENCE


def test_a_frozen_route_drops_removed_members() -> None:
    """If the plan removes a member during a freeze, the others keep their weights in proportion."""
    shared = replace(CALM, order=("a", "b", "c"), weights={"a": 0.5, "b": 0.25, "c": 0.25})
    decision = decide(replace(inputs_for(A, B), suspects=4), shared)
    assert decision.route_state is RouteState.FROZEN
    assert decision.state.weights == {"a": pytest.approx(2 / 3, abs=1e-5), "b": pytest.approx(1 / 3, abs=1e-5)}


@pytest.mark.parametrize(
    ("targets", "residency", "reason"),
    [
        ({"a": target_named("a", paused=True)}, (), "it is paused"),
        (
            {
                "a": target_named("a", region="us"),
                "b": target_named("b", region="eu"),
                "c": target_named("c", region="eu"),
            },
            ("eu",),
            "its endpoint is in us; allowed: eu",
        ),
    ],
)
def test_a_freeze_keeps_nothing_forbidden(targets: dict[str, Target], residency: tuple[str, ...], reason: str) -> None:
    """A freeze sends nothing where the plan forbids it: the best of the others gets it all."""
    known = replace(CALM, order=("a", "c", "b"))
    route = Route(name="r", members=(), residency=residency)
    unsampled = evidence("c", 350, ok=1, n=1)
    inputs = replace(inputs_for(A, B, unsampled, targets=targets, route=route), suspects=4, plan_version=2)
    frozen = decide(inputs, known)
    assert frozen.route_state is RouteState.FROZEN
    assert [(entry.target, entry.weight) for entry in frozen.entries] == [("c", 1.0), ("b", 0.0)]
    assert [(one.target, one.reason) for one in frozen.excluded] == [("a", reason)]
    assert frozen.change is not ChangeKind.EVIDENCE


def test_a_member_forbidden_in_a_freeze_returns_in_steps() -> None:
    """Permitted again, a member regains weight in steps; without state or samples the static order holds."""
    frozen = decide(replace(inputs_for(A, B, targets={"a": target_named("a", paused=True)}), suspects=4), CALM)
    assert frozen.state.weights == {"b": 1.0}
    assert decide(inputs_for(A, B), frozen.state).state.weights == {"a": 0.25, "b": 0.75}
    within = replace(frozen.state, epoch=NOW)
    assert decide(inputs_for(A, B), within).state.weights == {"a": 0.25, "b": 0.75}
    decision = decide(replace(inputs_for(A, B), suspects=4), State())
    assert (decision.route_state, decision.entries) == (RouteState.INSUFFICIENT_DATA, ())
    route = Route(name="r", members=(), static_order=("b",))
    inputs = inputs_for(evidence("a", 350, ok=3, n=3), evidence("b", 350, ok=0, n=0), route=route)
    table = build_table(inputs, decide(inputs, State()), generation=1, code_version="1")
    assert (table.state, table.entries, table.static_order) == (RouteState.INSUFFICIENT_DATA, (), ("b",))


def test_a_table_is_as_fresh_as_its_newest_sample() -> None:
    """A table built again from old samples keeps its instants and is not published."""
    inputs = inputs_for(A, B)
    decision = decide(inputs, CALM)
    table = build_table(inputs, decision, generation=1, code_version="1")
    assert (table.fresh_until_at, table.stale_until_at) == (AT + 2 * EPOCH, AT + 6 * EPOCH)
    later = replace(inputs, at=AT + EPOCH)
    again = decide(later, decision.state)
    assert build_table(later, again, generation=2, code_version="1").fresh_until_at == table.fresh_until_at
    assert not needs_publishing(table, again, later)
    newer = replace(later, evidence=(replace(A, newest_at=AT + 1), B))
    assert needs_publishing(table, decide(newer, decision.state), newer)


def test_a_clock_that_is_ahead_makes_nothing_fresher() -> None:
    """The newest sample is never from the future, whatever a stored state or table contains."""
    ahead = AT + 9 * EPOCH
    inputs = inputs_for(replace(A, newest_at=ahead), B)
    decision = decide(inputs, replace(CALM, newest_at=ahead))
    assert decision.newest_at == AT
    table = build_table(inputs, decision, generation=1, code_version="1")
    assert table.fresh_until_at == AT + RULES.fresh_us
    assert not needs_publishing(table, decision, inputs)
    assert needs_publishing(replace(table, fresh_until_at=ahead + RULES.fresh_us), decision, inputs)


def test_no_rule_acts_on_old_samples() -> None:
    """After two epochs without a sample, no rule switches: not a sudden change, a challenge or failures."""
    dead = replace(A, failing_vantages=2, failing_here=2)
    inputs = replace(inputs_for(dead, B, joint=BETTER), at=AT + 2 * EPOCH + 1)
    decision = decide(inputs, replace(CALM, newest_at=AT))
    assert decision.state.incumbent == "a"


def test_rules_follow_the_slowest_member() -> None:
    """An epoch has six rounds of the slowest member, within bounds, and the windows so many epochs."""
    assert rules_for([30 * SECOND_US, 60 * SECOND_US]).epoch_us == 360 * SECOND_US
    assert rules_for([SECOND_US]).epoch_us == 10 * SECOND_US
    assert rules_for([86_400 * SECOND_US]).epoch_us == 1800 * SECOND_US
    rules = rules_for([50 * SECOND_US])
    assert rules == RULES


def test_an_explanation_follows_the_rules() -> None:
    """An explanation has bounds, cost by terms, each rule with what it lacks, and the outcome, in this order."""
    compared = comparison("a", "b", 30, 90)
    inputs = inputs_for(evidence("a", 350, p95_ms=(600, 1100)), B, compared=(compared,), route=CHAT, joint=EQUAL)
    assert explain_steps(inputs, CALM, decide(inputs, CALM)) == tuple(EXPLAINED.splitlines())


@pytest.mark.parametrize(
    ("ms", "sentences"),
    [
        (-60, ["a against b: faster by 60 ms [30, 90] over 1h", "soft: no, b is now behind, by "]),
        (60, ["a against b: slower by 60 ms [30, 90] over 1h", "soft: yes, b is now ahead, by "]),
    ],
)
def test_sentences_state_the_direction(ms: float, sentences: list[str]) -> None:
    """A member is faster or slower, ahead or behind, by a positive amount; the interval has the same direction."""
    compared, joint = comparison("a", "b", ms - 30, ms + 30), joint_rounds(a=[350.0 + ms] * 72, b=[350.0] * 72)
    inputs = inputs_for(evidence("a", 350), B, compared=(compared,), route=CHAT, joint=joint)
    text = "\n".join(explain_steps(inputs, CALM, decide(inputs, CALM)))
    for sentence in sentences:
        assert sentence in text


NAMES = ("a", "b", "c")


def inputs(shares: dict[str, float] | None = None, throttled: dict[str, float] | None = None) -> Inputs:
    """Three members with these largest shares, of which some throttle."""
    known = [
        replace(evidence(name, 350 + place), throttled_high=(throttled or {}).get(name, 0.0))
        for place, name in enumerate(NAMES)
    ]
    return inputs_for(*known, route=Route(name="r", members=NAMES, max_share=shares or {}))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_equal_parts_add_up(count: int) -> None:
    """Thirds too add up to one, in whole millionths."""
    parts = wanted_weights(inputs(), NAMES[:count], NAMES[count:])
    assert len(parts) == count
    assert sum(round(part * 1e6) for part in parts.values()) == 1_000_000


def test_weights_ramp_and_are_handed_over() -> None:
    """No weight moves by more than a step; the weight of a removed member is transferred."""
    assert ramp({"a": 1.0}, {"b": 0.5, "c": 0.5}, step=0.25) == {"a": 0.75, "b": 0.125, "c": 0.125}
    assert ramp({}, {"b": 1.0}, step=0.25) == {"b": 1.0}
    assert transfer({"a": 0.5, "b": 0.25, "c": 0.25}, ["a"], "b") == {"b": 0.75, "c": 0.25}


@pytest.mark.parametrize(
    ("shares", "throttled", "sharing", "others", "weights"),
    [
        ({"a": 0.6}, {}, "a", "bc", {"a": 0.6, "b": 0.4}),
        ({"a": 0.6, "b": 0.3}, {}, "a", "bc", {"a": 0.6, "b": 0.3, "c": 0.1}),
        ({"a": 0.6, "b": 0.3}, {}, "a", "b", {"a": 0.6, "b": 0.3, UNASSIGNED: 0.1}),
        ({"a": 0.2}, {}, "ab", "c", {"a": 0.2, "b": 0.8}),
        ({}, {"a": 0.25}, "a", "b", {"a": 0.75, "b": 0.25}),
        ({"a": 0.8}, {"a": 0.25}, "a", "b", {"a": 0.6, "b": 0.4}),
        ({}, {"a": 0.25}, "a", "", {"a": 1.0}),  # no other member has room
        ({}, {"a": 0.5, "b": 0.75}, "a", "b", {"a": 0.75, "b": 0.25}),
    ],
)
def test_what_is_beyond_a_share_goes_to_the_next(
    shares: dict[str, float], throttled: dict[str, float], sharing: str, others: str, weights: dict[str, float]
) -> None:
    """Members fill up in rank order, to what the plan and their throttling allow, then to what the plan allows."""
    assert wanted_weights(inputs(shares, throttled), [*sharing], [*others]) == weights


share = st.floats(0.05, 1.0)


@given(
    st.dictionaries(st.sampled_from(NAMES), share),
    st.dictionaries(st.sampled_from([*NAMES, UNASSIGNED]), share, min_size=1),
    st.permutations(NAMES),
)
def test_no_member_exceeds_its_share(shares: dict[str, float], weights: dict[str, float], order: list[str]) -> None:
    """Whatever moved, the weights add up to 1 with what is unassigned, and none is above the plan's share."""
    total = sum(weights.values())
    found = within_plan(inputs(shares), {name: weight / total for name, weight in weights.items()}, order)
    assert sum(round(weight * 1e6) for weight in found.values()) == 1_000_000
    assert all(found.get(name, 0.0) <= limit + 3e-6 for name, limit in shares.items())


def test_a_hard_switch_keeps_the_shares_of_the_plan() -> None:
    """When the first choice fails, its traffic goes to the next members up to their shares; the rest is unassigned."""
    dead = replace(evidence("a", 350), failing_vantages=2, failing_here=2, fails_here=True)
    route = Route(name="r", members=NAMES, max_share={"b": 0.5, "c": 0.3})
    found = inputs_for(dead, evidence("b", 360), evidence("c", 370), route=route)
    state = State(
        incumbent="a",
        since_at=AT - EPOCH,
        epoch=epoch_of(AT, RULES) - 1,
        order=NAMES,
        weights={"a": 1.0},
        epoch_weights={"a": 1.0},
        newest_at=AT - 1,
        plan_version=1,
    )
    decision = decide(found, state)
    assert decision.change is ChangeKind.HARD
    assert decision.state.weights == {"b": 0.5, "c": 0.3, UNASSIGNED: 0.2}
    table = build_table(found, decision, generation=1, code_version="test")
    assert table.unassigned == 0.2
    assert sum(entry.weight for entry in table.entries) + table.unassigned == pytest.approx(1.0)
    assert table.move_within_us == EPOCH // 10
    # In the next epochs nothing returns to a member that fails, and no share is exceeded.
    later = decide(replace(found, at=AT + EPOCH), decision.state)
    assert later.state.weights == decision.state.weights


def test_a_throttled_member_gives_up_traffic_at_once() -> None:
    """Throttling is a lack of capacity, not a failure: the member stays first, and gives up what is refused."""
    found = inputs(throttled={"a": 0.6})
    assert caps(found)["a"] == pytest.approx(0.4)
    state = State()
    shares = []
    for epoch in range(5):
        at = AT + epoch * EPOCH
        fresh = tuple(replace(one, newest_at=at) for one in found.evidence)
        decision = decide(replace(found, at=at, evidence=fresh), state)
        state = decision.state if epoch else replace(decision.state, weights={"a": 1.0}, epoch_weights={"a": 1.0})
        shares.append(decision.entries[0].weight)
        assert decision.entries[0].target == "a"
    assert shares[1:] == pytest.approx([0.4, 0.4, 0.4, 0.4])
