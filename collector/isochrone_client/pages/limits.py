"""Rate limits with their history and forecast; spend of today per provider, with its forecast and budget."""

from collections.abc import Iterator

from isochrone_client.errors import InsufficientError, NoSamplesError
from isochrone_client.formats import (
    UNKNOWN,
    Amount,
    age,
    amount,
    amount_dollars,
    between,
    dollars,
    interval,
    moment,
    span,
    sparkline,
)
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page, wire_fields
from isochrone_wire.fleet import SpendLine, SpendList
from isochrone_wire.insights import Exhaustion, RateLimitList, RateLimitSeries
from isochrone_wire.json_format import minute
from isochrone_wire.model import SECOND_US
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
            hint="see `isochrone vantages` for the vantages and `isochrone targets` for the plan",
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


RATE_LIMITS = FORMATS["RateLimitList"]

_STYLE_OF = {Exhaustion.EXHAUSTED: "red", Exhaustion.EXPECTED: "red", Exhaustion.POSSIBLE: "yellow"}
_FORECAST = (
    "used up: when nothing remains at the change of the last minutes (its 95 % interval; users may change their rate); "
    "not expected: it refills before, or lasts 24 h; ?: fewer than 5 readings since a refill"
)
_SHARED = "vantages with the same API key may share its limits"


def rate_limits_page(answer: RateLimitList, *, now_at: int) -> Page[RateLimitSeries]:
    """The page of the limits, one table per region."""
    rows = answer.limits
    several = len({(row.region, row.vantage) for row in rows}) > len({row.region for row in rows})
    vantage: Column[RateLimitSeries] = Column(heading="vantage", text=lambda row: row.vantage, wide=True)
    return Page(
        schema=RATE_LIMITS.schema,
        title=f"rate limits between {between(answer.window)}",
        facts=RATE_LIMITS.facts(answer),
        fields=wire_fields(RateLimitSeries),
        columns=(
            target_column(rows, lambda row: row.target),
            *((vantage,) if several else ()),
            Column(heading="kind", text=lambda row: row.kind, wide=True),
            Column(heading="limit", text=lambda row: amount(row.limit), priority=1),
            Column(heading="remaining", text=lambda row: amount(row.remaining), style=_limit_style),
            Column(heading="lowest", text=lambda row: amount(row.lowest), priority=3),
            Column(heading="reset", unit="after", text=_reset, priority=4),
            Column(heading="history", text=lambda row: _history(answer, row), wide=True, priority=2),
            Column(
                heading="change",
                unit="per min",
                text=lambda row: interval(row.per_minute_low, row.per_minute_high, signed=True),
                priority=5,
            ),
            Column(
                heading="used up",
                unit="UTC",
                text=lambda row: _used_up(row, now_at=now_at),
                style=_limit_style,
                wide=True,
            ),
            Column(heading="read", text=lambda row: f"{age(row.newest_at, now_at=now_at)} ago", priority=6),
        ),
        rows=rows,
        group=lambda row: f"from {row.region}",
        notes=(_FORECAST, _SHARED) if rows else (),
    )


def require_limits(answer: RateLimitList) -> None:
    """Raises `NoSamplesError` if no response stated a limit."""
    if not answer.limits:
        raise NoSamplesError(
            f"no response stated a rate limit in the last 6 h of {between(answer.window)}",
            window=answer.window,
            hint="not every provider sends such headers; `isochrone samples --output json` shows what was stored",
        )


def _reset(row: RateLimitSeries) -> str:
    """The time to the reset, in whole seconds from one second on."""
    if row.reset_us is None:
        return UNKNOWN
    return span(row.reset_us if row.reset_us < SECOND_US else row.reset_us // SECOND_US * SECOND_US)


def _history(answer: RateLimitList, row: RateLimitSeries) -> str:
    """The lowest remaining amount of each bucket, from nothing to the limit."""
    lowest = {point.at: point.remaining for point in row.points}
    first_at = answer.window.from_at // answer.bucket_us * answer.bucket_us
    values = [lowest.get(at) for at in range(first_at, answer.window.until_at, answer.bucket_us)]
    return sparkline(values, highest=max(row.limit or 0, *lowest.values(), 0))


def _used_up(row: RateLimitSeries, *, now_at: int) -> str:
    """`now`, `12:40:05 … 12:52:10`, `perhaps from 12:40:05`, `not expected`, or `?`."""
    if row.exhaustion is Exhaustion.EXHAUSTED:
        return "now"
    if row.exhausted_low_at is None or row.exhaustion in (Exhaustion.NOT_EXPECTED, Exhaustion.UNKNOWN):
        return "?" if row.exhaustion is Exhaustion.UNKNOWN else "not expected"
    earliest = moment(row.exhausted_low_at, now_at=now_at)
    if row.exhaustion is Exhaustion.POSSIBLE or row.exhausted_high_at is None:
        return f"perhaps from {earliest}"
    return f"{earliest} … {moment(row.exhausted_high_at, now_at=now_at)}"


def _limit_style(row: RateLimitSeries) -> str:
    return _STYLE_OF.get(row.exhaustion, "")
