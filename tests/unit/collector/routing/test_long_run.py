"""What a route table claims of its members in the long run, and what it acts on."""

from dataclasses import replace

import numpy as np
import pytest

from bench.truth import route_claims, verdicts
from isochrone_collector.analysis.history import HOURS, NO_HISTORY, SUCCESS, History, Levels, SeriesLevels, median_of
from isochrone_collector.analysis.probes import Kind
from isochrone_collector.routing import serialization
from isochrone_collector.routing.decision import Decision, decide
from isochrone_collector.routing.inputs import Inputs
from isochrone_collector.routing.inputs_builder import build_inputs
from isochrone_collector.routing.long_run import quantities
from isochrone_collector.routing.switch import State
from isochrone_collector.routing.table import explain_steps
from isochrone_wire.answers import Metric
from isochrone_wire.insights import Eligible
from isochrone_wire.model import Slo
from testdata.routing_worlds import EVERY_US, START_AT, plan_of, probe_table, target

ROUNDS = 288
TARGETS = (target(0), target(1))
RELIABLE = Slo(min_success=0.95)


def made(history: History = NO_HISTORY) -> Inputs:
    member, rounds = (own.ravel() for own in np.indices((2, ROUNDS)))
    probes = probe_table(
        [one.name for one in TARGETS],
        ["r0"],
        member=member,
        vantage_id=1 + rounds % 4,
        round_at=START_AT + rounds // 4 * EVERY_US,
        kind=np.full(2 * ROUNDS, Kind.OK),
        ttft_us=np.full(2 * ROUNDS, 350_000.0),
    )
    plan = plan_of(*TARGETS, slo=RELIABLE)
    at = START_AT + ROUNDS // 4 * EVERY_US
    (found,) = build_inputs(plan.routes[0], plan, probes, regions=["r0"], at=at, history=history)
    return found


def week(outage_hours: int) -> History:
    """A week in which the first member failed for some hours in the middle, and the second never."""
    shares = np.ones((2, HOURS))
    shares[0, 80 : 80 + outage_hours] = 0.0
    series = {(one.id, "r0"): place for place, one in enumerate(TARGETS)}
    levels = Levels(values=shares, noise=np.zeros(2))
    return History(levels={SUCCESS: SeriesLevels(series=series, from_at=np.zeros(2, np.int64), levels=levels)})


def verdicts_of(decision: Decision) -> list[tuple[Eligible, Eligible]]:
    """The verdicts on the long run and on the window, by name of the member."""
    ordered = sorted(decision.entries, key=lambda entry: entry.target)
    return [(entry.slo_eligible, entry.slo_in_window) for entry in ordered]


@pytest.mark.parametrize("has_history", [False, True])
@pytest.mark.parametrize("n", verdicts.ROUNDS)
@pytest.mark.parametrize("name", verdicts.HIDDEN)
def test_a_clean_window_of_a_route_proves_nothing(name: str, n: int, has_history: bool) -> None:  # noqa: FBT001  # a case
    """Members that miss the objective in runs or under drift are called "yes" in at most 5 %."""
    found = route_claims.entries_of(name, 5, n=n, has_history=has_history, draws=80)
    assert np.mean([entry.slo_eligible is Eligible.YES for entry in found]) <= 0.05


def test_a_steady_week_proves_what_a_window_cannot() -> None:
    """A steady week proves what a window cannot; an outage of the week changes the claim, not the order."""
    assert verdicts_of(decide(made(), State())) == [(Eligible.MAYBE, Eligible.YES)] * 2
    assert verdicts_of(decide(made(week(0)), State())) == [(Eligible.YES, Eligible.YES)] * 2
    decision = decide(made(week(20)), State())
    assert verdicts_of(decision) == [(Eligible.MAYBE, Eligible.YES), (Eligible.YES, Eligible.YES)]
    assert [entry.target for entry in decision.entries] == [one.name for one in TARGETS]


def test_the_claim_is_part_of_the_inputs() -> None:
    """A replay from the stored inputs needs no week: it has the same entries, and the steps state both verdicts."""
    inputs = made(week(20))
    again = serialization.load(Inputs, serialization.dump(inputs))
    decision = decide(again, State())
    assert decision.entries == decide(inputs, State()).entries
    steps = explain_steps(again, State(), decision)
    assert any("p0/m keeps the objective: maybe, in this window yes: success" in step for step in steps)
    assert any("p1/m keeps the objective: yes: success" in step for step in steps)


def test_only_the_quantities_of_the_objective_are_read() -> None:
    """The week of whole answers is read for objectives that know their length."""
    metrics = {metric for metric, _ in quantities(Slo())}
    assert metrics == {SUCCESS[0], Metric.TTFT}
    assert {metric for metric, _ in quantities(Slo(answer_tokens=9))} - metrics == {Metric.E2E}
    assert median_of(Metric.TTFT) not in quantities(replace(RELIABLE, ttft_p95_us=1))
