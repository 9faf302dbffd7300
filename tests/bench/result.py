"""The last line of a benchmark, and its exit code."""

import math
import operator
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_COMPARE = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class Tally:
    """A count of `n` cases, shown as `9/10`; its goal is one for the share of them."""

    count: int
    n: int


Figure = float | str | Tally
"""A number, a tally, or words for a figure that was not measured, such as `skipped`."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound of a figure; `sign` is `<=` or `>=`."""

    sign: str
    bound: float

    def is_met(self, figure: Figure) -> bool:
        """Compare a figure with the bound; NaN and words miss every goal."""
        if isinstance(figure, str):
            return False
        value = figure.count / figure.n if isinstance(figure, Tally) else figure
        return bool(_COMPARE[self.sign](value, self.bound))


def log(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")


def at_most(bound: float) -> Goal:
    return Goal("<=", bound)


def at_least(bound: float) -> Goal:
    return Goal(">=", bound)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def conclude(figures: Mapping[str, Figure], goals: Mapping[str, Goal]) -> int:
    """Print the RESULT line, figures with a goal first, and the missed goals; return the exit code."""
    names = (*goals, *(name for name in figures if name not in goals))
    print("RESULT " + " ".join(f"{name}={_shown(figures[name])}" for name in names))  # noqa: T201  # a bench prints
    missed = [f"{name} {goal.sign} {goal.bound:g}" for name, goal in goals.items() if not goal.is_met(figures[name])]
    if missed:
        sys.stderr.write(f"missed: {', '.join(missed)}\n")
    return bool(missed)


def _shown(figure: Figure) -> str:
    if isinstance(figure, str):
        return figure
    if isinstance(figure, Tally):
        return f"{figure.count}/{figure.n}"
    return f"{figure:.0f}" if figure >= 1000 or float(figure).is_integer() else f"{figure:.3g}"
