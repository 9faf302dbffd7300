"""Rate limits: what remains of each, its history, and when it will be used up."""

from isochrone_client.errors import NoSamplesError
from isochrone_client.formats import UNKNOWN, age, amount, between, interval, moment, span, sparkline
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.insights import Exhaustion, RateLimitList, RateLimitSeries
from isochrone_wire.model import SECOND_US
from isochrone_wire.queries.documents import FORMATS

FORMAT = FORMATS["RateLimitList"]

_STYLE_OF = {Exhaustion.EXHAUSTED: "red", Exhaustion.EXPECTED: "red", Exhaustion.POSSIBLE: "yellow"}
_FORECAST = (
    "used up: when nothing remains at the change of the last minutes (its 95 % interval; users may change their rate); "
    "not expected: it refills before, or lasts 24 h; ?: fewer than 5 readings since a refill"
)
_SHARED = "vantages with the same API key may share its limits"


def page(answer: RateLimitList, *, now_at: int) -> Page[RateLimitSeries]:
    """The page of the limits, one table per region."""
    rows = answer.limits
    several = len({(row.region, row.vantage) for row in rows}) > len({row.region for row in rows})
    vantage: Column[RateLimitSeries] = Column(heading="vantage", text=lambda row: row.vantage, wide=True)
    return Page(
        schema=FORMAT.schema,
        title=f"rate limits between {between(answer.window)}",
        facts=FORMAT.facts(answer),
        fields=wire_fields(RateLimitSeries),
        columns=(
            target_column(rows, lambda row: row.target),
            *((vantage,) if several else ()),
            Column(heading="kind", text=lambda row: row.kind, wide=True),
            Column(heading="limit", text=lambda row: amount(row.limit), priority=1),
            Column(heading="remaining", text=lambda row: amount(row.remaining), style=_style),
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
                heading="used up", unit="UTC", text=lambda row: _used_up(row, now_at=now_at), style=_style, wide=True
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


def _style(row: RateLimitSeries) -> str:
    return _STYLE_OF.get(row.exhaustion, "")
