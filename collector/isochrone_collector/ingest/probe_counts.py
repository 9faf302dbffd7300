"""Counts of the probes of a batch for Prometheus, made of its columns.

The law: they are what `isochrone_common.probe_metrics.ProbeCounts.add` counts sample by sample.
"""

import numpy as np

from isochrone_collector.analysis.probe_totals import UNKNOWN, BatchCounts
from isochrone_collector.analysis.stats.arrays import Flags, Integers
from isochrone_collector.ingest.sample_columns import COLUMN, LIMIT, RATES, SampleColumns
from isochrone_common.probe_metrics import CUT_OFF, HISTOGRAMS, LIMITS, OFFSETS, OUTCOMES
from isochrone_wire.model import Outcome, Quality

_LIMIT_COLUMNS = [COLUMN[LIMIT + name] for name in LIMITS]
_OK = OUTCOMES.index(Outcome.OK)
# By the number of an outcome: does it have values, and was the probe cut off?
_MEASURED = [np.array([one in histogram.outcomes for one in OUTCOMES]) for histogram in HISTOGRAMS]
_IS_CUT_OFF = np.array([one in CUT_OFF for one in OUTCOMES])
_EDGES = [np.array(histogram.edges) for histogram in HISTOGRAMS]


def count_probes(columns: SampleColumns) -> BatchCounts:
    """Count the probes, all of which must be valid."""
    numbers, present = columns.numbers, columns.present
    target_ids, row = np.unique(numbers[:, COLUMN["target_id"]], return_inverse=True)
    shape = (len(target_ids), OFFSETS[-1])
    outcome, began_at = numbers[:, COLUMN["outcome"]], numbers[:, COLUMN["dispatched_at"]]
    is_valid, limit_us = values_are_valid(numbers), numbers[:, COLUMN["timeout_us"]]
    is_cut_off = _IS_CUT_OFF[outcome] & present[:, COLUMN["timeout_us"]]
    cells = [row * shape[1] + outcome]
    sums = np.zeros((shape[0], len(HISTOGRAMS)))
    for place, histogram in enumerate(HISTOGRAMS):
        is_counted = _MEASURED[place][outcome] & is_valid
        if histogram.is_duration:
            own = COLUMN[histogram.field]
            is_counted &= present[:, own]
            # The law is `metrics.probes.value_of`.
            is_limit = is_cut_off & ~(present[:, own] if histogram.field == "ttft_us" else is_counted)
            values = np.where(is_limit, limit_us, numbers[:, own])
            is_counted |= is_limit
        else:
            values = columns.rates[:, RATES.index(histogram.field)]
            is_counted &= columns.rated[:, RATES.index(histogram.field)]
        rows, values = row[is_counted], values[is_counted]
        cells.append(rows * shape[1] + OFFSETS[place] + _EDGES[place].searchsorted(values))
        sums[:, place] = np.bincount(rows, weights=values, minlength=shape[0]) / histogram.per
    last_success_at = np.zeros(len(target_ids), np.int64)
    is_ok = outcome == _OK
    np.maximum.at(last_success_at, row[is_ok], began_at[is_ok])
    limits, limits_at = _newest_limits(row, began_at, numbers, present, of=len(target_ids))
    return BatchCounts(
        target_ids=target_ids,
        counts=np.bincount(np.concatenate(cells), minlength=shape[0] * shape[1]).reshape(shape).astype(np.uint16),
        sums=sums,
        last_success_at=last_success_at,
        limits=limits,
        limits_at=limits_at,
    )


def values_are_valid(numbers: Integers) -> Flags:
    """Return whether the values of each row are those of the model, as `VALID` in `store.probe_queries`."""
    quality = numbers[:, COLUMN["quality"]]
    is_cached = (quality & Quality.CACHED.value != 0) & (
        2 * numbers[:, COLUMN["cached_tokens"]] >= numbers[:, COLUMN["prompt_tokens"]]
    )
    return np.asarray((quality & Quality.CLOCK_STEPPED.value == 0) & ~is_cached)


def _newest_limits(
    row: Integers, began_at: Integers, numbers: Integers, present: Flags, *, of: int
) -> tuple[Integers, Integers]:
    """Return the rate limits of the newest probe with any, per target, and when it began; 0 if there is none."""
    limits, limits_at = np.full((of, len(LIMITS)), UNKNOWN, np.int64), np.zeros(of, np.int64)
    (limited,) = np.nonzero(present[:, _LIMIT_COLUMNS].any(axis=1))
    if len(limited):
        # Of rows that are assigned twice the last one stays, which is the newest.
        limited = limited[np.argsort(began_at[limited], kind="stable")]
        found = np.where(present[:, _LIMIT_COLUMNS], numbers[:, _LIMIT_COLUMNS], UNKNOWN)
        limits[row[limited]], limits_at[row[limited]] = found[limited], began_at[limited]
    return limits, limits_at
