"""The default world, its load, and the times of tokens."""

import statistics
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_sim.world import (
    Episode,
    Model,
    Offset,
    Source,
    TokenTiming,
    assumed_offset_us,
    default_world,
    generator,
    load_factor,
    skewed,
    token_timing,
    uniform,
)

WORLD = default_world()
LEADERBOARD = {
    "step-3.5-flash": ("stepfun", 120, 80, 0.15),
    "deepseek-v4-flash": ("deepseek", 180, 60, 0.25),
    "hunyuan-turbos": ("tencent", 200, 55, 0.28),
    "qwen3-8b": ("qwen", 150, 70, 0.01),
    "qwen3-32b": ("qwen", 250, 45, 0.28),
    "doubao-seed-lite": ("bytedance", 220, 50, 0.4),
    "hunyuan-turbo": ("tencent", 280, 42, 0.57),
    "glm-4-32b": ("zhipu", 300, 38, 0.56),
    "qwen3.5-27b": ("qwen", 350, 35, 0.19),
    "deepseek-v4-pro": ("deepseek", 400, 30, 0.78),
    "minimax-m2.5": ("minimax", 450, 28, 1.15),
    "glm-5": ("zhipu", 500, 25, 1.92),
    "kimi-k2.5": ("moonshot", 600, 20, 3.0),
    "deepseek-r1": ("deepseek", 800, 15, 2.5),
    "qwen3.5-397b": ("qwen", 1200, 10, 2.34),
}
PUBLISHED_MS = {"deepseek-v4-flash": -30, "qwen3-32b": -40, "glm-5": -80, "kimi-k2.5": -120}


def test_the_leaderboard_is_as_published() -> None:
    """Names, order, times to first token, rates and prices are those of the source."""
    told = {
        model.id: (model.provider, model.ttft_us / 1000, model.tokens_per_second, model.usd_per_m_output)
        for model in WORLD.models.values()
    }
    assert list(told.items()) == list(LEADERBOARD.items())
    assert WORLD.source == "published figures, 2026-05-20, US East (Ohio), one aggregator"


@pytest.mark.parametrize("name", LEADERBOARD)
def test_what_nobody_published_is_assumed(name: str) -> None:
    """Four differences for Singapore are published; every other offset says that it is an assumption."""
    singapore, frankfurt = (WORLD.models[name].offsets[region] for region in ("ap-southeast-1", "eu-central-1"))
    assert singapore.source is (Source.PUBLISHED if name in PUBLISHED_MS else Source.ASSUMED)
    assert frankfurt.source is Source.ASSUMED
    if name in PUBLISHED_MS:
        assert singapore.us == PUBLISHED_MS[name] * 1000


@pytest.mark.parametrize(
    ("region", "ttft_ms", "offset_ms"),
    [("ap-southeast-1", 800, -130), ("ap-southeast-1", 120, -20), ("eu-central-1", 180, 35), ("eu-central-1", 350, 45)],
)
def test_assumptions_follow_their_rule(region: str, ttft_ms: int, offset_ms: int) -> None:
    """Minus 16 % for Singapore, 25 ms and 5 % for Frankfurt, to the nearest 5 ms."""
    assert assumed_offset_us(region, ttft_ms * 1000) == offset_ms * 1000


def test_only_the_reasoning_models_reason() -> None:
    """Two models of the leaderboard are said to reason."""
    assert {model.id for model in WORLD.models.values() if model.reasoning} == {"deepseek-r1", "kimi-k2.5"}


def test_a_difference_turns_round() -> None:
    """Region minus baseline is minus baseline minus region, for any two regions."""
    offsets = {"a": Offset(-30_000, Source.CHOSEN), "b": Offset(45_000, Source.CHOSEN)}
    model = Model(id="m", title="m", provider="p", ttft_us=200_000, tokens_per_second=10.0, offsets=offsets)
    assert model.differential_us("a", "b") == -75_000 == -model.differential_us("b", "a")
    assert model.differential_us("a", "elsewhere") == -30_000
    assert model.ttft_us_in("b") == 245_000


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


TIMING_INSTANTS = st.integers(MONDAY_AT, MONDAY_AT + 10**13)
PUBLISHED_NS = {"deepseek-v4-flash": -30e6, "qwen3-32b": -40e6, "glm-5": -80e6, "kimi-k2.5": -120e6}


def ttft_ns(model: Model, *, region: str = "us-east-2", at: int = MONDAY_AT, content: bytes = b"") -> int:
    return token_timing(model, WORLD, region=region, at=at, rng=generator(1, region, content=content)).ttft_ns


@given(st.sampled_from(sorted(PUBLISHED_NS)), TIMING_INSTANTS)
def test_published_differences_are_exact_in_the_plan(name: str, at: int) -> None:
    """Without noise, Singapore minus US East is the published difference at every instant, whatever the load."""
    model = replace(WORLD.models[name], jitter_us=0)
    difference_ns = ttft_ns(model, region="ap-southeast-1", at=at) - ttft_ns(model, at=at)
    assert difference_ns == pytest.approx(PUBLISHED_NS[name], abs=1)


