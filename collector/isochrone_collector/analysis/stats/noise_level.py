"""Whether the newest values of a series lie further from its level than it ever wanders by itself.

Theory of operation. A window of m values has a location: their mean, with whatever lies further than 3 spreads from the
window's middle pulled in (P. J. Huber, Ann. Math. Statist. 35 (1964) 73-101, one step), the middle being the point
between the quartiles that is nearest to the level. So three wild values in a row are no new level, but a whole window
is. How far that location strays while nothing happens is not derived from a model of the noise but read off the series:
it is the standard deviation of the locations of the earlier windows of the same length (overlapping batch means;
M. S. Meketon and B. Schmeiser, Proc. Winter Simulation Conf. (1984) 227-230), which holds for noise that resembles
itself from value to value too. Such a deviation from N values has about 1.5·N/m degrees of freedom, and Student's t
with as many says how far a window may stray before it is called an alarm.

Every window of every length is another chance to be wrong, so the error is shared out: a month of looks at one series
may raise `FALSE_ALARMS` false alarms if its windows were all independent. They overlap, so that there are fewer.

For long windows few earlier ones exist. Above `_LONGEST_TRUSTED` values the deviation is at least half of that of
windows a quarter as long, as it is where values so far apart are independent, and the degrees of freedom are theirs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.special import stdtrit

Reals = NDArray[np.float64]

FALSE_ALARMS = 0.03
"""False alarms of one series in a month of independent looks."""

# Window length → its share of the error. Twelve is what the promise is about.
SHARES = {6: 0.15, 12: 0.45, 24: 0.2, 48: 0.1, 96: 0.1}
LEAST_LEVEL = 12
"""How many values a level must have been seen for."""

_LONGEST_TRUSTED = 24
_LEAST_WINDOWS = 4
_LOCAL_WINDOWS = 4
_LEAST_REACH = 48
_CLIP = 3.0
_NORMAL_MAD = 1.4826
# A series that hardly varies still does by so much (of 1).
_LEAST_SPREAD = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A window of `length` values that ends before place `end`, by how much its location is off the level."""

    end: int
    length: int
    shift: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseLevel:
    """How far windows of one length stray: the standard deviation of their locations, with its degrees of freedom."""

    deviation: float
    freedom: float


def alarms(
    values: Reals, *, n_new: int, begin: int, looks_per_month: float, min_shift: float, is_local: bool = False
) -> list[Alarm]:
    """The alarms among the windows that end within the last `fresh` values, the earliest first.

    `values` have their level taken off, each part between changes its own; the part in which the windows are sought
    begins at place `begin`. A shift below `least_shift` is none. Where a series is known to swing, unless `is_local` is
    said, its level is that of everything since `begin`; else it is that of the four windows before.
    """
    known = len(values) - n_new
    levels: dict[int, NoiseLevel] = {}
    found: list[Alarm] = []
    for length, share in SHARES.items():
        before = known + 1 - length
        if before - begin < max(LEAST_LEVEL, length):
            break
        past = values[: max(0, before - length)]
        if len(past) < _LEAST_WINDOWS * length:
            break
        spread = _spread(past)
        levels[length] = _noise_level(past, length, spread, levels, is_local=is_local)
        reach = max(_LEAST_REACH, _LOCAL_WINDOWS * length) if is_local else before
        level_of = values[max(begin, before - reach) : before]
        allowed = -float(stdtrit(levels[length].freedom, share * FALSE_ALARMS / looks_per_month / 2))
        limit = allowed * levels[length].deviation * sqrt(1 + length / len(level_of))
        found += _exceeding(
            values[before:] - _level(level_of, spread), length, spread, max(limit, min_shift), first_end=known + 1
        )
    return sorted(found, key=lambda alarm: (alarm.end, alarm.length))


def _exceeding(rest: Reals, length: int, spread: float, limit: float, *, first_end: int) -> Iterator[Alarm]:
    shifts = _locations(sliding_window_view(rest, length), spread)
    for place in np.flatnonzero(np.abs(shifts) > limit):
        yield Alarm(end=first_end + int(place), length=length, shift=float(shifts[place]))


def _noise_level(
    past: Reals, length: int, spread: float, shorter: dict[int, NoiseLevel], *, is_local: bool
) -> NoiseLevel:
    # Windows a quarter apart say nearly as much as all of them. The newest are kept, whatever remains is the oldest.
    every = max(1, length // 4)
    windows = sliding_window_view(past, length)[::-1][::every]
    locations = _locations(windows, spread)
    if is_local:
        locations = _off_those_before(locations, apart=-(-length // every))
    deviation = float(locations.std(ddof=1))
    freedom = 1.5 * len(past) / length - 1
    if length > _LONGEST_TRUSTED:
        quarter = shorter[length // 4]
        deviation, freedom = max(deviation, quarter.deviation / 2), quarter.freedom
    return NoiseLevel(deviation=max(deviation, _LEAST_SPREAD / sqrt(length)), freedom=freedom)


def _off_those_before(locations: Reals, *, apart: int) -> Reals:
    """How far each window, the newest first, lies off the four windows before, `apart` places apart; all as they are
    when there are too few of them.
    """
    before = np.convolve(locations[apart:], np.full(_LOCAL_WINDOWS * apart, 1 / (_LOCAL_WINDOWS * apart)), mode="valid")
    return locations[: len(before)] - before if len(locations) > 2 * _LOCAL_WINDOWS * apart else locations


def _locations(windows: Reals, spread: float) -> Reals:
    length = windows.shape[1]
    ordered = np.sort(windows, axis=1)
    quartile = length // 4
    middle = np.clip(0.0, ordered[:, quartile], ordered[:, length - 1 - quartile])[:, None]
    pulled: Reals = middle[:, 0] + np.clip(windows - middle, -_CLIP * spread, _CLIP * spread).mean(axis=1)
    return pulled


def _level(values: Reals, spread: float) -> float:
    middle = float(np.median(values))
    return middle + float(np.clip(values - middle, -_CLIP * spread, _CLIP * spread).mean())


def _spread(values: Reals) -> float:
    """The standard deviation as the median absolute deviation tells it, of normal values."""
    return max(_NORMAL_MAD * float(np.median(np.abs(values - np.median(values)))), _LEAST_SPREAD)
