"""Alarms for windows of a series that deviate from its level by more than its own noise level.

Theory of operation. A window of m values has a location: their mean, with values further than 3 spreads from the
window's middle pulled in (P. J. Huber, Ann. Math. Statist. 35 (1964) 73-101, one step), where the middle is the point
between the quartiles that is nearest to the level. So three outliers in a row do not make a new level, but a whole
window does. The noise level of that location is not derived from a model but measured on the series: it is the standard
deviation of the locations of the earlier windows of the same length (overlapping batch means; M. S. Meketon and B.
Schmeiser, Proc. Winter Simulation Conf. (1984) 227-230), which also holds for autocorrelated noise. From N independent
values it has about 1.5·N/m degrees of freedom. If the noise has memory, locations are alike beyond their overlap: with
autocorrelations r_k, up to the first that is noise, n of them have n / (1 + 2·Σ r_k²) - 1 degrees of freedom (M. S.
Bartlett, JRSS Suppl. 8 (1946) 27-41), and their variance about their own mean is too small by the share (1 + 2·Σ r_k) /
n. Student's t gives the deviation from which on a window is an alarm. The level varies as well, the more the younger it
is: like the longest windows that are not longer than it, taken as independent.

Every window of every length is another chance of a false alarm, so the error is divided among them: a month of looks at
one series may raise `FALSE_ALARMS` false alarms if all windows were independent. They overlap, so there are fewer.

There are few earlier windows of great length. Above `_LONGEST_TRUSTED` values the deviation is at least half of that of
windows a quarter as long, as if values so far apart were independent, with the degrees of freedom of those windows.

A change point in a stretch of values is located by one step of E-divisive. The energy distance of the values before and
after a place τ among n is

    E(τ) = 2·mean|X - Y| - mean|X - X'| - mean|Y - Y'|

over pairs across and within the two sides; the estimated change is at the greatest τ(n - τ)/n · E(τ), and its
significance is that of a permutation test with a fixed seed (D. S. Matteson and N. A. James, JASA 109 (2014) 334-345,
arXiv:1306.4933; with exponent 1, and the end of the stretch in place of their κ). Autocorrelation makes its p-value too
small, so it must not be the only criterion of an alarm.
"""

from dataclasses import dataclass
from math import hypot, sqrt
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import stdtrit

from isochrone_collector.analysis.stats.arrays import Reals

FALSE_ALARMS = 0.03
"""False alarms of one series in a month of independent looks."""

# Window length → its share of the error. Twelve is the length that the detection delay is specified for.
SHARES = {6: 0.15, 12: 0.4, 24: 0.2, 48: 0.1, 96: 0.1, 192: 0.05}
LEAST_LEVEL = 12
"""The minimum number of values of a level."""

