"""Summaries: coverage after thirty days with the history of the last week, under drift whose memory is a day, and the
error of the goodput where the limit lies within a bucket.
"""

from dataclasses import replace

import numpy as np

from bench.truth.intervals import REGION, entry_of
from bench.truth.series import ROUNDS_PER_HOUR, Series, drifting, independent
from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.distribution import OutcomeCounts
from isochrone_collector.analysis.goodput import summarised_requests
from isochrone_collector.analysis.history import (
    HOURS,
    SUCCESS,
    History,
    Levels,
    SeriesLevels,
    above_quantile,
)
from isochrone_collector.analysis.leaderboard import Entry, standings
from isochrone_collector.analysis.stats.arrays import Flags, Reals
from isochrone_wire.answers import Metric, Quantile
from isochrone_wire.insights import Standing

_ROWS = 300
_MONTH_HOURS = 720
_MEDIAN_US, _DEVIATION = 350_000.0, 0.35
_SUCCEED = 0.9
_LIMIT = 1.2815516
_DAY = float(np.exp(-1 / (24 * ROUNDS_PER_HOUR)))

_WORLDS: dict[str, Series] = {
    "independent": independent,
    **{f"{100 * share:g} % drift of a day": drifting(share, _DAY) for share in (0.05, 0.2, 0.5)},
}


def coverage(seed: int) -> dict[str, float]:
    """Return the coverage of success and of the medians that have an interval, by world."""
    found = {}
    for place, (name, series) in enumerate(_WORLDS.items()):
        values = series(np.random.default_rng([seed, 5, place]), _ROWS, _MONTH_HOURS * ROUNDS_PER_HOUR)
        lines = standings([_entry(row, own) for row, own in enumerate(values)], history=_history(values))
        medians = [line.ttft_p50_us for line in lines if line.ttft_p50_us]
        found[f"p50, {name}"] = float(np.mean([_holds(own, _MEDIAN_US) for own in medians if own.low is not None]))
        found[f"success, {name}"] = float(np.mean([_holds_success(line) for line in lines]))
    return found


def goodput_error_points(seed: int) -> dict[str, float]:
    """Return the largest error of the goodput over limits around the median of 300 ms, by distribution, in points."""
    noise = np.random.default_rng([seed, 6]).standard_normal(5_000)
    latencies_ms = {"log-normal": 300 * np.exp(_DEVIATION * noise), "deviation of 2 ms": 300 + 2 * noise}
    return {name: 100 * max(_error(own, limit) for limit in range(290, 311)) for name, own in latencies_ms.items()}


def _error(latencies_ms: Reals, limit_ms: int) -> float:
    summary = histogram.merge([histogram.pack(1_000 * latencies_ms)], [b""], [0], of=1).group(0)
    counts = summarised_requests(summary, OutcomeCounts(ok=len(latencies_ms)), 1_000 * limit_ms)
    found = replace(counts, n_eff=float(len(latencies_ms))).goodput
    assert found is not None, "there are requests"
    return abs(found.value - float((latencies_ms <= limit_ms).mean()))


def _entry(target_id: int, values: Reals) -> Entry:
    content = histogram.merge([histogram.pack(_MEDIAN_US * np.exp(_DEVIATION * values))], [b""], [0], of=1).group(0)
    return entry_of(target_id, content, succeeded=values <= _LIMIT, is_summary=True)


def _history(values: Reals) -> History:
    week = values[:, -HOURS * ROUNDS_PER_HOUR :]
    flags = {SUCCESS: week <= _LIMIT}
    for share in (0.5, 0.95, 0.99):
        flags[above_quantile(Metric.TTFT, share)] = week > np.quantile(week, share, axis=1, keepdims=True)
    return History(levels={quantity: _levels(own) for quantity, own in flags.items()})


def _levels(flags: Flags) -> SeriesLevels:
    shares = flags.reshape(len(flags), HOURS, ROUNDS_PER_HOUR).mean(axis=2)
    noise = shares.mean() * (1 - shares.mean()) / ROUNDS_PER_HOUR
    return SeriesLevels(
        series={(row, REGION): row for row in range(len(flags))},
        from_at=np.zeros(len(flags), dtype=np.int64),
        levels=Levels(values=shares, noise=np.full(len(flags), noise)),
    )


def _holds(found: Quantile, truth: float) -> bool:
    return (found.low or 0.0) <= truth <= (found.high or 0.0)


def _holds_success(line: Standing) -> bool:
    return line.success is not None and line.success.low <= _SUCCEED <= line.success.high
