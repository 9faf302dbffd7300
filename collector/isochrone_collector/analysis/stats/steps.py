"""Steps of level in series of differences: where the level changed at once, and stayed changed for some values.

Theory of operation. A step is proposed where the medians of the five values before and after a place differ most, by
more than the scatter from value to value. Two outliers in five do not move such a median, and a drift moves it little.
The proposed steps are then tested together. A step counts if

* the levels beside it differ by about three times the noise, which is the standard deviation of the values around their
  levels, and by the smallest size that matters; or, in a hundred values or more, by six standard errors of levels of
  their lengths, in which as many values count as one as the correlation time says;
* a value after it is beyond a value before it in nine of ten pairs: a few outliers do not make a level;
* the level lasted: eight values between two steps, five at the beginning and at the end of the series.

The least certain step is removed until all count, so that each is tested against the levels that remain.

The noise includes slow movements, so autocorrelated values are not taken for steps. docs/statistics.md has the measured
rates of false and found steps. Smaller changes need many more values, and are the subject of `analysis.drift`.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log, sqrt

import numpy as np

from isochrone_collector.analysis.stats.arrays import Ragged, Reals
from isochrone_collector.analysis.stats.long_run_variance import correlation_times

LEAST = 5
"""The minimum number of values on either side of a step, of at least one more than twice as many."""

_LASTING = 8
_CELLS = 1 << 17
_NORMAL_MAD = 1.4826
_CLIP = 5.0
_PROPOSED = 2.2
_APART = 0.9
# Required size of a step in units of the noise: for ten values, its growth with the logarithm of their number, and the
# most. Few values may show too little noise, which the last number compensates.
_REQUIRED, _GROWTH, _MOST = 2.9, 0.4, 3.7
_UNSEEN = 1.3
# The same in standard errors of the difference of two levels, in series that are long enough to show their memory.
_CERTAIN, _MANY = 6.0, 100
# The level of up to so many values is their pseudomedian, which varies less than the median.
_FEW = 12
_TRIANGLES = [np.triu_indices(n) for n in range(_FEW + 1)]


def steps(series: Ragged, *, least_size: Reals) -> list[tuple[int, ...]]:
    """Return the places in each row at which a new level begins; steps below the row's `least_size` do not count."""
    found: list[tuple[int, ...]] = [()] * len(series)
    for rows_at, rows in series.portions(cells=_CELLS):
        if rows.shape[1] <= 2 * LEAST:
            continue
        medians = _medians_of_five(rows)
        # From place 5 on: the median of the five values from there on minus that of the five before.
        jumps = np.abs(medians[:, LEAST:] - medians[:, :-LEAST])
        # The standard deviation by the differences of neighbours.
        scatter = _NORMAL_MAD / np.sqrt(2) * np.median(np.abs(np.diff(rows, axis=1)), axis=1)
        limits = np.maximum(_PROPOSED * scatter, least_size[rows_at] / 2)
        for place in np.flatnonzero((jumps > limits[:, np.newaxis]).any(axis=1)).tolist():
            row, proposed = int(rows_at[place]), _proposed(jumps[place], float(limits[place]))
            found[row] = _tested(rows[place], proposed, least_size=float(least_size[row]))
    return found


def _medians_of_five(rows: Reals) -> Reals:
    """Return the medians of all five neighbours, by comparing whole columns."""
    a, b, c, d, e = (rows[:, place : rows.shape[1] - LEAST + 1 + place] for place in range(LEAST))
    low, high = np.maximum(np.minimum(a, b), np.minimum(c, d)), np.minimum(np.maximum(a, b), np.maximum(c, d))
    return np.asarray(np.maximum(np.minimum(low, high), np.minimum(np.maximum(low, high), e)))


def _proposed(jumps: Reals, limit: float) -> list[int]:
    """Return the places of the largest jumps, in order, at least `LEAST` values apart."""
    large = np.flatnonzero(jumps > limit)
    chosen: list[int] = []
    is_near = bytearray(len(jumps) + LEAST)
    for at in large[np.argsort(-jumps[large], kind="stable")].tolist():
        if not is_near[at]:
            chosen.append(at + LEAST)
            is_near[max(at - LEAST + 1, 0) : at + LEAST] = bytes([1]) * (min(at, LEAST - 1) + LEAST)
    return sorted(chosen)


def around_levels(values: Reals, places: Sequence[int]) -> Reals:
    """Return values minus the levels that begin at 0 and at `places`."""
    return np.concatenate([part - _level(part) for part in np.split(values, places)])


