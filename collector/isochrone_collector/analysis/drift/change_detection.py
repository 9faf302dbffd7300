"""Detection of lasting changes in a series of round medians. Pure.

The laws:

1. The hour of the day explains no change: the seasonality of the days before is subtracted first.
2. A change is a window of six rounds or more whose location deviates further from the level since the last change than
   the noise level of windows of its length allows (`stats.noise_level`), and by at least a tenth; by a quarter while
   the seasonality is unknown.
3. E-divisive locates the start of the change, and its permutation test must agree (`stats.changepoint`). The change
   must be a step: a rise and fall over hours is seasonality that is not known yet.
4. After a change the level is estimated again from there, while the noise level is kept. So the return to normal is a
   second change, found as fast as the first.

Values are compared as logarithms: a change is a factor, and noise has the same size at every level.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp, log

import numpy as np

from isochrone_collector.analysis.drift.seasonality import NO_SEASONALITY, Seasonality
from isochrone_collector.analysis.probes import Integers, Reals
from isochrone_collector.analysis.stats import noise_level
from isochrone_collector.analysis.stats.changepoint import likeliest, significance
from isochrone_wire.model import DAY_US

MAX_ROUNDS = 1024
"""The maximum number of rounds kept of a series."""
MIN_ROUNDS = 60
"""The minimum number of rounds of a series for a detection."""
MIN_CHANGE = 0.10
MIN_CHANGE_AT_FIRST = 0.25
"""The smallest change, as a share of the level: with known seasonality, and before."""
MIN_ROUNDS_AFTER = 6

_SIGNIFICANT = 0.01
_MONTH_US = 30 * DAY_US
# The number of rounds before a window that are searched for the start of the change.
_MIN_TAIL, _MAX_TAIL = 48, 96
# Bursts shorter than a change must be found too, so that they are not taken for the end of one.
_MIN_PART = 2
_MIN_DISTANCE = 3
# New rounds that are compared with the same past; fewer while the level is young.
_MAX_BATCH = 48


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """One metric of one target in one region: the median of each round, oldest first, all above zero.

    The last `n_new` rounds have not been examined yet; `changes` are the first rounds of known changes.
    """

    rounds: Integers
    values: Reals
    n_new: int
    changes: tuple[int, ...] = ()
    seasonality: Seasonality = NO_SEASONALITY

    def __len__(self) -> int:
        return len(self.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A lasting change, in the metric's unit. `after` is the median of the `n_after` rounds since `changed_at`, and
    `before` the value expected at the same hours from the `n_before` rounds since the previous change. `seen_at` is the
    round at which the change was detected.
    """

    changed_at: int
    seen_at: int
    before: float
    after: float
    p_value: float
    n_before: int
    n_after: int


def changes(series: Series) -> tuple[Change, ...]:
    """Return the changes detected in the new rounds, the earliest first."""
    found: list[Change] = []
    while change := _first(series):
        found.append(change)
        n_new = int(np.count_nonzero(series.rounds > change.seen_at))
        series = replace(series, n_new=min(n_new, series.n_new), changes=(*series.changes, change.changed_at))
    return tuple(found)


def every_us(rounds: Integers) -> int:
    """Return the usual time between two rounds in microseconds; at least 1."""
    return max(1, int(np.median(np.diff(rounds)))) if len(rounds) > 1 else 1


def _first(series: Series) -> Change | None:
    if len(series) < MIN_ROUNDS or series.n_new == 0:
        return None
    logs = np.log(series.values) - series.seasonality.at(series.rounds)
    edges = _edges(series)
    looks, least = _MONTH_US / every_us(series.rounds), _min_shift(series)
    for end, n_new in _batches(len(series), series.n_new, edges[-1]):
        residuals = _without_level(logs[:end], edges, known=end - n_new)
        found = noise_level.alarms(
            residuals,
            n_new=n_new,
            begin=edges[-1],
            looks_per_month=looks,
            min_shift=least,
            is_local=series.seasonality is NO_SEASONALITY,
        )
        for alarm in _distinct(found):
            change = _confirmed(alarm, logs, series, begin=edges[-1])
            if change:
                return change
    return None


