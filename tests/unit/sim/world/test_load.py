"""Load: smooth, slow, bounded, repeatable, and nobody's own."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_sim.world import load_factor

INSTANTS = st.integers(0, 4_000_000_000_000_000)
NAMES = st.sampled_from(["qwen/ttft", "zhipu/ttft", "qwen/pace"])
MONDAY_AT = 1_779_235_200_000_000
MINUTE_US = 60_000_000


def load(name: str, at: int, *, seed: int = 1, amplitude: float = 0.12) -> float:
    return load_factor(name, at, seed=seed, amplitude=amplitude)


@given(NAMES, INSTANTS, st.integers(0, 99))
def test_load_stays_within_its_amplitude(name: str, at: int, seed: int) -> None:
    """It never leaves 1 ± amplitude."""
    assert abs(load(name, at, seed=seed) - 1) <= 0.12


@given(NAMES, INSTANTS, st.integers(0, 99))
def test_twenty_milliseconds_make_no_difference(name: str, at: int, seed: int) -> None:
    """Probes 20 ms apart see the same load to within 0.1 ms per second of latency."""
    assert abs(load(name, at + 20_000, seed=seed) - load(name, at, seed=seed)) <= 1e-4


@given(NAMES, INSTANTS)
def test_load_has_no_jumps(name: str, at: int) -> None:
    """Neither between two microseconds nor across the grid of its noise."""
    boundary = at - at % 5_000_000
    assert abs(load(name, at + 1) - load(name, at)) < 1e-7
    assert abs(load(name, boundary) - load(name, max(0, boundary - 1))) < 1e-7


@given(NAMES, INSTANTS, st.integers(0, 99))
def test_load_is_the_same_every_time(name: str, at: int, seed: int) -> None:
    """It follows from name, instant and seed alone."""
    assert load(name, at, seed=seed) == load(name, at, seed=seed)


@pytest.mark.parametrize("other", [{"name": "zhipu/ttft"}, {"seed": 2}])
def test_providers_and_seeds_have_loads_of_their_own(other: dict[str, str | int]) -> None:
    """Another name or another seed gives another course."""
    ours = [load("qwen/ttft", MONDAY_AT + n * MINUTE_US) for n in range(60)]
    name, seed = str(other.get("name", "qwen/ttft")), int(other.get("seed", 1))
    theirs = [load(name, MONDAY_AT + n * MINUTE_US, seed=seed) for n in range(60)]
    assert abs(statistics.correlation(ours, theirs)) < 0.95


def test_load_wanders() -> None:
    """Within a day it uses most of its amplitude, and its mean is 1."""
    day = [load("qwen/ttft", MONDAY_AT + n * MINUTE_US) for n in range(24 * 60)]
    assert max(day) - min(day) > 0.15
    assert statistics.mean(day) == pytest.approx(1, abs=0.01)