@given(st.sampled_from(sorted(WORLD.models)), st.sampled_from(sorted(WORLD.regions)), TIMING_INSTANTS)
def test_a_real_round_trip_is_part_of_the_time(name: str, region: str, at: int) -> None:
    """With real round trips a first token is sent that much earlier, so that it arrives when it would without them."""
    model, far = WORLD.models[name], replace(WORLD, round_trips_us={region: 40_000})
    timings = [token_timing(model, world, region=region, at=at, rng=generator(1)) for world in (WORLD, far)]
    assert timings[0].ttft_ns - timings[1].ttft_ns == pytest.approx(40e6, abs=1)
    assert timings[0].tokens_per_second == timings[1].tokens_per_second


def test_noise_does_not_move_the_median_difference() -> None:
    """Noise moves paired medians by less than 0.2 ms, and load what is not paired by more than a tenth."""
    model = WORLD.models["glm-5"]
    contents = [str(number).encode() for number in range(1500)]
    differences = [
        ttft_ns(model, region="ap-southeast-1", content=content) - ttft_ns(model, content=content)
        for content in contents
    ]
    assert statistics.median(differences) == pytest.approx(-80e6, abs=200_000)
    model = replace(WORLD.models["glm-5"], jitter_us=0)
    hour = [ttft_ns(model, at=MONDAY_AT + minute * 60_000_000) for minute in range(60)]
    assert max(hour) - min(hour) > 8_000_000


def test_a_steady_model_is_as_it_says() -> None:
    """A steady model without noise takes its configured time at any instant."""
    model = replace(WORLD.models["glm-5"], jitter_us=0, steady=True)
    found = token_timing(model, WORLD, region="eu-central-1", at=MONDAY_AT + 12345, rng=Random(1))
    assert found == TokenTiming(ttft_ns=550_000_000, tokens_per_second=25.0)


@pytest.mark.parametrize(
    ("model", "region", "after_us", "added_ms"),
    [
        ("glm-5", "eu-central-1", 0, 400),
        ("glm-4-32b", "eu-central-1", 999, 400),
        ("glm-5", "eu-central-1", -1, 0),
        ("glm-5", "eu-central-1", 1000, 0),
        ("glm-5", "us-east-2", 500, 0),
        ("kimi-k2.5", "eu-central-1", 500, 0),
    ],
)
def test_episodes_are_local_and_short(model: str, region: str, after_us: int, added_ms: int) -> None:
    """It adds its time from its first microsecond to its last, to all models of the provider, from one region alone."""
    episode = Episode(
        provider="zhipu", region="eu-central-1", added_us=400_000, from_at=MONDAY_AT, until_at=MONDAY_AT + 1000
    )
    bad = replace(WORLD, episodes=(episode,))
    at = MONDAY_AT + after_us
    told, pending = (
        token_timing(WORLD.models[model], world, region=region, at=at, rng=Random(1)).ttft_ns for world in (bad, WORLD)
    )
    assert told - pending == added_ms * 1_000_000


def test_no_first_token_before_the_request() -> None:
    """However far noise and offsets go, a millisecond passes."""
    model = replace(WORLD.models["glm-5"], ttft_us=80_500, steady=True, jitter_us=0)
    assert ttft_ns(model, region="ap-southeast-1") == 1_000_000


def test_noise_is_skewed_with_median_zero() -> None:
    """Noise has the deviation parameters for, a median of 0, and a mean to the right of it."""
    rng = Random(4)
    noise = [skewed(rng, 1000.0) for _ in range(20_000)]
    assert statistics.median(noise) == pytest.approx(0, abs=30)
    assert statistics.stdev(noise) == pytest.approx(1000, rel=0.1)
    assert statistics.mean(noise) > 100


@given(st.integers(2, 300), st.floats(1, 500), st.integers())
def test_gaps_vary_and_their_sum_does_not(count: int, rate: float, seed: int) -> None:
    """(count - 1) tokens pass between the first and the last in exactly the time that the rate says, in order."""
    offsets = TokenTiming(ttft_ns=200_000_000, tokens_per_second=rate).offsets_ns(Random(seed), count)
    assert (offsets[0], len(offsets)) == (200_000_000, count)
    assert offsets[-1] - offsets[0] == pytest.approx((count - 1) / rate * 1e9, abs=2)
    mean_ns = 1e9 / rate
    gaps = [after - before for before, after in pairwise(offsets)]
    assert all(0.7 * mean_ns < gap < 1.4 * mean_ns for gap in gaps)


def test_one_token_has_no_gaps() -> None:
    """A single token comes at the time to first token."""
    assert TokenTiming(ttft_ns=5, tokens_per_second=1.0).offsets_ns(Random(1), 1) == [5]


def test_chance_repeats_itself() -> None:
    """Equal names and contents give equal draws; others give others."""
    assert uniform("a", 1) == uniform("a", 1) != uniform("a", 2)
    assert generator("a", content=b"x").random() == generator("a", content=b"x").random()
    assert generator("a", content=b"x").random() != generator("a", content=b"y").random()