def _min_shift(series: Series) -> float:
    return log(1 + (MIN_CHANGE_AT_FIRST if series.seasonality is NO_SEASONALITY else MIN_CHANGE))


def _edges(series: Series) -> list[int]:
    """Return the places where the parts between changes begin, the first at 0."""
    places = {int(place) for place in np.searchsorted(series.rounds, sorted(series.changes))}
    return sorted({0, *(place for place in places if place < len(series))})


def _batches(rounds: int, n_new: int, begin: int) -> Iterator[tuple[int, int]]:
    """Yield (end, number of new rounds) of the batches in which the new rounds are examined."""
    end = rounds - n_new
    while end < rounds:
        portion = min(max(1, min((end - begin) // 8, _MAX_BATCH)), rounds - end)
        end += portion
        yield end, portion


def _without_level(logs: Reals, edges: list[int], *, known: int) -> Reals:
    """Subtract each part's own median; for the last part, that of the rounds examined before."""
    residuals = logs.copy()
    for begin, end in zip(edges, [*edges[1:], len(logs)], strict=True):
        level_of = logs[begin : min(end, known)] if known > begin else logs[begin:end]
        if len(level_of):
            residuals[begin:end] -= np.median(level_of)
    return residuals


def _distinct(found: list[noise_level.Alarm]) -> Iterator[noise_level.Alarm]:
    """Drop alarms of the same length that end shortly after another one: they are not independent."""
    newest: dict[int, int] = {}
    for alarm in found:
        if alarm.end - newest.get(alarm.length, -_MIN_DISTANCE) >= _MIN_DISTANCE:
            newest[alarm.length] = alarm.end
            yield alarm


def _confirmed(alarm: noise_level.Alarm, logs: Reals, series: Series, *, begin: int) -> Change | None:
    tail = min(max(_MIN_TAIL, 2 * alarm.length), _MAX_TAIL)
    tail_begin = max(begin, alarm.end - alarm.length - tail)
    stretch = logs[tail_begin : alarm.end]
    place = likeliest(stretch, least=_MIN_PART)
    if place is None or len(stretch) - place < MIN_ROUNDS_AFTER or not _is_step(stretch, place, degree=_degree(series)):
        return None
    level_begin = tail_begin if series.seasonality is NO_SEASONALITY else begin
    shift = float(np.median(stretch[place:]) - np.median(logs[level_begin : tail_begin + place]))
    if abs(shift) < _min_shift(series) or shift * alarm.shift < 0:
        return None
    p_value = significance(stretch, least=_MIN_PART, enough=_SIGNIFICANT)
    if p_value > _SIGNIFICANT:
        return None
    return _change(series, tail_begin + place, alarm.end, shift=shift, p_value=p_value, level_begin=level_begin)


def _change(series: Series, place: int, end: int, *, shift: float, p_value: float, level_begin: int) -> Change:
    after = float(np.median(series.values[place:end]))
    return Change(
        changed_at=int(series.rounds[place]),
        seen_at=int(series.rounds[end - 1]),
        before=after * exp(-shift),
        after=after,
        p_value=p_value,
        n_before=place - level_begin,
        n_after=end - place,
    )


def _degree(series: Series) -> int:
    """Return the degree of the curve that a step must beat; one more while the seasonality is unknown."""
    return 3 if series.seasonality is NO_SEASONALITY else 2


def _is_step(stretch: Reals, place: int, *, degree: int) -> bool:
    """Return whether two levels fit a stretch better than a polynomial of that degree."""
    before, after = stretch[:place], stretch[place:]
    unexplained = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    # Legendre polynomials are nearly orthogonal on a grid, so the fit is well conditioned.
    curve = np.polynomial.Legendre.fit(np.arange(len(stretch)), stretch, deg=degree)(np.arange(len(stretch)))
    return unexplained < float(((stretch - curve) ** 2).sum())
