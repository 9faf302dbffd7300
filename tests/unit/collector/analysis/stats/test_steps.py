"""Steps of level: rates of false and found steps on series with known truth, and the limits of the definition."""

from collections.abc import Callable

import numpy as np
import pytest

from isochrone_collector.analysis.stats.arrays import Reals, ragged
from isochrone_collector.analysis.stats.steps import LEAST, steps

SEED = 14
Noise = Callable[[np.random.Generator, tuple[int, int]], Reals]


def autocorrelated(generator: np.random.Generator, shape: tuple[int, int]) -> Reals:
    """AR(.5) with unit variance."""
    values = generator.standard_normal(shape)
    for at in range(1, shape[1]):
        values[:, at] = 0.5 * values[:, at - 1] + np.sqrt(0.75) * values[:, at]
    return values


# Each with a standard deviation of one.
NOISES: dict[str, Noise] = {
    "independent": lambda generator, shape: generator.standard_normal(shape),
    "AR(.5)": autocorrelated,
    "t(3)": lambda generator, shape: generator.standard_t(3, shape) / np.sqrt(3),
    "Laplace": lambda generator, shape: generator.laplace(size=shape) / np.sqrt(2),
    "lognormal": lambda generator, shape: np.exp(generator.standard_normal(shape)) / 2.16,
}


def found(rows: Reals, least_size: float = 0.0) -> list[tuple[int, ...]]:
    return steps(ragged(list(rows)), least_size=np.full(len(rows), least_size))


@pytest.mark.parametrize("name", NOISES)
def test_few_series_without_a_step_have_one(name: str) -> None:
    """In less than 2 % of series without a step is one named, at every length."""
    generator = np.random.default_rng(SEED)
    for n, draws in ((11, 2000), (16, 1000), (25, 1000), (60, 400), (288, 200)):
        false = sum(map(bool, found(NOISES[name](generator, (draws, n))))) / draws
        assert false < 0.02, f"{false:.1%} of {n} rounds with {name} noise, seed {SEED}"


@pytest.mark.parametrize("name", NOISES)
def test_a_large_step_is_found_within_six_rounds(name: str) -> None:
    """A step of five standard deviations is found within six rounds in 95 %, within one round of its place."""
    generator = np.random.default_rng(SEED)
    for before in (10, 19, 60):
        rows = NOISES[name](generator, (400, before + 6))
        rows[:, before:] += 5
        looks = [found(rows[:, : before + after]) for after in (LEAST, 6)]
        hits = [any(abs(place - before) <= 1 for one in places for place in one) for places in zip(*looks, strict=True)]
        assert np.mean(hits) >= 0.95, f"{np.mean(hits):.1%} after {before} rounds with {name} noise, seed {SEED}"


@pytest.mark.parametrize("before", [5, 6, 12, 40])
@pytest.mark.parametrize("after", [6, 7, 19])
def test_an_obvious_step_is_placed_exactly(before: int, after: int) -> None:
    """400 ms on top of a millisecond of noise: the place is the first round after it, from five rounds on."""
    values = np.random.default_rng(SEED).normal(35, 1, before + after)
    values[before:] += 400
    assert found(values[np.newaxis]) == [(before,)]


def test_an_incident_has_a_beginning_and_an_end() -> None:
    """A rise and a return are two steps; a burst of fewer than eight rounds between others is none."""
    generator = np.random.default_rng(SEED)
    for rounds, expected in ((8, (30, 38)), (45, (30, 75)), (7, ()), (4, ())):
        values = generator.normal(0, 1, 60 + rounds)
        values[30 : 30 + rounds] += 40
        assert found(values[np.newaxis]) == [expected]


def test_a_drift_and_outliers_are_no_steps() -> None:
    """Slow rises, spikes and steps below the given size are none; eleven values are needed, noise is not."""
    generator = np.random.default_rng(SEED)
    drift = np.linspace(0, 20, 60) + generator.normal(0, 1, 60)
    spikes = generator.standard_normal((200, 60)) + 40 * (generator.random((200, 60)) < 0.35)
    assert found(drift[np.newaxis]) == [()]
    assert sum(map(bool, found(spikes))) <= 4
    values = np.concatenate([np.zeros(20), np.full(20, 10.0)]) + np.random.default_rng(SEED).normal(0, 0.1, 40)
    assert [found(values[np.newaxis], least_size=size) for size in (5.0, 15.0)] == [[(20,)], [()]]
    jump = [0.0] * 5 + [1.0] * 5
    rows = ragged([np.array(jump), np.zeros(0), np.zeros(30), np.array([*jump, 1.0])])
    assert steps(rows, least_size=np.full(4, 0.5)) == [(), (), (), (5,)]


@pytest.mark.parametrize("name", ["independent", "AR(.5)", "lognormal"])
def test_a_level_that_lasted_needs_a_smaller_step(name: str) -> None:
    """Of 288 rounds, a step of three deviations 48 rounds ago begins the present level in four of five series."""
    rows = NOISES[name](np.random.default_rng(SEED), (100, 288))
    rows[:, 240:] += 3
    begun = [bool(places) and abs(places[-1] - 240) <= 3 for places in found(rows)]
    assert np.mean(begun) >= 0.8, f"{sum(begun)} of 100, seed {SEED}"
