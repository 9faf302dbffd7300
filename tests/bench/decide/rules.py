"""The simple rules to beat. Each decides at the end of an epoch, for the next one, from single probes in their order.

A failed probe counts as the time limit, a refused one as a retry.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from bench.decide.worlds import RETRY_MS, TIME_LIMIT_MS, Course
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_collector.routing.inputs import ROUNDS_PER_EPOCH

Rule = Callable[[Course], Integers]
"""Returns the chosen member of each epoch."""


def epochs_of(course: Course) -> Iterator[Reals]:
    """Yield the probes of each whole epoch, a column per member, oldest first."""
    values = np.where(course.failed, TIME_LIMIT_MS, course.ttft_ms + np.where(course.throttled, RETRY_MS, 0.0))
    for start in range(0, len(values) - ROUNDS_PER_EPOCH + 1, ROUNDS_PER_EPOCH):
        own = values[start : start + ROUNDS_PER_EPOCH]
        yield own.transpose(0, 2, 1).reshape(-1, own.shape[1])


def _chosen(estimates: Iterator[Reals], margin: float) -> Integers:
    found = list[int]()
    for estimate in estimates:
        best = int(estimate.argmin())
        keeps = bool(found) and estimate[best] >= (1 - margin) * estimate[found[-1]]
        found.append(found[-1] if keeps else best)
    return np.array(found)


def ewma(weight: float, margin: float) -> Rule:
    """An exponentially weighted mean, left by a margin."""

    def estimates(course: Course) -> Iterator[Reals]:
        mean: Reals | None = None
        for values in epochs_of(course):
            for value in values:
                mean = value if mean is None else (1 - weight) * mean + weight * value
            assert mean is not None
            yield mean

    return lambda course: _chosen(estimates(course), margin)


def last(count: int, margin: float) -> Rule:
    """The mean of the last values, as LiteLLM's lowest latency routing has it (ten values)."""
    return _of_window(lambda _: count, lambda values: np.asarray(values.mean(axis=0)), margin)


def short_median(epochs: int, margin: float) -> Rule:
    return _of_window(lambda size: epochs * size, lambda values: np.asarray(np.median(values, axis=0)), margin)


def _of_window(count: Callable[[int], int], estimate: Callable[[Reals], Reals], margin: float) -> Rule:
    def estimates(course: Course) -> Iterator[Reals]:
        known = np.empty((0, course.world.members))
        for values in epochs_of(course):
            known = np.concatenate([known, values])[-count(len(values)) :]
            yield estimate(known)

    return lambda course: _chosen(estimates(course), margin)


def discounted_ucb(kept: float, bonus: float) -> Rule:
    """Discounted UCB on the requests it sends itself (A. Garivier and E. Moulines, ALT (2011) 174-188)."""

    def rule(course: Course) -> Integers:
        counts, sums = np.zeros(course.world.members), np.zeros(course.world.members)
        found = list[int]()
        for values in epochs_of(course):
            chosen = found[-1] if found else 0
            for value in values[:, chosen]:
                counts, sums = counts * kept, sums * kept
                counts[chosen] += 1
                sums[chosen] += value
            width = bonus * 400.0 * np.sqrt(np.log(max(counts.sum(), 1.01)) / np.maximum(counts, 1e-9))
            bound = np.where(counts > 1e-3, sums / np.maximum(counts, 1e-9) - width, -np.inf)
            found.append(int(bound.argmin()))
        return np.array(found)

    return rule


GRID: Mapping[str, Mapping[tuple[float, float], Rule]] = {
    "EWMA": {(one, by): ewma(one, by) for one in (0.03, 0.05, 0.1, 0.2) for by in (0.05, 0.1, 0.2)},
    "last": {(one, by): last(int(one), by) for one in (10, 20) for by in (0.0, 0.1)},
    "median": {(one, by): short_median(int(one), by) for one in (1, 2, 3, 6) for by in (0.1, 0.2)},
    "UCB": {(one, by): discounted_ucb(one, by) for one in (0.95, 0.98, 0.99) for by in (0.05, 0.15)},
}
"""The parameters that were tried; `python -m bench.decide --tune` prints the best set of each rule."""

TUNED: Mapping[str, tuple[float, float]] = {
    "EWMA": (0.1, 0.2),
    "last": (20, 0.1),
    "median": (3, 0.2),
    "UCB": (0.98, 0.05),
}
"""The best set for all worlds together, on other seeds."""
