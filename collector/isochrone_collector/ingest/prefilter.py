"""Which samples of a sheet are beyond suspicion, found for all of them at once. Pure.

The law: a sample that is no suspect has no reason to be rejected (`admission.why_rejected`) and can be read by this
version. A suspect may still be innocent; that is for admission to find out.
"""

from collections.abc import Set as AbstractSet

import numpy as np

from isochrone_collector.ingest.limits import BOUNDS, LENGTHS, LIMIT_BOUNDS, MAX_DISTANCE_US
from isochrone_collector.ingest.sample_columns import COLUMN, LIMIT, NUMBERS, RATES, TEXTS, WORDS, Flags, SampleColumns

_INT64 = np.iinfo(np.int64)
_BOUNDS = {
    **BOUNDS,
    **{LIMIT + name: bounds for name, bounds in LIMIT_BOUNDS.items()},
    **{name: (0, len(words) - 1) for name, words in WORDS.items()},
}
_EITHER = [_BOUNDS.get(name, (_INT64.min, _INT64.max)) for name in NUMBERS]
_LOWEST = np.array([low for low, _ in _EITHER], np.int64)
_HIGHEST = np.array([high for _, high in _EITHER], np.int64)
_LOWEST_RATE, _HIGHEST_RATE = (np.array([BOUNDS[name][end] for name in RATES]) for end in (0, 1))
_LONGEST = [LENGTHS[name] for name in TEXTS]
_WALL = [COLUMN["round_at"], COLUMN["dispatched_at"]]


def suspects(sheet: SampleColumns, *, now_at: int, known_targets: AbstractSet[int]) -> Flags:
    """A flag per sample. `now_at` is the collector's clock, in microseconds since the epoch."""
    return (
        _bad_numbers(sheet)
        | _bad_rates(sheet)
        | _absurd_times(sheet, now_at)
        | _unknown_targets(sheet, known_targets)
        | _bad_texts(sheet)
    )


def _bad_numbers(sheet: SampleColumns) -> Flags:
    beyond = ((sheet.numbers < _LOWEST) | (sheet.numbers > _HIGHEST)) & sheet.present
    return _in_any(beyond)


def _bad_rates(sheet: SampleColumns) -> Flags:
    # A NaN is neither above nor below, so what counts is that it is not within.
    within = (sheet.rates >= _LOWEST_RATE) & (sheet.rates <= _HIGHEST_RATE)
    return _in_any(~within & sheet.rated)


def _absurd_times(sheet: SampleColumns, now_at: int) -> Flags:
    walls = sheet.numbers[:, _WALL]
    return _in_any((walls < now_at - MAX_DISTANCE_US) | (walls > now_at + MAX_DISTANCE_US))


def _unknown_targets(sheet: SampleColumns, known_targets: AbstractSet[int]) -> Flags:
    unknown = sheet.targets() - known_targets
    if not unknown:
        return np.zeros(len(sheet), np.bool_)
    return np.isin(sheet.numbers[:, COLUMN["target_id"]], list(unknown))


def _bad_texts(sheet: SampleColumns) -> Flags:
    bad = np.zeros(len(sheet), np.bool_)
    for column, longest in zip(sheet.texts, _LONGEST, strict=True):
        told = [*filter(None, column)]
        if "\0" in "".join(told) or max(map(len, told), default=0) > longest:
            bad |= np.array([text is not None and (len(text) > longest or "\0" in text) for text in column])
    return bad


def _in_any(columns: Flags) -> Flags:
    flags: Flags = np.logical_or.reduce(columns, axis=1)
    return flags
