"""Route decisions of the collector against simple rules: extra mean TTFT over the best member, and moves.

Every rule decides at the end of an epoch, six rounds, for the next one, and has one set of parameters for all worlds,
tuned on other seeds. A move is a change of the member with the greatest weight; never-move starts on a random member.

usage: python -m bench.decide [--seed N] [--tune] prints a line per world and a RESULT line; exit 1 if a goal is missed
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import log
from statistics import fmean

import numpy as np

from bench.decide.rules import GRID, TUNED
from bench.decide.worlds import DAY_S, RETRY_MS, TIGHT_SHARE, WORLDS, Course, World, course
from bench.result import at_most, conclude
from bench.truth.routing import week
from isochrone_collector.analysis.history import NO_HISTORY
from isochrone_collector.analysis.probes import Kind
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_collector.routing.decision import decide
from isochrone_collector.routing.evidence import ProbeTable
from isochrone_collector.routing.inputs import ROUNDS_PER_EPOCH
from isochrone_collector.routing.inputs_builder import build_inputs, rules_of
from isochrone_collector.routing.switch import State
from isochrone_wire.model import SECOND_US
from testdata.routing_worlds import START_AT, plan_of, probe_table, target

SEED, TUNING_SEED = 20261127, 1
# A regret below this is small, in milliseconds: the ratio to another small one says nothing.
SMALL_MS = 5.0
GOALS = {
    "worst_regret_ratio": at_most(1.0),
    "worst_small_regret_ms": at_most(SMALL_MS),
    "moves_a_day_equal": at_most(1.0),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The regret of a rule in milliseconds, and its moves a day."""

    regret_ms: float
    moves: float


def outcome(found: Course, weights: Reals) -> Outcome:
    """Judge the weights by epoch and member; they hold in the next epoch."""
    after = ROUNDS_PER_EPOCH * np.arange(1, len(weights))
    regret = [
        _regret_ms(found, slice(start, start + ROUNDS_PER_EPOCH), own)
        for start, own in zip(after.tolist(), weights[:-1], strict=True)
    ]
    first = weights.argmax(axis=1)
    days = len(found.cost_ms) * found.world.every_s / DAY_S
    return Outcome(fmean(regret), float((first[1:] != first[:-1]).sum()) / days)


def _regret_ms(found: Course, rounds: slice, weights: Reals) -> float:
    """Return the extra cost of these weights. What is beyond half of the traffic of a tight member is retried.

    An outage that begins after the decision costs the mean of the members: it hits any of them, and without this the
    luckiest of several rules would look the best.
    """
    cost = found.cost_ms[rounds]
    retried = (found.is_tight[rounds] * np.maximum(weights - TIGHT_SHARE, 0.0)).sum(axis=1) * RETRY_MS
    is_new = found.failed[rounds].any(axis=(1, 2)) & ~found.failed[rounds.start - 1].any()
    spent = np.where(is_new, cost.mean(axis=1), cost @ weights + retried)
    return float((spent - cost.min(axis=1)).mean())


def one_hot(chosen: Integers, members: int) -> Reals:
    """Return the weights of a rule that chooses one member."""
    return np.asarray(np.eye(members)[chosen])


def isochrone(found: Course, seed: int) -> Outcome:
    world = found.world
    plan = plan_of(*(target(place, every_us=world.every_s * SECOND_US) for place in range(world.members)))
    history = week([seed, 5], [one.id for one in plan.targets], 0.45) if world.has_history else NO_HISTORY
    rules, names, state = rules_of(plan.routes[0], plan), [one.name for one in plan.targets], State()
    rows = []
    for at, probes in _tables(found, names, rules.epoch_us, rules.window_us):
        (inputs,) = build_inputs(plan.routes[0], plan, probes, regions=["r0"], at=at, history=history)
        decision = decide(inputs, state)
        state = decision.state
        own = {entry.target: entry.weight for entry in decision.entries}
        rows.append([own.get(name, 0.0) for name in names] if own else [1.0 / len(names)] * len(names))
    return outcome(found, np.array(rows))


