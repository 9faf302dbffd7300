"""Coverage of 95 % intervals of differences, quantiles and success: the share that contains the truth of the long run,
with and without the history of a week. Quantiles and success are those of a leaderboard.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.truth.series import ROUNDS_PER_HOUR, SERIES, TAILS, ragged_of
from isochrone_collector.analysis.distribution import Distribution, OutcomeCounts, Values
from isochrone_collector.analysis.history import (
    HOURS,
    NO_HISTORY,
    SUCCESS,
    History,
    Levels,
    Quantity,
    SeriesLevels,
    above_quantile,
)
from isochrone_collector.analysis.leaderboard import Entry, standings
from isochrone_collector.analysis.stats.arrays import Flags, Reals
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation, independent
from isochrone_collector.analysis.stats.shifts import Shifts, paired_shifts
from isochrone_wire.answers import Metric
from isochrone_wire.insights import Standing

ROWS = 4_000
QUANTILE_ROWS = 500
_TRUTH_ROWS, _TRUTH_ROUNDS = 400, 5_000
_Z = 1.959964
_MEDIAN = 0.5
_FEW_SHOWN = 0.1
REGION = "here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A series, a number of rounds, with history or without; the coverage must reach `least` (0: no goal), and the mean
    width of intervals, relative to those for independent values, stay within `widest`.
    """

    series: str
    n: int
    least: float
    has_history: bool = False
    widest: float | None = None
    share: float | None = None
    is_success: bool = False

    @property
    def quantity(self) -> str:
        """The quantity of the interval: a difference, or with a `share` a quantile or the requests below it."""
        if self.share is None:
            return "difference"
        return f"success of {100 * self.share:g} %" if self.is_success else f"p{100 * self.share:g}"


CASES = (
    *(Case(series=name, n=n, least=0.94, widest=1.25) for name in list(SERIES)[:2] for n in (24, 60, 288)),
    *(Case(series=name, n=n, least=0.9) for name in ("AR(.5)", "AR(.8)") for n in (60, 288)),
    Case(series="80 % noise, 20 % drift", n=288, least=0.8),
    *(Case(series="80 % noise, 20 % drift", n=n, least=0.9, has_history=True) for n in (60, 288)),
)


RANKED_CASES = tuple(
    Case(series=name, n=288, least=0.9, has_history=True, share=share, is_success=is_success)
    for name in SERIES
    for share, is_success in ((0.5, False), (0.95, False), (0.9, True))
)

CASES_WITHOUT_WEEK = tuple(
    Case(series=name, n=n, least=0.0, share=share) for n, share in ((24, 0.5), (60, 0.5), (288, 0.5)) for name in SERIES
)
"""Medians of series without a week. They have no goal: `docs/statistics.md` states their coverage."""

