"""Today's spend of each vantage per provider, with its forecast and budget."""

from collections.abc import Iterator

from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN, Amount, amount, amount_dollars, dollars
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.fleet import SpendLine, SpendList
from isochrone_wire.json_format import minute
from isochrone_wire.queries.documents import FORMATS

FORMAT = FORMATS["SpendList"]
_OVER = "forecast above 100 %: the last rounds of the day will be skipped_budget"
_ALL = 100.0


def page(answer: SpendList) -> Page[SpendLine]:
    """The page of a spend answer, one table per vantage."""
    rows: tuple[SpendLine, ...] = FORMAT.rows_of(answer)
    days = sorted({row.day_at for row in rows})
    return Page(
        schema=FORMAT.schema,
        title=f"spend since {minute(days[-1])} UTC, and forecast until midnight" if days else "spend",
        facts=FORMAT.facts(answer),
        fields=wire_fields(SpendLine),
        columns=_COLUMNS,
        rows=rows,
        group=lambda row: f"{row.vantage} in {row.region}",
        notes=(_OVER,) if any((_tightest(row, forecast=True) or 0.0) > _ALL for row in rows) else (),
    )


def require_spend(answer: SpendList) -> None:
    """Raises `InsufficientError` without vantages, or without a plan with targets."""
    if not answer.spend:
        raise InsufficientError(
            "there is no spend: no vantage, or no plan with targets",
            hint="see `isochrone regions` for the vantages and `isochrone targets` for the plan",
        )


def _limits(row: SpendLine, *, forecast: bool) -> Iterator[float]:
    """For each limit of the budget, the share that is spent or forecast, in per cent."""
    if row.budget is None:
        return
    spent: tuple[float | None, ...] = (row.usd, row.tokens, row.requests)
    if forecast:
        spent = (row.forecast_usd, row.forecast_tokens, row.forecast_requests)
    limits = (row.budget.usd_per_day, row.budget.tokens_per_day, row.budget.requests_per_day)
    yield from (100.0 * part / limit for part, limit in zip(spent, limits, strict=True) if part is not None and limit)


def _tightest(row: SpendLine, *, forecast: bool = False) -> float | None:
    return max(_limits(row, forecast=forecast), default=None)


def _spent(row: SpendLine) -> Amount:
    """The dollars spent; unknown without a price."""
    return amount_dollars(row.usd if row.usd or row.forecast_usd is not None else None)


def _budget(row: SpendLine) -> str:
    if row.budget is None:
        return UNKNOWN
    limits = (
        (row.budget.usd_per_day, f"{dollars(row.budget.usd_per_day)} $"),
        (row.budget.tokens_per_day, f"{row.budget.tokens_per_day} tokens"),
        (row.budget.requests_per_day, f"{row.budget.requests_per_day} requests"),
    )
    return ", ".join(text for limit, text in limits if limit is not None) or UNKNOWN


def _style(row: SpendLine, *, forecast: bool = False) -> str:
    return "red" if (_tightest(row, forecast=forecast) or 0.0) > _ALL else ""


_COLUMNS: tuple[Column[SpendLine], ...] = (
    Column(heading="provider", text=lambda row: row.provider, wide=True),
    Column(heading="requests", text=lambda row: str(row.requests), priority=4),
    Column(heading="tokens", text=lambda row: str(row.tokens), priority=5),
    Column(heading="spent", unit="$", text=_spent, scale="$"),
    Column(heading="forecast", unit="$", text=lambda row: amount_dollars(row.forecast_usd), scale="$", priority=1),
    Column(heading="forecast", unit="tokens", text=lambda row: str(row.forecast_tokens), priority=6),
    Column(heading="budget", unit="a day", text=_budget, wide=True, prose=True, priority=3),
    Column(heading="spent", unit="% of it", text=lambda row: amount(_tightest(row)), style=_style, priority=2),
    Column(
        heading="forecast",
        unit="% of it",
        text=lambda row: amount(_tightest(row, forecast=True)),
        style=lambda row: _style(row, forecast=True),
    ),
)
