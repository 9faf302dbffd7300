"""Targets by price tier, ranked by median TTFT among those that cost as much."""

from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN, between, dollars, milliseconds, number
from isochrone_client.pages.quantiles import interval_of, is_shown, value_of
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.insights import TierLine, TierList
from isochrone_wire.json_format import to_json_value

SCHEMA = "isochrone.tiers/1"
_TOO_FEW = f"{UNKNOWN}: too few samples for a 95 % interval: a median takes 6"


def page(answer: TierList) -> Page[TierLine]:
    """The page of the tiers, one table per region, the cheapest tier first."""
    tiers = list(dict.fromkeys(row.tier for row in answer.tiers))
    rows = sorted(answer.tiers, key=lambda row: (row.region, tiers.index(row.tier), row.rank))
    unsaid = any(not is_shown(row.ttft_p50_us) or not is_shown(row.tokens_per_second_p50) for row in rows)
    return Page(
        schema=SCHEMA,
        title=f"price tiers by median ttft, rounds between {between(answer.window)}",
        facts={"window": to_json_value(answer.window)},
        fields=wire_fields(TierLine),
        columns=_COLUMNS,
        rows=tuple(rows),
        group=lambda row: f"from {row.region}",
        notes=(_TOO_FEW,) if unsaid else (),
    )


def require_tiers(answer: TierList) -> None:
    """Raises `InsufficientError` when no target has a median, or none has a price."""
    if not answer.tiers:
        raise InsufficientError(
            f"no samples between {between(answer.window)}",
            hint="is an agent running? see `isochrone coverage`; a longer --window may reach older samples",
        )
    if all(row.usd_per_m_output is None for row in answer.tiers):
        raise InsufficientError("no target has a price", hint="whoever applies the plan states it: `price` of a target")
    if not any(is_shown(row.ttft_p50_us) for row in answer.tiers):
        raise InsufficientError(
            f"no target has enough samples for a median: {max(row.n for row in answer.tiers)} of 6 needed",
            hint="wait for more rounds, or see `isochrone samples` for why probes fail",
        )


def _per_dollar(row: TierLine) -> str:
    """What is free gives it for nothing."""
    return "free" if row.usd_per_m_output == 0 else number(row.tokens_per_second_per_usd)


_COLUMNS: tuple[Column[TierLine], ...] = (
    Column(heading="tier", text=lambda row: row.tier, wide=True),
    Column(heading="rank", text=lambda row: str(row.rank)),
    Column(heading="target", text=lambda row: row.target, wide=True),
    Column(heading="output", unit="$/M", text=lambda row: dollars(row.usd_per_m_output)),
    Column(heading="ttft p50", unit="ms", text=lambda row: number(milliseconds(value_of(row.ttft_p50_us)))),
    Column(heading="interval", unit="95 %, ms", text=lambda row: interval_of(row.ttft_p50_us, milliseconds)),
    Column(heading="speed p50", unit="tokens/s", text=lambda row: number(value_of(row.tokens_per_second_p50))),
    Column(heading="speed", unit="per $/M", text=_per_dollar),
    Column(heading="n", text=lambda row: str(row.n)),
)