TAIL_CASES = tuple(
    Case(series=name, n=n, least=0.0, share=0.95, has_history=has_history)
    for has_history in (False, True)
    for n in (60, 288)
    for name in TAILS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The measured coverage and relative width of the intervals of one case, the share of rows that have one, and the
    share of lower bounds, with or without an upper one, that hold.
    """

    case: Case
    coverage: float
    width: float
    shown: float = 1.0
    at_least: float = 1.0

    @property
    def is_met(self) -> bool:
        return not self.coverage < self.case.least and (self.case.widest is None or self.width <= self.case.widest)


def measured(seed: int) -> tuple[Coverage, ...]:
    return tuple(_coverage(case, seed) for case in CASES)


def measured_standings(seed: int, cases: Sequence[Case] = RANKED_CASES) -> tuple[Coverage, ...]:
    """Measure cases of leaderboards. A quantile that is refused an interval counts neither way."""
    return tuple(_ranked_coverage(case, seed) for case in cases)


def tails(covered: Sequence[Coverage]) -> dict[str, float]:
    """Return figures of the tail cases: the coverage of all intervals that are shown, the worst one of series of
    which a tenth have one, the worst coverage of lower bounds, and the share of rows with an interval, of the usual
    series after 288 rounds with a week.
    """
    shown = np.array([one.shown for one in covered])
    held = np.array([one.shown * one.coverage if one.shown else 0.0 for one in covered])
    usual = [one.shown for one in covered if one.case.has_history and one.case.n > 60 and one.case.series in SERIES]
    return {
        "p95_shown_coverage_pct": 100 * float(held.sum() / shown.sum()),
        "p95_worst_coverage_pct": 100 * min(one.coverage for one in covered if one.shown >= _FEW_SHOWN),
        "p95_at_least_coverage_pct": 100 * min(one.at_least for one in covered),
        "p95_shown_pct": 100 * float(np.mean(usual)),
    }


def levels_of(values: Reals) -> Levels:
    """Return the hourly medians of rows of rounds, whose length is a week."""
    hours = np.sort(values.reshape(len(values), HOURS, ROUNDS_PER_HOUR), axis=2)
    middle = ROUNDS_PER_HOUR // 2
    medians = (hours[:, :, middle - 1] + hours[:, :, middle]) / 2
    # The ranks 3 and 10 of twelve values bound the median with 96 %.
    variances = ((hours[:, :, 9] - hours[:, :, 2]) / (2 * _Z)) ** 2
    return Levels(values=medians, noise=variances.mean(axis=1))


def past_and_window(case: Case, rows: int, seed: int) -> tuple[Reals, Reals]:
    """Return a week of rounds of so many series, and the window that follows."""
    chance = np.random.default_rng([seed, case.n, list(TAILS).index(case.series)])
    week = HOURS * ROUNDS_PER_HOUR if case.has_history else 0
    values = TAILS[case.series](chance, rows, week + case.n)
    return values[:, :week], values[:, week:]


def history_of(past: Reals, n: int) -> VarianceInflation:
    """Return the variance of the level of windows of n rounds, from the past week."""
    return levels_of(past).variances(np.full(len(past), n / ROUNDS_PER_HOUR))


def _coverage(case: Case, seed: int) -> Coverage:
    past, window = past_and_window(case, ROWS, seed)
    differences = ragged_of(window)
    found = paired_shifts(differences, history=history_of(past, case.n) if case.has_history else None)
    plain = paired_shifts(differences, known=independent(len(differences)))
    return Coverage(case=case, coverage=_holding(found), width=float(np.mean(_widths(found)) / np.mean(_widths(plain))))


def _holding(shifts: Shifts) -> float:
    return float(((shifts.low <= 0) & (shifts.high >= 0)).mean())


def _widths(shifts: Shifts) -> Reals:
    return shifts.high - shifts.low


def _ranked_coverage(case: Case, seed: int) -> Coverage:
    assert case.share is not None
    chance = np.random.default_rng([seed, 4])
    limit = float(np.quantile(TAILS[case.series](chance, _TRUTH_ROWS, _TRUTH_ROUNDS), case.share))
    past, window = past_and_window(case, QUANTILE_ROWS, seed)
    quantity = SUCCESS if case.is_success else above_quantile(Metric.TTFT, case.share)
    history = NO_HISTORY
    if case.has_history:
        levels = shares_below(past, limit) if case.is_success else exceedances_of(past, case.share)
        history = history_with(levels, quantity)
    entries = [entry_of(place, Values.uncensored(own), succeeded=own <= limit) for place, own in enumerate(window)]
    lines = standings(entries, history=history)
    return _covered(case, [_interval(case, line) for line in lines], case.share if case.is_success else limit)


def entry_of(target_id: int, content: Distribution, *, succeeded: Flags, is_summary: bool = False) -> Entry:
    """Return a target with these TTFTs, and the requests that succeeded, one per round; a summary has only counts."""
    return Entry(
        target_id=target_id,
        region=REGION,
        target=f"{target_id:04}",
        provider="p",
        model="m",
        values={Metric.TTFT: content},
        outcome_counts=OutcomeCounts(ok=int(succeeded.sum()), failed=int((~succeeded).sum())),
        hours=len(succeeded) / ROUNDS_PER_HOUR,
        succeeded=None if is_summary else succeeded,
    )


def history_with(levels: Levels, quantity: Quantity) -> History:
    rows = len(levels.values)
    series = {(place, REGION): place for place in range(rows)}
    return History(
        levels={quantity: SeriesLevels(series=series, from_at=np.zeros(rows, dtype=np.int64), levels=levels)}
    )


def _interval(case: Case, line: Standing) -> tuple[float, float, float] | None:
    """Return the bounds, and the width relative to that of as many independent requests."""
    if case.is_success:
        found = line.success
        plain = wilson(round(found.value * found.n), found.n) if found else None
        return (found.low, found.high, (found.high - found.low) / (plain.high - plain.low)) if found and plain else None
    quantile = line.ttft_p50_us if case.share == _MEDIAN else line.ttft_p95_us
    if quantile is None or quantile.low is None or quantile.n_eff is None:
        return None
    return quantile.low, np.inf if quantile.high is None else quantile.high, float(np.sqrt(line.n / quantile.n_eff))


def _covered(case: Case, found: Sequence[tuple[float, float, float] | None], truth: float) -> Coverage:
    low, high, width = np.array([one for one in found if one]).T
    is_shown = np.isfinite(high)
    held = (low <= truth) & (truth <= high)
    has_any = bool(is_shown.any())
    return Coverage(
        case=case,
        coverage=float(held[is_shown].mean()) if has_any else np.nan,
        width=float(width[is_shown].mean()) if has_any else np.nan,
        shown=float(is_shown.sum()) / len(found),
        at_least=float((low <= truth).mean()),
    )


def shares_below(past: Reals, limit: float | Reals) -> Levels:
    below = (past <= limit).reshape(len(past), HOURS, ROUNDS_PER_HOUR).mean(axis=2)
    share = float(below.mean())
    return Levels(values=below, noise=np.full(len(past), share * (1 - share) / ROUNDS_PER_HOUR))


def exceedances_of(past: Reals, share: float) -> Levels:
    """Return the hourly shares of values above the quantile of the week."""
    above = past > np.quantile(past, share, axis=1, keepdims=True)
    hourly = above.reshape(len(past), HOURS, ROUNDS_PER_HOUR).mean(axis=2)
    return Levels(values=hourly, noise=np.full(len(past), share * (1 - share) / ROUNDS_PER_HOUR))