def _tested(values: Reals, proposed: Sequence[int], *, least_size: float) -> tuple[int, ...]:
    """Return the proposed steps that count, each at the place that explains the values best."""
    places = _without_small(values, list(proposed), least_size=least_size)
    _locate(values, places, range(len(places)))
    while places:
        certainties = _certainties(np.split(values, places), least_size)
        smallest = min(certainties)
        if smallest >= 1:
            break
        removed = certainties.index(smallest)
        del places[removed]
        _locate(values, places, range(max(removed - 1, 0), min(removed + 1, len(places))))
    return tuple(places)


def _without_small(values: Reals, places: list[int], *, least_size: float) -> list[int]:
    """Remove the proposed steps that are far too small, all at once: most proposals of a series without steps are."""
    while places:
        certainties = _by_size(np.split(values, places), least_size, memory=1.0, times=0.5)
        kept = [place for place, certainty in zip(places, certainties, strict=True) if certainty >= 1]
        if len(kept) == len(places):
            break
        places = kept
    return places


def _certainties(parts: Sequence[Reals], least_size: float) -> list[float]:
    """Return the certainty of each step, 1 or more if it counts: of the first criterion that not all meet, because the
    memory and the separation of parts take longer than their size.
    """
    found = _by_size(parts, least_size, memory=1.0)
    if min(found) >= 1:
        found = _by_size(parts, least_size)
    if min(found) >= 1:
        found = [float(_separates(parts, place)) for place in range(len(found))]
    return found


def _by_size(
    parts: Sequence[Reals], least_size: float, *, memory: float | None = None, times: float = 1.0
) -> list[float]:
    """Return the size of each step in units of what it needs: a certain multiple of the noise (`times` that), or less
    between levels that lasted, by the memory of the values, which is at least 1.
    """
    n, levels = sum(map(len, parts)), [_level(part) for part in parts]
    required = times * min(_REQUIRED + _GROWTH * log(n / 10), _MOST) * (1 + _UNSEEN / (n - len(parts)))
    residuals = np.concatenate([part - level for part, level in zip(parts, levels, strict=True)])
    deviation = noise(residuals, len(levels))
    if n < _MANY:
        memory = np.inf
    elif memory is None:
        memory = float(correlation_times(residuals[np.newaxis])[0])
    errors = [_CERTAIN * sqrt(memory * (1 / len(one) + 1 / len(other))) for one, other in pairwise(parts)]
    needed = [max(min(required, error) * deviation, least_size) for error in errors]
    sizes = [abs(after - before) for before, after in pairwise(levels)]
    return [size / limit if limit else float(size > 0) for size, limit in zip(sizes, needed, strict=True)]


def _locate(values: Reals, places: list[int], which: range) -> None:
    """Move places, in order, to where the medians on both sides leave the smallest deviations."""
    for index in which:
        begin = places[index - 1] if index else 0
        end = places[index + 1] if index + 1 < len(places) else len(values)
        near = range(max(begin + LEAST, places[index] - LEAST + 1), min(end - LEAST, places[index] + LEAST - 1) + 1)
        costs = {at: _deviations(values[begin:at]) + _deviations(values[at:end]) for at in near}
        places[index] = min(costs, key=costs.__getitem__, default=places[index])


def _deviations(values: Reals) -> float:
    ordered, half = _sorted(values), len(values) // 2
    return float(np.add.reduce(ordered[len(values) - half :]) - np.add.reduce(ordered[:half]))


def _sorted(values: Reals) -> Reals:
    ordered = values.copy()
    ordered.sort()
    return ordered


def _separates(parts: Sequence[Reals], place: int) -> bool:
    """Return whether the levels on both sides of a step lasted, and their values are apart."""
    inner = parts[max(place, 1) : min(place + 2, len(parts) - 1)]
    before, after = parts[place], parts[place + 1]
    below = float(np.searchsorted(np.sort(before), after).mean()) / len(before)
    return all(len(part) >= _LASTING for part in inner) and max(below, 1 - below) >= _APART


def _level(values: Reals) -> float:
    if len(values) > _FEW:
        return _median(values)
    one, other = _TRIANGLES[len(values)]
    return _median(values[one] + values[other]) / 2


def _median(values: Reals) -> float:
    """Return the median of a few values, faster than numpy's, which is for large arrays."""
    ordered, middle = _sorted(values), len(values) // 2
    return float(ordered[middle] + ordered[len(values) - 1 - middle]) / 2


def noise(residuals: Reals, levels: int) -> float:
    """Return the standard deviation of values around so many levels, with outliers pulled in."""
    limit = _CLIP * _NORMAL_MAD * _median(np.abs(residuals))
    kept = np.clip(residuals, -limit, limit) if limit else residuals
    return float(np.sqrt((kept @ kept) / max(len(kept) - levels, 1)))
