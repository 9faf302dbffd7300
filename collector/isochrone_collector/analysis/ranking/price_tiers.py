"""Price tiers: what competes with what, by the price of a million output tokens.

The boundaries are the ones commonly published: a sweet spot from 0.15 to 0.30 US dollars, quality first up to 0.80,
premium above. A price at a boundary belongs to the dearer tier. `free` is what costs nothing; between that and the
sweet spot lies `nearly free`, which published tables call free although it is not. A target whose plan states no price
is `unpriced`: its price is not known, and so it competes with none of the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf

from isochrone_collector.analysis.ranking.leaderboard import Entry, per_usd, place_of
from isochrone_wire.answers import Metric
from isochrone_wire.insights import TierLine

UNPRICED = "unpriced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Prices below a bound, in US dollars per million output tokens, down to the bound of the tier before."""

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
    """The name of the tier of a price."""
    if usd_per_m_output is None:
        return UNPRICED
    if usd_per_m_output <= 0:
        return FREE
    return next(tier.name for tier in TIERS if usd_per_m_output < tier.below_usd)


def tier_lines(entries: Iterable[Entry]) -> tuple[TierLine, ...]:
    """The lines of each tier, the cheapest first, in it by region, in that ranked by median TTFT."""
    lines = sorted((_line(entry) for entry in entries), key=_place)
    return tuple(
        replace(line, rank=rank)
        for _, group in groupby(lines, key=lambda line: (line.tier, line.region))
        for rank, line in enumerate(group, start=1)
    )


def _place(line: TierLine) -> tuple[int, str, tuple[int, float], str]:
    return (_ORDER[line.tier], line.region, place_of(line.ttft_p50_us), line.target)


def _line(entry: Entry) -> TierLine:
    speed = entry.quantile(Metric.TOKENS_PER_SECOND, 0.5)
    return TierLine(
        tier=tier_of(entry.usd_per_m_output),
        region=entry.region,
        rank=0,
        target=entry.target,
        usd_per_m_output=entry.usd_per_m_output,
        ttft_p50_us=entry.quantile(Metric.TTFT, 0.5),
        tokens_per_second_p50=speed,
        tokens_per_second_per_usd=per_usd(speed, entry.usd_per_m_output),
        n=entry.known,
    )
