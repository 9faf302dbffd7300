"""Verdicts of `isochrone slo` with known truth.

The truth is "no" if the true p95 is 5 % above the limit, or if 7 % of the requests fail or are late in runs of ten. It
is "yes" if the p95 is 10 % below the limit, or if only 1 % fails.
"""

import numpy as np

from bench.truth.series import ROUNDS_PER_HOUR, SERIES, drifting
from isochrone_collector.analysis.goodput import Ending
from isochrone_collector.analysis.history import HOURS, SUCCESS, History, Levels, SeriesLevels, above_quantile
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
_WORLDS = {**SERIES, "50 % noise, 50 % drift": drifting(0.5)}
RUNS = ("failures in runs of ten", "late in runs of ten")
HIDDEN = ("AR(.8)", "50 % noise, 50 % drift", *RUNS)
"""Worlds in which a clean window is the typical one."""
_MEDIAN_US = 350_000.0
_DEVIATION = 0.35
_TRUTH_ROWS = 400
_EVERY_US = 300_000_000
_WEEK = HOURS * ROUNDS_PER_HOUR


def wrong_yes_pct(seed: int) -> dict[str, float]:
    """Return the percentage of "yes", by world and number of rounds, without history."""
    return {f"{name}, n {n}": wrong_yes_of(name, seed, n=n, draws=DRAWS) for name in (*_WORLDS, *RUNS) for n in ROUNDS}


def wrong_yes_with_week_pct(seed: int) -> float:
    """Return the largest percentage of "yes" of any world whose truth is "no", with the history of a week."""
    slow = (_yes_with_week(name, seed, n=n, excess=EXCESS) for name in _WORLDS for n in ROUNDS)
    return max(*slow, *(_failing_with_week(seed, n) for n in ROUNDS))


def right_yes_pct(seed: int) -> float:
    """Return the percentage of "yes" of independent series whose p95 is 10 % below the limit, with a week."""
    return _yes_with_week("independent normal", seed, n=ROUNDS[-1], excess=1 / 1.1)


def right_yes_without_week_pct(seed: int, draws: int = DRAWS) -> float:
    """Return the percentage of "yes" if 1 % fails independently, after 288 rounds without history."""
    chance = np.random.default_rng([seed, 9])
    failed = chance.random((draws, ROUNDS[-1])) < 0.01  # the true share
    return _yes(np.full(failed.shape, _MEDIAN_US), 2 * _MEDIAN_US, failed=failed)


def wrong_yes_of(name: str, seed: int, *, n: int, draws: int) -> float:
    """Return the percentage of "yes" in one world without history."""
    chance = np.random.default_rng([seed, 3, (*_WORLDS, *RUNS).index(name), n])
    if name in RUNS:
        bad = _runs(chance, draws, n)
        late = name == RUNS[1]
        return _yes(np.where(bad & late, 3.0, 1.0) * _MEDIAN_US, 2 * _MEDIAN_US, failed=bad & (not late))
    return _yes(_latencies(_WORLDS[name](chance, draws, n)), _limit_us(name, chance, EXCESS))


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


def _limit_us(name: str, chance: np.random.Generator, excess: float) -> float:
    return float(_latencies(np.quantile(_WORLDS[name](chance, _TRUTH_ROWS, 5_000), SHARE))) / excess


def _yes_with_week(name: str, seed: int, *, n: int, excess: float) -> float:
    chance = np.random.default_rng([seed, 10, list(_WORLDS).index(name), n])
    values = _latencies(_WORLDS[name](chance, RIGHT_DRAWS, _WEEK + n))
    limit_us = _limit_us(name, chance, excess)
    levels = {
        above_quantile(Metric.TTFT, share): _exceedances(values[:, :_WEEK], share) for share in (0.5, 0.9, 0.95, 0.99)
    }
    certain = Levels(values=np.ones((RIGHT_DRAWS, HOURS)), noise=np.zeros(RIGHT_DRAWS))
    return _yes(values[:, _WEEK:], limit_us, history=History(levels={**levels, SUCCESS: _series(certain)}))


def _failing_with_week(seed: int, n: int) -> float:
    failed = _runs(np.random.default_rng([seed, 11, n]), RIGHT_DRAWS, _WEEK + n)
    shares = 1 - failed[:, :_WEEK].reshape(RIGHT_DRAWS, HOURS, ROUNDS_PER_HOUR).mean(axis=2)
    level = shares.mean(axis=1)
    history = History(levels={SUCCESS: _series(Levels(values=shares, noise=level * (1 - level) / ROUNDS_PER_HOUR))})
    return _yes(np.full((RIGHT_DRAWS, n), _MEDIAN_US), 2 * _MEDIAN_US, failed=failed[:, _WEEK:], history=history)


def _exceedances(past: Reals, share: float) -> SeriesLevels:
    quantiles = np.quantile(past, share, axis=1)
    hourly = (past > quantiles[:, None]).reshape(len(past), HOURS, ROUNDS_PER_HOUR).mean(axis=2)
    return _series(Levels(values=hourly, noise=np.full(len(past), share * (1 - share) / ROUNDS_PER_HOUR)), quantiles)


def _series(levels: Levels, quantiles: Reals | None = None) -> SeriesLevels:
    rows = len(levels.values)
    series = {(row, "r"): row for row in range(rows)}
    return SeriesLevels(series=series, from_at=np.zeros(rows, np.int64), levels=levels, quantile=quantiles)


def _yes(latencies_us: Reals, limit_us: float, *, failed: Flags | None = None, history: History | None = None) -> float:
    failed = np.zeros(latencies_us.shape, np.bool_) if failed is None else failed
    rows = [
        MeasuredRequests(
            target_id=row,
            region="r",
            target=f"{row:04}",
            requests=requests_of(
                np.where(bad, np.nan, own).tolist(),
                [Ending.FAILED if one else Ending.ANSWERED for one in bad.tolist()],
                every_us=_EVERY_US,
            ),
        )
        for row, (own, bad) in enumerate(zip(latencies_us, failed, strict=True))
    ]
    use = Use(name="limit", meaning="of a bench", metric=Metric.TTFT, limit_us=round(limit_us), share=SHARE)
    return 100 * float(np.mean([line.eligible is Eligible.YES for line in assess(rows, [use], history or History())]))
