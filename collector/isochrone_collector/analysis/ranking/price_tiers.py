"""Price tiers: groups of comparable targets, by the price of a million output tokens.

The boundaries are the commonly published ones: a sweet spot from 0.15 to 0.30 US dollars, quality first up to 0.80,
premium above. A price at a boundary belongs to the more expensive tier. `free` costs nothing; between that and the
sweet spot lies `nearly free`, which published tables call free although it is not. A target whose plan has no price is
`unpriced`, and is compared with no other tier.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf

from isochrone_collector.analysis.history import NO_HISTORY, History
from isochrone_collector.analysis.ranking.leaderboard import Entry, Quantiles, per_usd, place_of, quantiles
from isochrone_wire.answers import Metric
from isochrone_wire.insights import TierLine

UNPRICED = "unpriced"

ASKED = ((Metric.TTFT, 0.5), (Metric.TOKENS_PER_SECOND, 0.5))
"""The quantiles of a tier's lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A tier of prices below a bound, in US dollars per million output tokens, from the bound of the previous tier."""

    name: str
    below_usd: float


FREE = "free"
TIERS = (
    Tier(name="nearly free", below_usd=0.15),
    Tier(name="sweet spot", below_usd=0.30),
    Tier(name="quality first", below_usd=0.80),
    Tier(name="premium", below_usd=inf),
)
_ORDER = {name: place for place, name in enumerate((FREE, *(tier.name for tier in TIERS), UNPRICED))}


def tier_of(usd_per_m_output: float | None) -> str:
    """Return the name of a price's tier."""
    if usd_per_m_output is None:
        return UNPRICED
    if usd_per_m_output <= 0:
        return FREE
    return next(tier.name for tier in TIERS if usd_per_m_output < tier.below_usd)


def tier_lines(entries: Sequence[Entry], history: History = NO_HISTORY) -> tuple[TierLine, ...]:
    """Return the lines by tier, cheapest first, then by region, ranked by median TTFT."""
    found = zip(entries, quantiles(entries, ASKED, history), strict=True)
    lines = sorted((_line(*one) for one in found), key=_place)
    return tuple(
        replace(line, rank=rank)
        for _, group in groupby(lines, key=lambda line: (line.tier, line.region))
        for rank, line in enumerate(group, start=1)
    )


def _place(line: TierLine) -> tuple[int, str, tuple[int, float], str]:
    return (_ORDER[line.tier], line.region, place_of(line.ttft_p50_us), line.target)


def _line(entry: Entry, found: Quantiles) -> TierLine:
    speed = found[Metric.TOKENS_PER_SECOND, 0.5]
    return TierLine(
        tier=tier_of(entry.usd_per_m_output),
        region=entry.region,
        rank=0,
        target=entry.target,
        usd_per_m_output=entry.usd_per_m_output,
        ttft_p50_us=found[Metric.TTFT, 0.5],
        tokens_per_second_p50=speed,
        tokens_per_second_per_usd=per_usd(speed, entry.usd_per_m_output),
        n=entry.known,
    )
