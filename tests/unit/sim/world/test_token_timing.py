"""TokenTiming: the formula for the time to first token, differences that no load moves, gaps whose sum is known."""

import statistics
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_sim.world import Episode, Model, TokenTiming, default_world, generator, skewed, token_timing, uniform

WORLD = default_world()
MONDAY_AT = 1_779_235_200_000_000
INSTANTS = st.integers(MONDAY_AT, MONDAY_AT + 10**13)
PUBLISHED_NS = {"deepseek-v4-flash": -30e6, "qwen3-32b": -40e6, "glm-5": -80e6, "kimi-k2.5": -120e6}


def ttft_ns(model: Model, *, region: str = "us-east-2", at: int = MONDAY_AT, content: bytes = b"") -> int:
    return token_timing(model, WORLD, region=region, at=at, rng=generator(1, region, content=content)).ttft_ns


@given(st.sampled_from(sorted(PUBLISHED_NS)), INSTANTS)
def test_published_differences_are_exact_in_the_plan(name: str, at: int) -> None:
    """Without noise, Singapore minus US East is the published difference at every instant, whatever the load."""
    model = replace(WORLD.models[name], jitter_us=0)
    difference_ns = ttft_ns(model, region="ap-southeast-1", at=at) - ttft_ns(model, at=at)
    assert difference_ns == pytest.approx(PUBLISHED_NS[name], abs=1)


@given(st.sampled_from(sorted(WORLD.models)), st.sampled_from(sorted(WORLD.regions)), INSTANTS)
def test_a_real_round_trip_is_part_of_the_time(name: str, region: str, at: int) -> None:
    """With real round trips a first token is sent that much earlier, so that it arrives when it would without them."""
    model, far = WORLD.models[name], replace(WORLD, round_trips_us={region: 40_000})
    timings = [token_timing(model, world, region=region, at=at, rng=generator(1)) for world in (WORLD, far)]
    assert timings[0].ttft_ns - timings[1].ttft_ns == pytest.approx(40e6, abs=1)
    assert timings[0].tokens_per_second == timings[1].tokens_per_second


def test_noise_does_not_move_the_median_difference() -> None:
    """With noise, the median of paired differences is the published one to within 0.2 ms."""
    model = WORLD.models["glm-5"]
    contents = [str(number).encode() for number in range(1500)]
    differences = [
        ttft_ns(model, region="ap-southeast-1", content=content) - ttft_ns(model, content=content)
        for content in contents
    ]
    assert statistics.median(differences) == pytest.approx(-80e6, abs=200_000)


def test_load_moves_what_is_not_paired() -> None:
    """Over an hour the time to first token of a model wanders by more than a tenth of a published difference."""
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
def test_an_episode_is_of_one_provider_from_one_region_for_a_while(
    model: str, region: str, after_us: int, added_ms: int
) -> None:
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
