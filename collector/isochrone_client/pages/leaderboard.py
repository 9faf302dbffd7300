"""Targets ranked per region, with the columns that matter for the order; and ranked within price tiers."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from isochrone_client.formats import UNKNOWN, Amount, amount, amount_dollars, between, milliseconds, number
from isochrone_client.pages.cells import (
    TOO_FEW,
    TOO_FEW_FOR_MEDIAN,
    QuantileOf,
    interval_of,
    is_shown,
    no_price,
    no_samples,
    too_few_for_a_median,
    value_of,
    worth,
)
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page, wire_fields
from isochrone_wire.answers import Order, Source
from isochrone_wire.insights import Leaderboard, Standing, TierLine, TierList
from isochrone_wire.json_format import to_json_value
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.text import ESTIMAND

FORMAT = FORMATS["Leaderboard"]
_SUMMARISED = "from hourly summaries: percentiles are exact to within 1 %"
_HUNDRED = 100.0


def page(answer: Leaderboard) -> Page[Standing]:
    """The page of a leaderboard, one table per region."""
    names = _SHOWN[answer.order]
    ranked: tuple[Standing, ...] = FORMAT.rows_of(answer)
    has_hidden = any(name in _QUANTILES and not is_shown(_QUANTILES[name](row)) for row in ranked for name in names)
    notes = ((bool(ranked), ESTIMAND), (has_hidden, TOO_FEW), (answer.source is Source.SUMMARIES, _SUMMARISED))
    return Page(
        schema=FORMAT.schema,
        title=f"leaderboard by {_BY[answer.order]}, rounds between {between(answer.window)}",
        facts=FORMAT.facts(answer),
        fields=wire_fields(Standing),
        columns=_columns(answer),
        rows=ranked,
        group=lambda row: f"from {row.region}",
        notes=tuple(note for holds, note in notes if holds),
    )


def require_ranking(answer: Leaderboard) -> None:
    """Raises `InsufficientError` if no target has a value of the quantity that ranks."""
    if not answer.standings:
        raise no_samples(answer.window)
    if answer.order is Order.PRICE and all(row.usd_per_m_output is None for row in answer.standings):
        raise no_price()
    measured = _QUANTILES.get(_RANKED_BY[answer.order])
    if measured is not None and not any(is_shown(measured(row)) for row in answer.standings):
        raise too_few_for_a_median(max(row.n for row in answer.standings))


def _columns(answer: Leaderboard) -> tuple[Column[Standing], ...]:
    """Rank, model and the quantity of the order are always shown, of the others the later ones are left out first."""
    counts = _COUNTS.get(answer.order, _COUNTED)
    names = (*_WHO, *_SHOWN[answer.order], *(("n",) if "sent" not in counts else ()), *counts)
    columns = _COLUMNS | {"n": Column(heading="n ≈\nindependent", text=_worth_of(_RANKED_BY[answer.order]))}
    models: dict[str, set[str]] = {}
    for row in answer.standings:
        models.setdefault(row.model, set()).add(row.provider)
    distinct = all(len(providers) == 1 for providers in models.values())
    always = {"rank", "model", _SHOWN[answer.order][0], *(() if distinct else ("provider",))}
    return tuple(
        columns[name] if name in always else replace(columns[name], priority=_PRIORITY_OF.get(name, place))
        for place, name in enumerate(names)
    )


def _latency(heading: str, of: QuantileOf[Standing]) -> Column[Standing]:
    return Column(heading=heading, unit="ms", text=lambda row: amount(milliseconds(value_of(of(row)))), scale="ms")


def _around(of: QuantileOf[Standing]) -> Column[Standing]:
    return Column(heading="interval", unit="95 %, ms", text=lambda row: interval_of(of(row), milliseconds), scale="ms")


def _counted(heading: str, of: Callable[[Standing], int], style: str = "") -> Column[Standing]:
    return Column(heading=heading, text=lambda row: str(of(row)), style=lambda row: style if of(row) else "")


def _worth_of(ranked_by: str) -> Callable[[Standing], str]:
    """The number of samples, and how many independent ones the interval of the ranking quantity counts."""
    of = _QUANTILES.get(ranked_by, _QUANTILES["ttft p50"])

    def text(row: Standing) -> str:
        found = of(row)
        return worth(row.n, found.n_eff if found else None)

    return text


def _sent(row: Standing) -> str:
    return worth(row.success.n, row.success.n_eff) if row.success is not None else "0"


def _success(row: Standing) -> str:
    return number(_HUNDRED * row.success.value, decimals=1) if row.success is not None else UNKNOWN


def _success_interval(row: Standing) -> str:
    if row.success is None:
        return UNKNOWN
    low, high = (number(_HUNDRED * bound, decimals=1) for bound in (row.success.low, row.success.high))
    return f"{low} … {high}"


def _per_dollar(row: Standing) -> str | Amount:
    """Speed per price; `free` for a price of 0."""
    return "free" if row.usd_per_m_output == 0 else amount(row.tokens_per_second_per_usd)


_QUANTILES: dict[str, QuantileOf[Standing]] = {
    "ttft p50": lambda row: row.ttft_p50_us,
    "ttft p95": lambda row: row.ttft_p95_us,
    "cold p50": lambda row: row.ttft_cold_p50_us,
    "ttfat p50": lambda row: row.ttfat_p50_us,
    "e2e p50": lambda row: row.e2e_p50_us,
    "speed p50": lambda row: row.tokens_per_second_p50,
}
_LATENCIES = tuple(name for name in _QUANTILES if name != "speed p50")
_COLUMNS: dict[str, Column[Standing]] = {
    "rank": Column(heading="rank", text=lambda row: str(row.rank)),
    "model": Column(heading="model", text=lambda row: row.model, wide=True),
    "provider": Column(heading="provider", text=lambda row: row.provider, wide=True),
    **{name: _latency(name, _QUANTILES[name]) for name in _LATENCIES},
    **{f"{name} ±": _around(_QUANTILES[name]) for name in _LATENCIES},
    "speed p50": Column(
        heading="speed p50",
        unit="tokens/s",
        text=lambda row: amount(value_of(row.tokens_per_second_p50)),
        scale="speed",
    ),
    "speed p50 ±": Column(
        heading="interval", unit="95 %", text=lambda row: interval_of(row.tokens_per_second_p50), scale="speed"
    ),
    "per $": Column(heading="speed", unit="per $/M", text=_per_dollar),
    "input": Column(heading="input", unit="$/M", text=lambda row: amount_dollars(row.usd_per_m_input)),
    "output": Column(heading="output", unit="$/M", text=lambda row: amount_dollars(row.usd_per_m_output)),
    "success": Column(heading="success", unit="%", text=_success),
    "success ±": Column(heading="interval", unit="95 %, %", text=_success_interval),
    "sent": Column(heading="sent ≈\nindependent", text=_sent),
    "failed": _counted("failed", lambda row: row.failed, "red"),
    "throttled": _counted("throttled", lambda row: row.throttled),
    "skipped": _counted("skipped", lambda row: row.skipped),
}
# In place of the position of the column.
_PRIORITY_OF = {"failed": 5, "provider": 6}
_WHO = ("rank", "model", "provider")
_COUNTED = ("failed",)
_COUNTS = {Order.SUCCESS: ("sent", "failed", "throttled", "skipped")}
_BY = {
    Order.TTFT: "median ttft",
    Order.TTFT_COLD: "median cold ttft",
    Order.TTFAT: "median ttfat",
    Order.E2E: "median e2e",
    Order.TOKENS_PER_SECOND: "median speed",
    Order.TOKENS_PER_USD: "median speed per $/M",
    Order.PRICE: "price",
    Order.SUCCESS: "success",
}
_SHOWN: dict[Order, tuple[str, ...]] = {
    Order.TTFT: ("ttft p50", "ttft p50 ±", "ttft p95", "speed p50", "output"),
    Order.TTFT_COLD: ("cold p50", "cold p50 ±", "ttft p50", "speed p50", "output"),
    Order.TTFAT: ("ttfat p50", "ttfat p50 ±", "ttft p50", "e2e p50", "output"),
    Order.E2E: ("e2e p50", "e2e p50 ±", "ttft p50", "speed p50", "output"),
    Order.TOKENS_PER_SECOND: ("speed p50", "speed p50 ±", "ttft p50", "e2e p50", "output"),
    Order.TOKENS_PER_USD: ("per $", "speed p50", "speed p50 ±", "output", "ttft p50"),
    Order.PRICE: ("output", "input", "per $", "speed p50", "ttft p50", "ttft p95"),
    Order.SUCCESS: ("success", "success ±", "ttft p50"),
}
_RANKED_BY = {order: names[0] for order, names in _SHOWN.items()} | {Order.TOKENS_PER_USD: "speed p50"}


TIERS_SCHEMA = "isochrone.tiers/1"


def tiers_page(answer: TierList) -> Page[TierLine]:
    """The page of the tiers, one table per region, cheapest tier first."""
    tiers = list(dict.fromkeys(row.tier for row in answer.tiers))
    rows = sorted(answer.tiers, key=lambda row: (row.region, tiers.index(row.tier), row.rank))
    has_hidden = any(not is_shown(row.ttft_p50_us) or not is_shown(row.tokens_per_second_p50) for row in rows)
    return Page(
        schema=TIERS_SCHEMA,
        title=f"price tiers by median ttft, rounds between {between(answer.window)}",
        facts={"window": to_json_value(answer.window)},
        fields=wire_fields(TierLine),
        columns=_tier_columns(rows),
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


def _tier_per_dollar(row: TierLine) -> str | Amount:
    """Speed per price; `free` for a price of 0."""
    return "free" if row.usd_per_m_output == 0 else amount(row.tokens_per_second_per_usd)


def _tier_columns(rows: Sequence[TierLine]) -> tuple[Column[TierLine], ...]:
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
        Column(heading="speed", unit="per $/M", text=_tier_per_dollar, priority=5),
        Column(
            heading="n ≈\nindependent",
            text=lambda row: worth(row.n, row.ttft_p50_us.n_eff if row.ttft_p50_us else None),
            priority=6,
        ),
    )
