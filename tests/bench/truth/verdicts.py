"""Verdicts on latency targets whose truth is "no": the true p95 is five percent above the limit."""

from functools import cache

import numpy as np

from bench.truth.intervals import SEED
from bench.truth.series import SERIES
from isochrone_collector.analysis.goodput import count_requests
from isochrone_wire.insights import Eligible

DRAWS = 1_000
ROUNDS = 288
SHARE = 0.95
EXCESS = 1.05
_MEDIAN_US = 350_000.0
_DEVIATION = 0.35
_TRUTH_ROWS = 400


@cache
def wrong_yes_pct() -> dict[str, float]:
    """Return the percentage of "yes", by series."""
    return {name: _wrong_yes_pct(name) for name in SERIES}


def _wrong_yes_pct(name: str) -> float:
    chance = np.random.default_rng([SEED, 3, list(SERIES).index(name)])
    truth = np.quantile(SERIES[name](chance, _TRUTH_ROWS, 5_000), SHARE)
    limit_us = _MEDIAN_US * np.exp(_DEVIATION * truth) / EXCESS
    latencies = _MEDIAN_US * np.exp(_DEVIATION * SERIES[name](chance, DRAWS, ROUNDS))
    verdicts = [count_requests(own, own, failed=0, throttled=0).meets(SHARE) for own in latencies <= limit_us]
    return 100 * float(np.mean([verdict is Eligible.YES for verdict in verdicts]))
