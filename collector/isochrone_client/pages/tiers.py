"""Price tiers: targets of a similar price, ranked by median TTFT."""

from collections.abc import Sequence

from isochrone_client.formats import Amount, amount, amount_dollars, between, milliseconds
from isochrone_client.pages.insufficient import no_price, no_samples, too_few_for_a_median
from isochrone_client.pages.quantiles import TOO_FEW_FOR_MEDIAN, interval_of, is_shown, value_of, worth
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.insights import TierLine, TierList
from isochrone_wire.json_format import to_json_value
from isochrone_wire.text import ESTIMAND

SCHEMA = "isochrone.tiers/1"


def page(answer: TierList) -> Page[TierLine]:
    """The page of the tiers, one table per region, cheapest tier first."""
    tiers = list(dict.fromkeys(row.tier for row in answer.tiers))
    rows = sorted(answer.tiers, key=lambda row: (row.region, tiers.index(row.tier), row.rank))
    has_hidden = any(not is_shown(row.ttft_p50_us) or not is_shown(row.tokens_per_second_p50) for row in rows)
    return Page(
        schema=SCHEMA,
        title=f"price tiers by median ttft, rounds between {between(answer.window)}",
        facts={"window": to_json_value(answer.window)},
        fields=wire_fields(TierLine),
        columns=_columns(rows),
        rows=tuple(rows),
        group=lambda row: f"from {row.region}",
        notes=(*((ESTIMAND,) if rows else ()), *((TOO_FEW_FOR_MEDIAN,) if has_hidden else ())),
    )


def require_tiers(answer: TierList) -> None:
    """Raises `InsufficientError` if no target has a median or none has a price."""
    if not answer.tiers:
        raise no_samples(answer.window)
    if all(row.usd_per_m_output is None for row in answer.tiers):
        raise no_price()
    if not any(is_shown(row.ttft_p50_us) for row in answer.tiers):
        raise too_few_for_a_median(max(row.n for row in answer.tiers))


def _per_dollar(row: TierLine) -> str | Amount:
    """Speed per price; `free` for a price of 0."""
    return "free" if row.usd_per_m_output == 0 else amount(row.tokens_per_second_per_usd)


def _columns(rows: Sequence[TierLine]) -> tuple[Column[TierLine], ...]:
    def ttft(row: TierLine) -> Amount:
        return amount(milliseconds(value_of(row.ttft_p50_us)))

    return (
        Column(heading="tier", text=lambda row: row.tier, wide=True),
        Column(heading="rank", text=lambda row: str(row.rank), priority=2),
        target_column(rows, lambda row: row.target),
        Column(heading="output", unit="$/M", text=lambda row: amount_dollars(row.usd_per_m_output), priority=3),
        Column(heading="ttft p50", unit="ms", text=ttft, scale="ttft"),
        Column(
            heading="interval",
            unit="95 %, ms",
            text=lambda row: interval_of(row.ttft_p50_us, milliseconds),
            scale="ttft",
            priority=1,
        ),
        Column(
            heading="speed p50",
            unit="tokens/s",
            text=lambda row: amount(value_of(row.tokens_per_second_p50)),
            priority=4,
        ),
        Column(heading="speed", unit="per $/M", text=_per_dollar, priority=5),
        Column(
            heading="n ≈\nindependent",
            text=lambda row: worth(row.n, row.ttft_p50_us.n_eff if row.ttft_p50_us else None),
            priority=6,
        ),
    )
