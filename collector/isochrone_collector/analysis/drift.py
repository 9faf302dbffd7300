"""Detection of lasting changes in a series of round medians. Pure.

The laws:

1. The hour of the day explains no change, and from the fourth week on neither does the hour of the week: the
   seasonality of the time before is subtracted first. It is known to the hour, so rounds beside an abrupt turn of the
   weekly cycle are left out. Before that, a change may be weekly.
2. A change is a window of six rounds or more whose location deviates further from the level since the last change than
   the noise level of windows of its length allows (`stats.change_alarms`), and by at least a tenth; by a quarter while
   the seasonality is unknown.
3. E-divisive locates the start of the change, and its permutation test must agree (the same module). The change
   must be a step: a rise and fall over hours is seasonality that is not known yet.
4. After a change the level is estimated again from there, while the noise level is kept. So the return to normal is a
   second change, found as fast as the first.

Values are compared as logarithms: a change is a factor, and noise has the same size at every level. Hours are UTC.

The state of a series between two detections, of about 45 kB, has its newest rounds and its hourly medians of four
weeks. Rounds may be added in any order, and again, because the median of a round changes while its probes arrive.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import exp, log

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from isochrone_collector.analysis.stats import change_alarms
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals, medians_within
from isochrone_collector.analysis.stats.change_alarms import likeliest, significance
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US

MIN_DAYS = MIN_WEEKS = 3
"""The minimum number of days and weeks: with three, the median ignores an odd one."""
MAX_DAYS = 7
MAX_WEEKS = 4
WEEK_HOURS = 168

_HOURS = 24
# A day or week counts only if most of its hours have data.
_MOST = 0.75
_SMOOTHING = np.array([0.25, 0.5, 0.25])


def usual_at(seasonality: Reals, rounds: Integers) -> Reals:
    """Return the usual difference at these instants, interpolated between the middles of two hours. The seasonality has
    24 hours of a day, or 168 of a week that begins on Thursday, as the epoch did.
    """
    n = len(seasonality)
    hours = (rounds % (n * HOUR_US)) / HOUR_US - 0.5
    return np.asarray(np.interp(hours, np.arange(-1, n + 1), np.pad(seasonality, 1, mode="wrap")))


def estimate_seasonality(hours: Integers, levels: Reals) -> Reals | None:
    """Estimate the usual difference of each of the 24 hours to the level of its day, from the levels of hours that
    begin at these instants, as logarithms; `None` with fewer than three days.
    """
    offsets = _offsets(hours, levels, of=_HOURS)
    if len(offsets) < MIN_DAYS:
        return None
    return np.asarray(np.convolve(np.pad(np.median(offsets, axis=0), 1, mode="wrap"), _SMOOTHING, mode="valid"))


def estimate_weekly(hours: Integers, levels: Reals, daily: Reals) -> Reals | None:
    """Estimate the usual difference of each of the 168 hours to the level of its week, like `estimate_seasonality`;
    `None` with fewer than three weeks. An hour deviates from the `daily` seasonality as far as the weeks agree: the
    deviation is shrunken by the non-negative garrote (L. Breiman, Technometrics 37 (1995) 373-384).
    """
    usual = np.tile(daily, WEEK_HOURS // _HOURS)
    offsets = _offsets(hours, levels - daily[hours % DAY_US // HOUR_US], of=WEEK_HOURS)
    if len(offsets) < MIN_WEEKS:
        return None
    # The median of three neighbours keeps abrupt turns, and not the noise of an hour, which looks like two of them.
    deviation = np.median(sliding_window_view(np.pad(np.median(offsets, axis=0), 1, mode="wrap"), 3), axis=1)
    # Of three to four normal values, the median of the variance is about 0.75 of it, and that of the median 1.5 / n.
    noise = 2 * float(np.median(offsets.var(axis=0, ddof=1))) / len(offsets)
    scale = np.maximum(deviation**2, np.finfo(float).tiny)
    return np.asarray(usual + deviation * np.maximum(0.0, 1 - noise / scale))


def _offsets(hours: Integers, levels: Reals, *, of: int) -> Reals:
    """Return a row per day or week, of so many hours, that has most of them: the differences from the row's median,
    zero for missing hours. Weeks are counted back from the end of the newest day.
    """
    end = (hours.max(initial=0) // DAY_US + 1) * DAY_US
    rows, row = np.unique((end - 1 - hours) // (of * HOUR_US), return_inverse=True)
    table = np.full((len(rows), of), np.nan)
    table[row, hours // HOUR_US % of] = levels
    full = table[np.isfinite(table).sum(axis=1) >= _MOST * of]
    return np.asarray(np.nan_to_num(full - np.nanmedian(full, axis=1, keepdims=True)) if len(full) else full)


MAX_ROUNDS = 2048
"""The maximum number of rounds kept of a series."""
MIN_ROUNDS = 60
"""The minimum number of rounds of a series for a detection."""
MIN_CHANGE = 0.10
MIN_CHANGE_AT_FIRST = 0.25
"""The smallest change, as a share of the level: with known seasonality, and before."""
MIN_ROUNDS_AFTER = 6

_SIGNIFICANT = 0.01
# The second difference of hours from which on the weekly cycle turns too abruptly to be interpolated.
_TURN = log(1 + MIN_CHANGE)
# A weekend among the rounds would be noise while the weekly cycle is unknown, so that they are fewer.
_ROUNDS_AT_FIRST = 1024
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
    """The round medians of one series, oldest first, above zero; the last `n_new` of them are to be examined."""

    rounds: Integers
    values: Reals
    n_new: int
    changes: tuple[int, ...] = ()
    seasonality: Reals | None = None

    def __len__(self) -> int:
        return len(self.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A lasting change, in the metric's unit: the median of the `n_after` rounds since it, and the value expected at
    the same hours from the `n_before` rounds since the previous one. It was detected at the round `seen_at`. It
    `may_be_weekly` if the weekly cycle is not known yet.
    """

    changed_at: int
    seen_at: int
    before: float
    after: float
    p_value: float
    n_before: int
    n_after: int
    may_be_weekly: bool = False


