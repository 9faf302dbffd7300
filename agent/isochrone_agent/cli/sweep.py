"""Fit of a sweep over prompt lengths: the time that each prompt token adds to the time to first token.

TTFT = a + b * prompt tokens is fitted with the Theil-Sen estimator, which a single slow answer cannot distort: b is the
median of the slopes between all pairs of points with different lengths, a the median of the residuals. The bounds of b
are the order statistics of those slopes at the ranks given by Kendall's S (Sen, 1968, JASA 63:1379-1389, eq. 2.6, with
the variance corrected for ties).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

NORMAL_95 = 1.959964
MIN_POINTS = 6
_WORDS = "recursion means that a function calls itself on a smaller part of the same task until nothing is left to do "


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFit:
    """`ttft_us = fixed_us + us_per_token * prompt tokens`. `low` and `high` are the bounds of the 95 % interval of the
    slope, `None` with fewer than six points.
    """

    fixed_us: float
    us_per_token: float
    low: float | None
    high: float | None
    points: int


def fit(points: Sequence[tuple[int, int]]) -> LinearFit | None:
    """Fit a line to points of (prompt tokens, TTFT in microseconds); `None` without two different lengths."""
    slopes = sorted((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x1 != x2)
    if not slopes:
        return None
    slope = median(slopes)
    low, high = _interval(slopes, points) if len(points) >= MIN_POINTS else (None, None)
    fixed = median(y - slope * x for x, y in points)
    return LinearFit(fixed_us=fixed, us_per_token=slope, low=low, high=high, points=len(points))


def make_prompt(words: int) -> str:
    """Return a prompt of `words` words; a word is about a token."""
    vocabulary = _WORDS.split()
    text = " ".join(vocabulary[number % len(vocabulary)] for number in range(max(0, words - 4)))
    return f"{text} Summarise this in brief.".strip()


def _interval(slopes: Sequence[float], points: Sequence[tuple[int, int]]) -> tuple[float | None, float | None]:
    n, ties = len(points), Counter(x for x, _ in points).values()
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    reach = NORMAL_95 * math.sqrt(variance)
    lower, upper = math.floor((len(slopes) - reach) / 2), math.ceil((len(slopes) + reach) / 2)
    if lower < 0 or upper >= len(slopes):
        return None, None
    return slopes[lower], slopes[upper]