# A seasonality of n days fits these better than the day that follows: deviations from a mean of n values vary by
# 1 - 1/n of their variance, those of a new value by 1 + 1/n. The factor √((n + 1)/(n - 1)) is 1.15 for the seven days
# of an hour, and 1.29 for the four of an hour of the week.
_UNSEEN = 1.2
_LONGEST_TRUSTED = 24
_LEAST_WINDOWS = 4
_LOCAL_WINDOWS = 4
_LEAST_REACH = 48
_CLIP = 3.0
_NORMAL_MAD = 1.4826
# The minimum spread, as a share of the level, for series that hardly vary.
_LEAST_SPREAD = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A window of `length` values that ends before place `end`; `shift` is its location minus the level."""

    end: int
    length: int
    shift: float


class NoiseLevel(NamedTuple):
    """The standard deviation of windows of one length, its degrees of freedom, and the spread of single values."""

    deviation: float
    freedom: float
    spread: float


def alarms(
    values: Reals,
    *,
    n_new: int,
    begin: int,
    looks_per_month: float,
    min_shift: float,
    is_local: bool = False,
    is_stationary: bool = False,
) -> list[Alarm]:
    """Return the alarms, of at least `min_shift`, among the windows that end within the last `n_new` values, the
    earliest first. Each part of `values` between changes has its own level subtracted; the part searched begins at
    `begin`. The level is that of all values since `begin`, or with `is_local` that of the four windows before. What
    windows have in common is memory if the series `is_stationary`, and else a seasonality that is not known yet.
    """
    known = len(values) - n_new
    noise = _noise_levels(values, known, begin, is_local=is_local, is_stationary=is_stationary)
    found: list[Alarm] = []
    for length, (deviation, freedom, spread) in noise.items():
        before = known + 1 - length
        reach = max(_LEAST_REACH, _LOCAL_WINDOWS * length) if is_local else before
        level_of = values[max(begin, before - reach) : before]
        longest = max(other for other in noise if other <= len(level_of)) if is_stationary else length
        of_level = noise[longest].deviation * sqrt(longest / len(level_of))
        allowed = -float(stdtrit(freedom, SHARES[length] * FALSE_ALARMS / looks_per_month / 2))
        limit = (_UNSEEN if is_stationary else 1.0) * allowed * hypot(deviation, of_level)
        middle = float(np.median(level_of))
        level = middle + float(np.clip(level_of - middle, -_CLIP * spread, _CLIP * spread).mean())
        shifts = _locations(sliding_window_view(values[before:] - level, length), spread)
        found += [
            Alarm(end=known + 1 + place, length=length, shift=float(shifts[place]))
            for place in np.flatnonzero(np.abs(shifts) > max(limit, min_shift)).tolist()
        ]
    return sorted(found, key=lambda alarm: (alarm.end, alarm.length))


def _noise_levels(
    values: Reals, known: int, begin: int, *, is_local: bool, is_stationary: bool
) -> dict[int, NoiseLevel]:
    """Return the noise levels of the lengths for which level and past are long enough."""
    found: dict[int, NoiseLevel] = {}
    for length in SHARES:
        before = known + 1 - length
        past = values[: max(0, before - length)]
        if before - begin < max(LEAST_LEVEL, length) or len(past) < _LEAST_WINDOWS * length:
            break
        # The standard deviation of normal values, from their median absolute deviation.
        spread = max(_NORMAL_MAD * float(np.median(np.abs(past - np.median(past)))), _LEAST_SPREAD)
        found[length] = _noise_level(past, length, spread, found, is_local=is_local, is_stationary=is_stationary)
    return found


def _noise_level(
    past: Reals, length: int, spread: float, shorter: dict[int, NoiseLevel], *, is_local: bool, is_stationary: bool
) -> NoiseLevel:
    # Windows a quarter apart carry nearly the information of all, and so do 512 of the shortest. Counted from the
    # newest; the oldest may be cut off.
    every = max(1, length // 4, len(past) // 512)
    locations = _locations(sliding_window_view(past, length)[::-1][::every], spread)
    apart = -(-length // every)
    if is_local and len(locations) > 2 * _LOCAL_WINDOWS * apart:
        # Off the mean of the four windows before each, as the level is.
        means = np.full(_LOCAL_WINDOWS * apart, 1 / (_LOCAL_WINDOWS * apart))
        before = np.convolve(locations[apart:], means, mode="valid")
        locations = locations[: len(before)] - before
    deviation, freedom = float(locations.std(ddof=1)), 1.5 * len(past) / length - 1
    if is_stationary:
        deviation, freedom = _deviation(locations)
    if length > _LONGEST_TRUSTED:
        quarter = shorter[length // 4]
        deviation, freedom = max(deviation, quarter.deviation / 2), quarter.freedom
    return NoiseLevel(deviation=max(deviation, _LEAST_SPREAD / sqrt(length)), freedom=freedom, spread=spread)


def _deviation(locations: Reals) -> tuple[float, float]:
    """Return the standard deviation of autocorrelated locations, in order, and its degrees of freedom."""
    n = len(locations)
    centred = locations - locations.mean()
    products = np.fft.irfft(np.abs(np.fft.rfft(centred, 2 * n)) ** 2)[:n]
    if not products[0]:
        return 0.0, float(n)
    likeness = products[1:] / products[0] * n / np.arange(n - 1, 0, -1)
    likeness = likeness[: int(np.argmax(np.append(likeness, 0.0) <= 2 / sqrt(n)))]
    lost = min((1 + 2 * likeness.sum()) / n, 0.5)
    return sqrt(products[0] / n / (1 - lost)), max(n / (1 + 2 * float((likeness**2).sum())) - 1, 1.0)


def _locations(windows: Reals, spread: float) -> Reals:
    length = windows.shape[1]
    ordered = np.sort(windows, axis=1)
    quartile = length // 4
    middle = np.clip(0.0, ordered[:, quartile], ordered[:, length - 1 - quartile])[:, None]
    pulled: Reals = middle[:, 0] + np.clip(windows - middle, -_CLIP * spread, _CLIP * spread).mean(axis=1)
    return pulled


PERMUTATIONS = 499
_SEED = 20141306


def likeliest(values: Reals, *, least: int) -> int | None:
    """Return where the second of the likeliest two parts of at least `least` values begins; `None` with too few."""
    if len(values) < 2 * least:
        return None
    return least + int(np.argmax(_scores(_distances(values), least)))


def significance(values: Reals, *, least: int, enough: float = 1.0) -> float:
    """Return the p-value of the likeliest division of at least 2·`least` values; 1 if it certainly exceeds `enough`."""
    distances = _distances(values)
    greatest = _scores(distances, least).max()
    shuffled = np.random.default_rng(_SEED)
    p_value = 1 / (1 + PERMUTATIONS)
    for _ in range(PERMUTATIONS):
        order = shuffled.permutation(len(values))
        if _scores(distances[np.ix_(order, order)], least).max() >= greatest:
            p_value += 1 / (1 + PERMUTATIONS)
            if p_value > enough:
                return 1.0
    return p_value


def _distances(values: Reals) -> Reals:
    distances: Reals = np.abs(np.subtract.outer(values, values))
    return distances


def _scores(distances: Reals, least: int) -> Reals:
    """Return the scaled energy distance of each place from `least` to n - `least`."""
    n = len(distances)
    # Sums of the distances among the first τ values, and between them and all.
    among_first = np.concatenate(([0.0], np.cumsum(2 * np.tril(distances).sum(axis=1))))
    of_first = np.concatenate(([0.0], np.cumsum(distances.sum(axis=1))))
    first = np.arange(least, n - least + 1)
    rest = n - first
    within_first = among_first[first]
    across = of_first[first] - within_first
    within_rest = of_first[n] - 2 * across - within_first
    energy = 2 * across / (first * rest) - within_first / first**2 - within_rest / rest**2
    scaled: Reals = first * rest / n * energy
    return scaled
