"""State of a series between two detections: its newest rounds, and its hourly medians for a week. Pure.

Rounds may be added in any order and repeatedly: a repeated round replaces the earlier value, because the median of a
round changes while its probes arrive. A state takes about 20 kB.
"""

from collections.abc import Iterable

import numpy as np

from isochrone_collector.analysis.drift.change_detection import MAX_ROUNDS, Change, Series, changes, every_us
from isochrone_collector.analysis.drift.seasonality import HOUR_US, NO_SEASONALITY, Seasonality, estimate_seasonality
from isochrone_collector.analysis.probes import Flags, Integers, Reals
from isochrone_collector.analysis.sorting import medians_within
from isochrone_wire.model import DAY_US

MAX_DAYS = 7

_NEVER = -1
# The number of newest rounds examined of a series that is new to this process.
_FIRST_ROUNDS = 96


class SeriesState:
    """The state of one series. `changes` are the first rounds of its known changes."""

    def __init__(self, changes: Iterable[int] = ()) -> None:
        self.changes = tuple(sorted(changes))
        self.rounds: Integers = np.empty(0, dtype=np.int64)
        self.values: Reals = np.empty(0)
        self._hours: Integers = np.empty(0, dtype=np.int64)
        self._levels: Reals = np.empty(0)
        self._examined_until = _NEVER
        self._seasonality: tuple[int, Seasonality] = (_NEVER, NO_SEASONALITY)

    def add(self, rounds: Integers, values: Reals, censored: Flags | None = None) -> None:
        """Add rounds with their medians; values that are unknown or not above zero are skipped.

        A `censored` value is only a lower bound, at which a timeout cut it off: it counts if it exceeds the level, and
        is skipped otherwise, because a probe given up early is not fast.
        """
        known = np.isfinite(values) & (values > 0)
        if censored is not None:
            known &= ~censored | (values > self._level(rounds[known & ~censored], values[known & ~censored]))
        if not known.any():
            return
        first_hour = int(rounds[known].min()) // HOUR_US * HOUR_US
        rounds, values = _merged(self.rounds, self.values, rounds[known], values[known])
        begin = int(np.searchsorted(rounds, first_hour))
        self._update_hours(rounds[begin:], values[begin:], is_whole=begin > 0)
        # Copies, because a slice would keep the whole array alive.
        self.rounds, self.values = rounds[-MAX_ROUNDS:].copy(), values[-MAX_ROUNDS:].copy()

    def _level(self, rounds: Integers, values: Reals) -> float:
        """Return the median since the newest change, new values included; infinite without values."""
        begin = max(self.changes, default=_NEVER)
        since = np.concatenate([self.values[self.rounds >= begin], values[rounds >= begin]])
        return float(np.median(since)) if len(since) else np.inf

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
        found = changes(self._series())
        self._examined_until = int(self.rounds[-1]) if len(self.rounds) else _NEVER
        self.changes = tuple(sorted({*self.changes, *(change.changed_at for change in found)}))
        return found

    def _series(self) -> Series:
        n_new = int(np.count_nonzero(self.rounds > self._examined_until))
        if self._examined_until == _NEVER:
            n_new = min(n_new, _FIRST_ROUNDS)
        return Series(
            rounds=self.rounds,
            values=self.values,
            n_new=n_new,
            changes=self.changes,
            seasonality=self._current_seasonality(),
        )

    def _current_seasonality(self) -> Seasonality:
        """Return the seasonality of the days before today, computed once a day."""
        today = int(self.rounds[-1]) // DAY_US if len(self.rounds) else _NEVER
        if self._seasonality[0] != today:
            before = self._hours < today * DAY_US
            self._seasonality = today, estimate_seasonality(self._hours[before], self._levels[before])
        return self._seasonality[1]

    def _update_hours(self, rounds: Integers, values: Reals, *, is_whole: bool) -> None:
        """Update the median of each hour; the first hour only if its beginning is kept, or it has no median yet."""
        hours, first = np.unique(rounds // HOUR_US * HOUR_US, return_index=True)
        levels = medians_within(np.log(values), np.diff(first, append=len(values)))
        if not is_whole and hours[0] in self._hours:
            hours, levels = hours[1:], levels[1:]
        hours, levels = _merged(self._hours, self._levels, hours, levels)
        kept = hours > rounds[-1] - (MAX_DAYS + 1) * DAY_US
        self._hours, self._levels = hours[kept], levels[kept]


def _merged(rounds: Integers, values: Reals, more: Integers, of_more: Reals) -> tuple[Integers, Reals]:
    """Merge rounds in order; a repeated round gets its newer value."""
    every = np.concatenate([more, rounds])
    # `unique` keeps the first of equal ones.
    ordered, places = np.unique(every, return_index=True)
    return ordered, np.concatenate([of_more, values])[places]
