"""Ranks of a leaderboard: how often the true rank is among those shown, and how often neighbours are in a wrong order
that the ranks claim.

Each table has ten targets. By latency, each has a median 3 % above that of the one before, of log-normal latencies with
deviation 0.35; by success, each fails 2 points more often, from 1 % on. In tables of equal targets 5 % fail.
"""

from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from scipy.special import ndtri

from bench.truth.intervals import entry_of, exceedances_of, history_with, shares_below
from bench.truth.series import ROUNDS_PER_HOUR, SERIES
from isochrone_collector.analysis.distribution import Values
from isochrone_collector.analysis.history import HOURS, NO_HISTORY, SUCCESS, above_quantile
from isochrone_collector.analysis.leaderboard import standings
from isochrone_collector.analysis.stats.arrays import Integers
from isochrone_wire.answers import Metric, Order

TARGETS = 10
TABLES = 60
DEVIATION = 0.35
STEP = 0.03
_FAILING_ALIKE = 0.05
_INDEPENDENT = "independent normal"
_FAILING = 0.01 + 0.02 * np.arange(TARGETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Tables of a series and a number of rounds, with a week of history or without, in an order."""

    series: str
    rounds: int
    has_history: bool
    order: Order
    is_equal: bool = False


CASES = tuple(
    Case(series=series, rounds=rounds, has_history=known, order=order, is_equal=is_equal)
    for is_equal, series, rounds, known, order in product(
        (False, True),
        (_INDEPENDENT, "AR(.5)", "80 % noise, 20 % drift"),
        (60, 288),
        (False, True),
        (Order.TTFT, Order.SUCCESS),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The percentages of rows whose true rank is among those shown (of equal targets: all ranks), of neighbours in a
    wrong order, of neighbours in a wrong order that the ranks claim, and of the ranks that are excluded; of rows whose
    value has an interval.
    """

    coverage_pct: float
    wrong_neighbours_pct: float
    claimed_pct: float
    excluded_pct: float


def figures(seed: int) -> dict[str, float]:
    """Return the least coverage, the largest percentage of neighbours that are claimed in a wrong order, the percentage
    of equal targets with a rank excluded, and of ranks that are excluded among 288 independent rounds.
    """
    found = ranks(seed)
    different = {case: one for case, one in found.items() if not case.is_equal}
    return {
        "rank_coverage_pct": min(one.coverage_pct for one in different.values()),
        "claimed_wrong_neighbours_pct": max(one.claimed_pct for one in different.values()),
        "equal_ranks_excluded_pct": 100
        - float(np.mean([one.coverage_pct for case, one in found.items() if case.is_equal])),
        "ranks_excluded_pct": min(
            one.excluded_pct for case, one in different.items() if case.rounds > 60 and case.series == _INDEPENDENT
        ),
    }


def ranks(seed: int) -> dict[Case, Found]:
    return {case: measured(case, np.random.default_rng([seed, 10, n])) for n, case in enumerate(CASES)}


def measured(case: Case, chance: np.random.Generator) -> Found:
    tables = [_table(case, chance) for _ in range(TABLES)]
    rows = np.concatenate(tables)
    neighbours = [pair for table in tables for pair in pairwise(table.tolist())]
    best = np.where(case.is_equal, 1, rows[:, 0])
    worst = np.where(case.is_equal, np.repeat([len(table) for table in tables], [len(table) for table in tables]), best)
    return Found(
        coverage_pct=100 * float(np.mean((rows[:, 1] <= best) & (worst <= rows[:, 2]))),
        wrong_neighbours_pct=100 * float(np.mean([one[0] > other[0] for one, other in neighbours])),
        claimed_pct=100 * float(np.mean([one[0] > other[0] and one[2] < other[1] for one, other in neighbours])),
        excluded_pct=100 * float(1 - np.mean((rows[:, 2] - rows[:, 1]) / (TARGETS - 1))),
    )


def _table(case: Case, chance: np.random.Generator) -> Integers:
    """Return the true rank, and the best and the worst one that is shown, of each row of a leaderboard."""
    week = HOURS * ROUNDS_PER_HOUR if case.has_history else 0
    scores = SERIES[case.series](chance, TARGETS, week + case.rounds)
    limits = -ndtri(np.where(case.is_equal, _FAILING_ALIKE, _FAILING))[:, None]
    step = 0.0 if case.is_equal else STEP
    values = 300_000 * np.exp(step * np.arange(TARGETS)[:, None] + DEVIATION * scores)
    past, window, ok = values[:, :week], values[:, week:], (scores <= limits)[:, week:]
    history = NO_HISTORY
    if week and case.order is Order.SUCCESS:
        history = history_with(shares_below(scores[:, :week], limits), SUCCESS)
    elif week:
        history = history_with(exceedances_of(past, 0.5), above_quantile(Metric.TTFT, 0.5))
    entries = [
        entry_of(n, Values.uncensored(own), succeeded=flags)
        for n, (own, flags) in enumerate(zip(window, ok, strict=True))
    ]
    lines = standings(entries, case.order, history, [(Metric.TTFT, 0.5)])
    known = [
        line for line in lines if case.order is Order.SUCCESS or (line.ttft_p50_us and line.ttft_p50_us.low is not None)
    ]
    rows = [(1 + sum(one.target < line.target for one in known), line.rank_low, line.rank_high) for line in known]
    return np.array(rows, np.int64).reshape(-1, 3)