def _tables(found: Course, names: list[str], epoch_us: int, window_us: int) -> Iterator[tuple[int, ProbeTable]]:
    """Yield the end of each epoch and the probes of the window before it."""
    every_us = found.world.every_s * SECOND_US
    rounds, members, vantages = (one.ravel() for one in np.indices(found.ttft_ms.shape))
    kinds = np.where(found.throttled, int(Kind.THROTTLED), np.where(found.failed, int(Kind.FAILED), int(Kind.OK)))
    kind, values = kinds.ravel(), found.ttft_ms.ravel() * 1000
    start_at = START_AT // epoch_us * epoch_us
    each = members.size // len(found.ttft_ms)
    for epoch in range(len(found.ttft_ms) // ROUNDS_PER_EPOCH):
        at = start_at + (epoch + 1) * epoch_us
        until = (epoch + 1) * ROUNDS_PER_EPOCH
        own = slice(max(until - window_us // every_us, 0) * each, until * each)
        probes = probe_table(
            names,
            ["r0"],
            member=members[own],
            vantage_id=vantages[own],
            round_at=start_at + rounds[own] * every_us,
            kind=kind[own],
            ttft_us=np.where(kind[own] == int(Kind.OK), values[own], np.nan),
        )
        yield at, probes


def simple(found: Course, parameters: Mapping[str, tuple[float, float]]) -> dict[str, Outcome]:
    members = found.world.members
    outcomes = {
        name: outcome(found, one_hot(GRID[name][chosen](found), members)) for name, chosen in parameters.items()
    }
    epochs = len(found.cost_ms) // ROUNDS_PER_EPOCH
    return {"never": outcome(found, np.full((epochs, members), 1 / members))} | outcomes


def measured(job: tuple[World, int]) -> tuple[Outcome, dict[str, Outcome]]:
    found = course(*job)
    return isochrone(found, job[1]), simple(found, TUNED)


def tune() -> None:
    """Print the best parameters of each rule over all worlds: the least mean logarithm of the regret."""
    courses = [found for world in WORLDS if not (found := course(world, TUNING_SEED)).world.is_equal]
    for name, sets in GRID.items():
        scores = {
            chosen: fmean(log(max(simple(found, {name: chosen})[name].regret_ms, 0.1)) for found in courses)
            for chosen in sets
        }
        _line(f"{name}: {min(scores, key=scores.__getitem__)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.decide")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--tune", action="store_true", help="print the best parameters of the simple rules, and end")
    options = parser.parse_args()
    if options.tune:
        tune()
        return 0
    jobs = sorted(((world, options.seed) for world in WORLDS), key=lambda job: -job[0].days / job[0].every_s)
    ratios, small, equal = [0.0], [0.0], [0.0]
    _line(f"{'regret in ms (moves a day)':<45}{'Isochrone':>14}" + "".join(f"{name:>14}" for name in ("never", *TUNED)))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for (world, _), (own, others) in zip(jobs, pool.map(measured, jobs), strict=True):
            best_ms = min(one.regret_ms for one in others.values())
            if world.is_equal:
                equal.append(own.moves)
            elif best_ms > SMALL_MS:
                ratios.append(own.regret_ms / best_ms)
            else:
                small.append(own.regret_ms)
            cells = [f"{one.regret_ms:.1f} ({one.moves:.1f})" for one in (own, *others.values())]
            _line(f"{world.name:<45}" + "".join(f"{cell:>14}" for cell in cells))
    figures = {
        "worst_regret_ratio": max(ratios),
        "worst_small_regret_ms": max(small),
        "moves_a_day_equal": max(equal),
        "seed": float(options.seed),
    }
    return conclude(figures, GOALS)


def _line(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # a bench prints


if __name__ == "__main__":
    sys.exit(main())