def changes(series: Series) -> tuple[Change, ...]:
    """Return the changes detected in the new rounds, the earliest first."""
    found: list[Change] = []
    series = _without_turns(series) if _knows_week(series) else _newest(series)
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
    logs = np.log(series.values)
    if series.seasonality is not None:
        logs -= usual_at(series.seasonality, series.rounds)
    # The places where the parts between changes begin.
    places = np.searchsorted(series.rounds, sorted(series.changes)).tolist()
    edges = sorted({0, *(place for place in places if place < len(series))})
    looks, least = _MONTH_US / every_us(series.rounds), _min_shift(series)
    for end, n_new in _batches(len(series), series.n_new, edges[-1]):
        residuals = _without_level(logs[:end], edges, known=end - n_new)
        found = change_alarms.alarms(
            residuals,
            n_new=n_new,
            begin=edges[-1],
            looks_per_month=looks,
            min_shift=least,
            is_local=series.seasonality is None,
            is_stationary=_knows_week(series),
        )
        for alarm in _distinct(found):
            change = _confirmed(alarm, logs, series, begin=edges[-1])
            if change:
                return change
    return None


def _knows_week(series: Series) -> bool:
    return series.seasonality is not None and len(series.seasonality) == WEEK_HOURS


def _newest(series: Series) -> Series:
    kept = slice(-_ROUNDS_AT_FIRST, None)
    rounds, values = series.rounds[kept], series.values[kept]
    return replace(series, rounds=rounds, values=values, n_new=min(series.n_new, len(rounds)))


