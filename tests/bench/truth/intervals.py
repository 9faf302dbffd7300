"""Coverage of 95 % intervals of differences and of quantiles: the share that contains the truth of the long run, with
and without the history of a week.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from bench.truth.series import ROUNDS_PER_HOUR, SERIES, ragged_of
from isochrone_collector.analysis.history import HOURS, Levels
from isochrone_collector.analysis.stats.long_run_variance import Inflation, independent
from isochrone_collector.analysis.stats.paired import Shifts, paired_shifts
from isochrone_collector.analysis.stats.quantile import exceedance_inflation, quantile
from isochrone_collector.analysis.stats.ragged import Reals
from isochrone_wire.answers import Quantile

SEED = 20261122
ROWS = 1_500
QUANTILE_ROWS = 500
_TRUTH_ROWS, _TRUTH_ROUNDS = 400, 5_000
_Z = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A series, a number of rounds, with history or without; the coverage must reach `least`, and the mean width of
    intervals, relative to those for independent values, stay within `widest`.
    """

    series: str
    n: int
    least: float
    has_history: bool = False
    widest: float | None = None
    share: float | None = None

    @property
    def quantity(self) -> str:
        """What the interval is of: a difference, or a quantile if the case has its `share`."""
        return "difference" if self.share is None else f"p{100 * self.share:g}"


CASES = (
    *(Case(series=name, n=n, least=0.94, widest=1.25) for name in list(SERIES)[:2] for n in (24, 60, 288)),
    *(Case(series=name, n=n, least=0.9) for name in ("AR(.5)", "AR(.8)") for n in (60, 288)),
    Case(series="80 % noise, 20 % drift", n=288, least=0.8),
    *(Case(series="80 % noise, 20 % drift", n=n, least=0.9, has_history=True) for n in (60, 288)),
)


QUANTILE_CASES = tuple(
    Case(series=name, n=288, least=0.9, has_history=True, share=share) for name in SERIES for share in (0.5, 0.95)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The measured coverage and relative width of one case."""

    case: Case
    coverage: float
    width: float

    @property
    def is_met(self) -> bool:
        """Whether the case holds."""
        return self.coverage >= self.case.least and (self.case.widest is None or self.width <= self.case.widest)


@cache
def measured() -> tuple[Coverage, ...]:
    """Measure all cases."""
    return tuple(map(_coverage, CASES))


@cache
def measured_quantiles() -> tuple[Coverage, ...]:
    """Measure all cases of quantiles. A quantile that is refused an interval counts neither way."""
    return tuple(map(_quantile_coverage, QUANTILE_CASES))


def levels_of(values: Reals) -> Levels:
    """Return the hourly medians of rows of rounds, whose length is a week."""
    hours = np.sort(values.reshape(len(values), HOURS, ROUNDS_PER_HOUR), axis=2)
    middle = ROUNDS_PER_HOUR // 2
    medians = (hours[:, :, middle - 1] + hours[:, :, middle]) / 2
    # The ranks 3 and 10 of twelve values bound the median with 96 %.
    variances = ((hours[:, :, 9] - hours[:, :, 2]) / (2 * _Z)) ** 2
    return Levels(values=medians, noise=variances.mean(axis=1))


def past_and_window(case: Case, rows: int) -> tuple[Reals, Reals]:
    """Return a week of rounds of so many series, and the window that follows."""
    chance = np.random.default_rng([SEED, case.n, list(SERIES).index(case.series)])
    week = HOURS * ROUNDS_PER_HOUR if case.has_history else 0
    values = SERIES[case.series](chance, rows, week + case.n)
    return values[:, :week], values[:, week:]


def history_of(past: Reals, n: int) -> Inflation:
    """Return the variance of the level of windows of n rounds, from the past week."""
    return levels_of(past).variances(np.full(len(past), n / ROUNDS_PER_HOUR))


def _coverage(case: Case) -> Coverage:
    past, window = past_and_window(case, ROWS)
    differences = ragged_of(window)
    found = paired_shifts(differences, history=history_of(past, case.n) if case.has_history else None)
    plain = paired_shifts(differences, known=independent(len(differences)))
    return Coverage(case=case, coverage=_holding(found), width=float(np.mean(_widths(found)) / np.mean(_widths(plain))))


def _holding(shifts: Shifts) -> float:
    return float(((shifts.low <= 0) & (shifts.high >= 0)).mean())


def _widths(shifts: Shifts) -> Reals:
    return shifts.high - shifts.low


def _quantile_coverage(case: Case) -> Coverage:
    assert case.share is not None
    share, chance = case.share, np.random.default_rng([SEED, 4])
    truth = float(np.quantile(SERIES[case.series](chance, _TRUTH_ROWS, _TRUTH_ROUNDS), share))
    past, window = past_and_window(case, QUANTILE_ROWS)
    rank = int(np.ceil(share * case.n)) - 1
    limits = np.sort(window, axis=1)[:, rank]
    history = _exceedances_of(past, share).variances(np.full(len(past), case.n / ROUNDS_PER_HOUR))
    factors = (
        exceedance_inflation(ragged_of(window), limits)
        .with_history(np.full(len(past), share * (1 - share) / case.n), history)
        .factor
    )
    found = [quantile(own.tolist(), share, factor=factor) for own, factor in zip(window, factors.tolist(), strict=True)]
    plain = [quantile(own.tolist(), share) for own in window]
    known = [(one, other) for one, other in zip(found, plain, strict=True) if one and other and one.low is not None]
    held = [one.low <= truth <= one.high for one, _ in known if one.low is not None and one.high is not None]
    widths = np.array([[_width(one), _width(other)] for one, other in known])
    return Coverage(case=case, coverage=float(np.mean(held)), width=float(widths[:, 0].mean() / widths[:, 1].mean()))


def _exceedances_of(past: Reals, share: float) -> Levels:
    """Return the hourly shares of values above the quantile of the week."""
    above = past > np.quantile(past, share, axis=1, keepdims=True)
    hourly = above.reshape(len(past), HOURS, ROUNDS_PER_HOUR).mean(axis=2)
    return Levels(values=hourly, noise=np.full(len(past), share * (1 - share) / ROUNDS_PER_HOUR))


def _width(found: Quantile) -> float:
    return (found.high or 0.0) - (found.low or 0.0)
