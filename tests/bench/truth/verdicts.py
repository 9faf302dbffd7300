"""Verdicts of `isochrone slo` with known truth.

The truth is "no" if the true p95 is 5 % above the limit, or if 7 % of the requests fail or are late in runs of ten. It
is "yes" if the p95 is 10 % below the limit, or if only 1 % fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.truth.series import ROUNDS_PER_HOUR, SERIES, drifting
from isochrone_collector.analysis.goodput import Ending
from isochrone_collector.analysis.history import (
    HOURS,
    NO_HISTORY,
    SHARES,
    SUCCESS,
    History,
    Levels,
    SeriesLevels,
    above_quantile,
)
from isochrone_collector.analysis.latency_targets import MeasuredRequests, Use, assess
from isochrone_collector.analysis.stats.arrays import Flags, Reals
from isochrone_wire.answers import Metric
from isochrone_wire.insights import Eligible
from testdata.columns import requests_of

DRAWS = 300
ROUNDS = (72, 288)
SHARE = 0.95
EXCESS = 1.05
RIGHT_DRAWS = 400
_SMOOTH = {**SERIES, "50 % noise, 50 % drift": drifting(0.5)}
RUNS = ("failures in runs of ten", "late in runs of ten")
WORLDS = (*_SMOOTH, *RUNS)
HIDDEN = ("AR(.8)", "50 % noise, 50 % drift", *RUNS)
"""Worlds in which a clean window is the typical one."""
_MEDIAN_US = 350_000.0
_DEVIATION = 0.35
_TRUTH_ROWS, _TRUTH_ROUNDS = 400, 5_000
EVERY_US = 300_000_000
_WEEK = HOURS * ROUNDS_PER_HOUR


def wrong_yes_pct(seed: int) -> dict[str, float]:
    """Return the percentage of "yes", by world and number of rounds, without history."""
    return {f"{name}, n {n}": wrong_yes_of(name, seed, n=n, draws=DRAWS) for name in WORLDS for n in ROUNDS}


def wrong_yes_with_week_pct(seed: int) -> float:
    """Return the largest percentage of "yes" of any world whose truth is "no", with the history of a week."""
    return max(_yes_with_week(name, seed, n=n, excess=EXCESS) for name in WORLDS for n in ROUNDS)


def right_yes_pct(seed: int) -> float:
    """Return the percentage of "yes" of independent series whose p95 is 10 % below the limit, with a week."""
    return _yes_with_week("independent normal", seed, n=ROUNDS[-1], excess=1 / 1.1)


def right_yes_without_week_pct(seed: int, draws: int = DRAWS) -> float:
    """Return the percentage of "yes" if 1 % fails independently, after 288 rounds without history."""
    chance = np.random.default_rng([seed, 9])
    failed = chance.random((draws, ROUNDS[-1])) < 0.01  # the true share
    return _yes(Outcomes(np.full(failed.shape, _MEDIAN_US), failed, 2 * _MEDIAN_US))


def wrong_yes_of(name: str, seed: int, *, n: int, draws: int) -> float:
    """Return the percentage of "yes" in one world without history."""
    return _yes(outcomes(name, np.random.default_rng([seed, 3, WORLDS.index(name), n]), draws, n))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The latencies of requests by row and round, which of them failed, and the limit."""

    latencies_us: Reals
    failed: Flags
    limit_us: float

    def split(self, rounds: int) -> tuple["Outcomes", "Outcomes"]:
        parts = (slice(rounds), slice(rounds, None))
        before, after = (
            replace(self, latencies_us=self.latencies_us[:, own], failed=self.failed[:, own]) for own in parts
        )
        return before, after


def outcomes(name: str, chance: np.random.Generator, rows: int, n: int, *, excess: float = EXCESS) -> Outcomes:
    """Draw rows of n requests of a world; the true p95 is the limit times `excess`."""
    if name in RUNS:
        bad, is_late = _runs(chance, rows, n), name == RUNS[1]
        return Outcomes(np.where(bad & is_late, 3.0, 1.0) * _MEDIAN_US, bad & (not is_late), 2 * _MEDIAN_US)
    values = _latencies(_SMOOTH[name](chance, rows, n))
    truth = np.quantile(_SMOOTH[name](chance, _TRUTH_ROWS, _TRUTH_ROUNDS), SHARE)
    return Outcomes(values, np.zeros(values.shape, np.bool_), float(_latencies(truth)) / excess)


def history_of(past: Outcomes, keys: Sequence[tuple[int, str]]) -> History:
    """Return the hourly levels of a week of rows."""

    def of(flags: Flags, quantiles: Reals | None = None) -> SeriesLevels:
        hourly = flags.reshape(len(flags), HOURS, -1)
        shares = hourly.mean(axis=2)
        level = shares.mean(axis=1)
        return SeriesLevels(
            series={key: row for row, key in enumerate(keys)},
            from_at=np.zeros(len(flags), np.int64),
            levels=Levels(values=shares, noise=level * (1 - level) / hourly.shape[2]),
            quantile=quantiles,
        )

    levels = {SUCCESS: of(~past.failed)}
    for share in SHARES:
        quantiles = np.quantile(past.latencies_us, share, axis=1)
        levels[above_quantile(Metric.TTFT, share)] = of(past.latencies_us > quantiles[:, None], quantiles)
    return History(levels=levels)


def _runs(chance: np.random.Generator, rows: int, n: int, *, share: float = 0.07, length: int = 10) -> Flags:
    """Return a share of flags in runs of this mean length (a Markov chain)."""
    begins, draws = share / (1 - share) / length, chance.random((rows, n))
    bad = np.empty((rows, n), np.bool_)
    bad[:, 0] = draws[:, 0] < share
    for place in range(1, n):
        bad[:, place] = np.where(bad[:, place - 1], draws[:, place] >= 1 / length, draws[:, place] < begins)
    return bad


def _latencies(scores: Reals) -> Reals:
    return _MEDIAN_US * np.exp(_DEVIATION * scores)


def _yes_with_week(name: str, seed: int, *, n: int, excess: float) -> float:
    chance = np.random.default_rng([seed, 10, WORLDS.index(name), n])
    past, window = outcomes(name, chance, RIGHT_DRAWS, _WEEK + n, excess=excess).split(_WEEK)
    return _yes(window, history_of(past, [(row, "r") for row in range(RIGHT_DRAWS)]))


def _yes(found: Outcomes, history: History = NO_HISTORY) -> float:
    rows = [
        MeasuredRequests(
            target_id=row,
            region="r",
            target=f"{row:04}",
            requests=requests_of(
                np.where(bad, np.nan, own).tolist(),
                [Ending.FAILED if one else Ending.ANSWERED for one in bad.tolist()],
                every_us=EVERY_US,
            ),
        )
        for row, (own, bad) in enumerate(zip(found.latencies_us, found.failed, strict=True))
    ]
    use = Use(name="limit", meaning="of a bench", metric=Metric.TTFT, limit_us=round(found.limit_us), share=SHARE)
    return 100 * float(np.mean([line.eligible is Eligible.YES for line in assess(rows, [use], history)]))
