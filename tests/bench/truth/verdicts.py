"""Verdicts of `isochrone slo` whose truth is "no": the true p95 is 5 % above the limit. There is no history."""

import numpy as np

from bench.truth.series import SERIES
from isochrone_collector.analysis.latency_targets import MeasuredRequests, Use, assess
from isochrone_wire.answers import Metric
from isochrone_wire.insights import Eligible
from testdata.columns import requests_of

DRAWS = 1_000
ROUNDS = 288
SHARE = 0.95
EXCESS = 1.05
_MEDIAN_US = 350_000.0
_DEVIATION = 0.35
_TRUTH_ROWS = 400
_EVERY_US = 300_000_000


def wrong_yes_pct(seed: int) -> dict[str, float]:
    """Return the percentage of "yes", by series."""
    return {name: _wrong_yes_pct(name, seed) for name in SERIES}


def _wrong_yes_pct(name: str, seed: int) -> float:
    chance = np.random.default_rng([seed, 3, list(SERIES).index(name)])
    truth = np.quantile(SERIES[name](chance, _TRUTH_ROWS, 5_000), SHARE)
    limit_us = _MEDIAN_US * np.exp(_DEVIATION * truth) / EXCESS
    latencies = _MEDIAN_US * np.exp(_DEVIATION * SERIES[name](chance, DRAWS, ROUNDS))
    rows = [
        MeasuredRequests(target_id=row, region="r", target="t", requests=requests_of(own.tolist(), every_us=_EVERY_US))
        for row, own in enumerate(latencies)
    ]
    use = Use(name="limit", meaning="five percent too low", metric=Metric.TTFT, limit_us=round(limit_us), share=SHARE)
    return 100 * float(np.mean([line.eligible is Eligible.YES for line in assess(rows, [use])]))
