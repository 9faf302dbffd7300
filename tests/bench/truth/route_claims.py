"""Verdicts of route tables on an objective with known truth, in the worlds of `verdicts`.

A table has two members and two regions, and a window of 72 rounds of five minutes with one vantage or four.
"""

from collections.abc import Iterator

import numpy as np

from bench.truth.verdicts import EVERY_US, EXCESS, ROUNDS, WORLDS, Outcomes, history_of, outcomes
from isochrone_collector.analysis.history import HOURS, NO_HISTORY, History
from isochrone_collector.analysis.probes import Kind
from isochrone_collector.routing.decision import decide
from isochrone_collector.routing.inputs_builder import build_inputs
from isochrone_collector.routing.switch import State
from isochrone_wire.insights import Eligible
from isochrone_wire.model import Slo
from isochrone_wire.routes import RouteEntry
from testdata.routing_worlds import START_AT, plan_of, probe_table, target

DRAWS = 200
_REGIONS, _MEMBERS = ("r0", "r1"), 2
_ROWS = len(_REGIONS) * _MEMBERS
_WINDOW_ROUNDS, _HOUR_ROUNDS = 72, 12


def wrong_yes_pct(seed: int, *, has_history: bool) -> dict[str, float]:
    """Return the percentage of "yes" of members whose truth is "no", by world and number of requests."""
    return {
        f"{name}, n {n}": _share(entries_of(name, seed, n=n, has_history=has_history))
        for name in WORLDS
        for n in ROUNDS
    }


def right_yes_pct(seed: int) -> float:
    """Return the percentage of "yes" of independent series whose p95 is half of the limit, with a week."""
    return _share(entries_of(WORLDS[0], seed, n=ROUNDS[-1], has_history=True, excess=0.5))


def _share(entries: Iterator[RouteEntry]) -> float:
    return 100 * float(np.mean([entry.slo_eligible is Eligible.YES for entry in entries]))


def entries_of(
    name: str, seed: int, *, n: int, has_history: bool, excess: float = EXCESS, draws: int = DRAWS
) -> Iterator[RouteEntry]:
    """Yield the entries of tables in one world, one per draw."""
    vantages = n // _WINDOW_ROUNDS
    week = HOURS * _HOUR_ROUNDS * vantages if has_history else 0
    chance = np.random.default_rng([seed, 12, WORLDS.index(name), n])
    past, window = outcomes(name, chance, draws, week + n, excess=excess).split(week)
    keys = [
        (table * _MEMBERS + member + 1, region)
        for table in range(draws // _ROWS)
        for region in _REGIONS
        for member in range(_MEMBERS)
    ]
    history = history_of(past, keys) if has_history else NO_HISTORY
    for table in range(draws // _ROWS):
        yield from _table(table, window, vantages, history)


def _table(table: int, window: Outcomes, vantages: int, history: History) -> Iterator[RouteEntry]:
    rows = slice(table * _ROWS, (table + 1) * _ROWS)
    targets = [target(table * _MEMBERS + member, every_us=EVERY_US) for member in range(_MEMBERS)]
    plan = plan_of(*targets, slo=Slo(ttft_p95_us=round(window.limit_us)))
    failed, start_at = window.failed[rows], START_AT // EVERY_US * EVERY_US
    region, member, rounds, vantage = (
        own.ravel() for own in np.indices((len(_REGIONS), _MEMBERS, _WINDOW_ROUNDS, vantages))
    )
    probes = probe_table(
        [one.name for one in targets],
        _REGIONS,
        member=member,
        region=region,
        vantage_id=1 + region * vantages + vantage,
        round_at=start_at + rounds * EVERY_US,
        kind=np.where(failed, int(Kind.FAILED), int(Kind.OK)).ravel(),
        ttft_us=np.where(failed, np.nan, window.latencies_us[rows]).ravel(),
    )
    at = start_at + _WINDOW_ROUNDS * EVERY_US
    for inputs in build_inputs(plan.routes[0], plan, probes, regions=_REGIONS, at=at, history=history):
        yield from decide(inputs, State()).entries
