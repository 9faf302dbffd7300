"""Vectorised check that finds the few suspect samples of a push. Pure.

The law: a sample that is not a suspect has no `validation.rejection_reason`, and this version can decode it. A suspect
may still be valid; `validation` decides.
"""

from collections.abc import Set as AbstractSet

import numpy as np
from pyarrow import compute

from isochrone_collector.analysis.stats.arrays import Flags
from isochrone_collector.ingest.limits import BOUNDS, LENGTHS, LIMIT_BOUNDS, MAX_DISTANCE_US
from isochrone_collector.ingest.sample_columns import COLUMN, ENUMS, LIMIT, NUMBERS, RATES, TEXTS, SampleColumns

_INT64 = np.iinfo(np.int64)
_BOUNDS = {
    **BOUNDS,
    **{LIMIT + name: bounds for name, bounds in LIMIT_BOUNDS.items()},
    **{name: (0, len(members) - 1) for name, members in ENUMS.items()},
}
_NUMBER_BOUNDS = [_BOUNDS.get(name, (_INT64.min, _INT64.max)) for name in NUMBERS]
_LOWEST = np.array([low for low, _ in _NUMBER_BOUNDS], np.int64)
_HIGHEST = np.array([high for _, high in _NUMBER_BOUNDS], np.int64)
_LOWEST_RATE, _HIGHEST_RATE = (np.array([BOUNDS[name][end] for name in RATES]) for end in (0, 1))
_LONGEST = np.array([LENGTHS[name] for name in TEXTS])
_INSTANTS = [COLUMN["round_at"], COLUMN["dispatched_at"]]


def suspects(columns: SampleColumns, *, now_at: int, known_targets: AbstractSet[int]) -> Flags:
    """Return a flag per sample. `now_at` is the collector's clock, in microseconds since the epoch."""
    return (
        _bad_numbers(columns)
        | _bad_rates(columns)
        | _absurd_times(columns, now_at)
        | _unknown_targets(columns, known_targets)
        | _bad_texts(columns)
    )


def _bad_numbers(columns: SampleColumns) -> Flags:
    beyond = ((columns.numbers < _LOWEST) | (columns.numbers > _HIGHEST)) & columns.present
    return _in_any(beyond)


def _bad_rates(columns: SampleColumns) -> Flags:
    # NaN compares false with both bounds, so test for "not within" instead of "beyond".
    within = (columns.rates >= _LOWEST_RATE) & (columns.rates <= _HIGHEST_RATE)
    return _in_any(~within & columns.rated)


def _absurd_times(columns: SampleColumns, now_at: int) -> Flags:
    instants = columns.numbers[:, _INSTANTS]
    return _in_any((instants < now_at - MAX_DISTANCE_US) | (instants > now_at + MAX_DISTANCE_US))


def _unknown_targets(columns: SampleColumns, known_targets: AbstractSet[int]) -> Flags:
    unknown = columns.targets() - known_targets
    if not unknown:
        return np.zeros(len(columns), np.bool_)
    return np.isin(columns.numbers[:, COLUMN["target_id"]], list(unknown))


def _bad_texts(columns: SampleColumns) -> Flags:
    # A text has at least as many bytes as characters.
    bad = _in_any(columns.sizes > _LONGEST)
    for column in columns.texts:
        if b"\0" in column.buffers()[2].to_pybytes():
            bad |= compute.match_substring(column, "\0").fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return bad


def _in_any(columns: Flags) -> Flags:
    flags: Flags = np.logical_or.reduce(columns, axis=1)
    return flags