def _without_turns(series: Series) -> Series:
    """Leave out the rounds within an hour or two of a turn of the weekly cycle: by how much the level changes within
    the hour is not known.
    """
    assert series.seasonality is not None
    around = np.pad(series.seasonality, 2, mode="wrap")
    is_turn = np.abs(np.diff(around, n=2)) > _TURN
    near = is_turn[:-2] | is_turn[1:-1] | is_turn[2:]
    kept = ~near[series.rounds // HOUR_US % WEEK_HOURS]
    n_new = int(np.count_nonzero(kept[len(series) - series.n_new :]))
    return replace(series, rounds=series.rounds[kept], values=series.values[kept], n_new=n_new)


def _min_shift(series: Series) -> float:
    return log(1 + (MIN_CHANGE_AT_FIRST if series.seasonality is None else MIN_CHANGE))


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


def _distinct(found: list[change_alarms.Alarm]) -> Iterator[change_alarms.Alarm]:
    """Drop alarms of the same length that end shortly after another one: they are not independent."""
    newest: dict[int, int] = {}
    for alarm in found:
        if alarm.end - newest.get(alarm.length, -_MIN_DISTANCE) >= _MIN_DISTANCE:
            newest[alarm.length] = alarm.end
            yield alarm


def _confirmed(alarm: change_alarms.Alarm, logs: Reals, series: Series, *, begin: int) -> Change | None:
    tail = min(max(_MIN_TAIL, 2 * alarm.length), _MAX_TAIL)
    tail_begin = max(begin, alarm.end - alarm.length - tail)
    stretch = logs[tail_begin : alarm.end]
    place = likeliest(stretch, least=_MIN_PART)
    degree, level_begin = (3, tail_begin) if series.seasonality is None else (2, begin)
    if place is None or len(stretch) - place < MIN_ROUNDS_AFTER or not _is_step(stretch, place, degree=degree):
        return None
    shift = float(np.median(stretch[place:]) - np.median(logs[level_begin : tail_begin + place]))
    if abs(shift) < _min_shift(series) or shift * alarm.shift < 0:
        return None
    p_value = significance(stretch, least=_MIN_PART, enough=_SIGNIFICANT)
    if p_value > _SIGNIFICANT:
        return None
    after = float(np.median(series.values[tail_begin + place : alarm.end]))
    return Change(
        changed_at=int(series.rounds[tail_begin + place]),
        seen_at=int(series.rounds[alarm.end - 1]),
        before=after * exp(-shift),
        after=after,
        p_value=p_value,
        n_before=tail_begin + place - level_begin,
        n_after=alarm.end - tail_begin - place,
        may_be_weekly=not _knows_week(series),
    )


def _is_step(stretch: Reals, place: int, *, degree: int) -> bool:
    """Return whether two levels fit a stretch better than a polynomial of that degree."""
    before, after = stretch[:place], stretch[place:]
    unexplained = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    # Legendre polynomials are nearly orthogonal on a grid, so the fit is well conditioned.
    curve = np.polynomial.Legendre.fit(np.arange(len(stretch)), stretch, deg=degree)(np.arange(len(stretch)))
    return unexplained < float(((stretch - curve) ** 2).sum())


_NEVER = -1
# The number of newest rounds examined of a series that is new to this process.
_FIRST_ROUNDS = 96


_Values = tuple[Integers, Reals]
"""Rounds, ascending, and their values."""

_NO_VALUES: _Values = np.empty(0, dtype=np.int64), np.empty(0)


class SeriesState:
    """The state of one series. `changes` are the first rounds of its known changes."""

    def __init__(self, changes: Iterable[int] = ()) -> None:
        self.changes = tuple(sorted(changes))
        self.rounds, self.values = self._exact = self._limits = _NO_VALUES
        self._hours, self._levels = _NO_VALUES
        self._examined_until = _NEVER
        self._seasonality: tuple[int, Reals | None] = (_NEVER, None)

    def add(self, rounds: Integers, values: Reals, censored: Flags | None = None) -> None:
        """Add rounds with their medians. Values that are unknown or not above zero are skipped; `censored` ones are
        lower bounds, and count as long as they exceed the level: a probe given up early is not fast.
        """
        known = np.isfinite(values) & (values > 0)
        if not known.any():
            return
        is_limit = known & (False if censored is None else censored)
        is_exact = known & ~is_limit
        exact = _merged(*self._exact, rounds[is_exact], values[is_exact])
        limits = self._limits
        first_at = int(rounds[known].min())
        if len(limits[0]) or is_limit.any():
            limits = _merged(*limits, rounds[is_limit], values[is_limit])
            # The newer value of a round may be of the other kind. A level may have moved in all hours with limits.
            exact = _chosen(exact, ~np.isin(exact[0], rounds[is_limit]))
            limits = _chosen(limits, ~np.isin(limits[0], rounds[is_exact]) & (limits[0] >= self._whole_from))
            first_at = min([first_at, *limits[0][:1].tolist()])
        counted = self._counted(exact, limits)
        begin = int(np.searchsorted(counted[0], first_at // HOUR_US * HOUR_US))
        self._update_hours(*_chosen(counted, slice(begin, None)), limited=limits[0])
        self._exact, self._limits = _last(exact), _last(limits)
        self.rounds, self.values = self._exact if counted is exact else _last(counted)

    def _counted(self, exact: _Values, limits: _Values) -> _Values:
        """Return the exact values, and the limits above the level between the changes around them: the median of the
        exact values there, or before. Without such values none is above.
        """
        if not len(limits[0]):
            return exact
        changes, level, levels = np.array(self.changes, dtype=np.int64), np.inf, list[float]()
        for part in np.split(exact[1], np.searchsorted(exact[0], changes)):
            level = float(np.median(part)) if len(part) else level
            levels.append(level)
        is_above = limits[1] > np.array(levels)[np.searchsorted(changes, limits[0], side="right")]
        return _merged(*exact, *_chosen(limits, is_above))

    @property
    def every_us(self) -> int:
        """The usual time between two rounds in microseconds."""
        return every_us(self.rounds)

    @property
    def has_new_rounds(self) -> bool:
        """True if there are rounds that were not examined yet."""
        return len(self.rounds) > 0 and int(self.rounds[-1]) > self._examined_until

    def detect(self) -> tuple[Change, ...]:
        """Return the changes detected in the rounds since the last detection, and remember them."""
        n_new = int(np.count_nonzero(self.rounds > self._examined_until))
        if self._examined_until == _NEVER:
            n_new = min(n_new, _FIRST_ROUNDS)
        found = changes(
            Series(
                rounds=self.rounds,
                values=self.values,
                n_new=n_new,
                changes=self.changes,
                seasonality=self._current_seasonality(),
            )
        )
        self._examined_until = int(self.rounds[-1]) if len(self.rounds) else _NEVER
        self.changes = tuple(sorted({*self.changes, *(change.changed_at for change in found)}))
        return found

    def _current_seasonality(self) -> Reals | None:
        """Return the seasonality of the days before today, computed once a day: of the week, or else of the day."""
        today = int(self.rounds[-1]) // DAY_US if len(self.rounds) else _NEVER
        if self._seasonality[0] != today:
            self._seasonality = today, self._estimate(today)
        return self._seasonality[1]

    def _estimate(self, today: int) -> Reals | None:
        ages = today - self._hours // DAY_US
        recent = (ages > 0) & (ages <= MAX_DAYS)
        daily = estimate_seasonality(self._hours[recent], self._levels[recent])
        if daily is None:
            return None
        weekly = estimate_weekly(self._hours[ages > 0], self._levels[ages > 0], daily)
        return daily if weekly is None else weekly

    @property
    def _whole_from(self) -> int:
        """The first hour all of whose rounds are in memory."""
        rounds, _ = self._exact
        return int(rounds[0]) // HOUR_US * HOUR_US + HOUR_US if len(rounds) == MAX_ROUNDS else 0

    def _update_hours(self, rounds: Integers, values: Reals, *, limited: Integers) -> None:
        """Update the median of each hour. One that is not whole in memory keeps its median; one with `limited` rounds
        that no longer count may have none.
        """
        hours, first = np.unique(rounds // HOUR_US * HOUR_US, return_index=True)
        levels = medians_within(np.log(values), np.diff(first, append=len(values)))
        if not (is_new := hours >= self._whole_from).all():
            is_new |= ~np.isin(hours, self._hours)
        known = self._hours, self._levels
        if len(limited):
            known = _chosen(known, ~np.isin(self._hours, limited // HOUR_US * HOUR_US))
        hours, levels = _merged(*known, hours[is_new], levels[is_new])
        kept = hours > hours.max(initial=0) - (MAX_WEEKS * 7 + 1) * DAY_US
        self._hours, self._levels = hours[kept], levels[kept]


def _merged(rounds: Integers, values: Reals, more: Integers, of_more: Reals) -> _Values:
    """Merge rounds in order; a repeated round gets its newer value."""
    every = np.concatenate([more, rounds])
    # `unique` keeps the first of equal ones.
    ordered, places = np.unique(every, return_index=True)
    return ordered, np.concatenate([of_more, values])[places]


def _chosen(values: _Values, places: Flags | slice) -> _Values:
    return values[0][places], values[1][places]


def _last(values: _Values) -> _Values:
    # Copies, because a slice would keep the whole array alive.
    return values[0][-MAX_ROUNDS:].copy(), values[1][-MAX_ROUNDS:].copy()
