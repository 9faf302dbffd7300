"""The last line of a benchmark, and its exit code."""

import math
import operator
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_COMPARE = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound of a figure; `sign` is `<=` or `>=`."""

    sign: str
    bound: float

    def is_met(self, value: float) -> bool:
        """Compare a figure with the bound; NaN misses every goal."""
        return bool(_COMPARE[self.sign](value, self.bound))


def at_most(bound: float) -> Goal:
    """Return a goal for a figure that must not be larger."""
    return Goal("<=", bound)


def at_least(bound: float) -> Goal:
    """Return a goal for a figure that must not be smaller."""
    return Goal(">=", bound)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def conclude(figures: Mapping[str, float], goals: Mapping[str, Goal]) -> int:
    """Print the RESULT line, figures with a goal first, and the missed goals; return the exit code."""
    names = (*goals, *(name for name in figures if name not in goals))
    print("RESULT " + " ".join(f"{name}={_shown(figures[name])}" for name in names))  # noqa: T201  # a bench prints
    missed = [f"{name} {goal.sign} {goal.bound:g}" for name, goal in goals.items() if not goal.is_met(figures[name])]
    if missed:
        sys.stderr.write(f"missed: {', '.join(missed)}\n")
    return bool(missed)


def _shown(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"
