"""Price tiers and the ranking within them."""

import numpy as np
import pytest

from isochrone_collector.analysis.distribution import Values
from isochrone_collector.analysis.leaderboard import Entry, tier_lines, tier_of
from isochrone_wire.answers import Metric


@pytest.mark.parametrize(
    ("usd", "tier"),
    [
        (None, "unpriced"),
        (0.0, "free"),
        (1e-9, "nearly free"),
        (0.01, "nearly free"),
        (0.1499, "nearly free"),
        (0.15, "sweet spot"),
        (0.2999, "sweet spot"),
        (0.30, "quality first"),
        (0.7999, "quality first"),
        (0.80, "premium"),
        (75.0, "premium"),
    ],
)
def test_every_price_has_one_tier(usd: float | None, tier: str) -> None:
    """A price at a boundary belongs to the dearer tier; only nothing is free, and no price is no tier of others."""
    assert tier_of(usd) == tier


def entry(target: str, usd: float | None, *, ttft: float = 1.0, speed: float = 50.0, region: str = "us") -> Entry:
    found = {
        Metric.TTFT: Values.uncensored(np.full(6, ttft)),
        Metric.TOKENS_PER_SECOND: Values.uncensored(np.full(6, speed)),
    }
    return Entry(
        region=region,
        target=target,
        provider="p",
        model="m",
        values=found,
        usd_per_m_output=usd,
        succeeded=np.ones(6, bool),
    )


def test_targets_are_ranked_within_their_tier_and_region() -> None:
    """The cheapest tier comes first; in it each region has its own order, by median TTFT."""
    lines = tier_lines(
        [
            entry("dear", 3.0, ttft=1),
            entry("slow", 0.2, ttft=9),
            entry("fast", 0.25, ttft=5),
            entry("slow", 0.2, ttft=1, region="eu"),
            entry("fast", 0.25, ttft=5, region="eu"),
            entry("unknown", None),
            entry("gift", 0.0),
        ]
    )
    assert [(line.tier, line.region, line.rank, line.target) for line in lines] == [
        ("free", "us", 1, "gift"),
        ("sweet spot", "eu", 1, "slow"),
        ("sweet spot", "eu", 2, "fast"),
        ("sweet spot", "us", 1, "fast"),
        ("sweet spot", "us", 2, "slow"),
        ("premium", "us", 1, "dear"),
        ("unpriced", "us", 1, "unknown"),
    ]


def test_a_line_says_what_a_dollar_gives() -> None:
    """Speed and speed per dollar stand in the line; what costs nothing has no ratio."""
    [gift, paid] = tier_lines([entry("paid", 0.5, speed=40.0), entry("gift", 0.0)])
    assert paid.tokens_per_second_p50 is not None
    assert (paid.tokens_per_second_p50.value, paid.tokens_per_second_per_usd, paid.n) == (40.0, 80.0, 6)
    assert gift.tokens_per_second_per_usd is None
