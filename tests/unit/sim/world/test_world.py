"""The default world: the published figures as printed, and assumptions that are named so."""

import pytest

from isochrone_sim.world import Model, Offset, Source, assumed_offset_us, default_world

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
