"""Targets ranked by median TTFT, as each region sees them."""

from collections.abc import Callable

from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN, between, dollars, interval, milliseconds, number
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.answers import Leaderboard, Quantile, Standing
from isochrone_wire.plain import to_plain

SCHEMA = "isochrone.leaderboard/1"
_TOO_FEW = f"{UNKNOWN}: too few samples for a 95 % interval: a median takes 6, a p95 59"


def page(answer: Leaderboard) -> Page[Standing]:
    """The page of a leaderboard, one table per region."""
    ranked = sorted(answer.standings, key=lambda row: (row.region, row.rank, row.target))
    unsaid = any(not _said(quantile) for row in ranked for quantile in _quantiles(row))
    return Page(
        schema=SCHEMA,
        title=f"leaderboard by median ttft, rounds between {between(answer.window)}",
        facts={"window": to_plain(answer.window)},
        fields=wire_fields(Standing),
        columns=_COLUMNS,
        rows=tuple(ranked),
        group=lambda row: f"from {row.region}",
        notes=(_TOO_FEW,) if unsaid else (),
    )


def require_median(answer: Leaderboard) -> None:
    """Raises `InsufficientError` when no target has a median to rank it by."""
    if not answer.standings:
        raise InsufficientError(
            f"no samples between {between(answer.window)}",
            hint="is an agent running? see `isochrone coverage`; a longer --window may reach older samples",
        )
    if not any(_said(row.ttft_p50_us) for row in answer.standings):
        most = max(row.n for row in answer.standings)
        raise InsufficientError(
            f"no target has enough samples for a median: {most} of 6 needed",
            hint="wait for more rounds, or see `isochrone samples` for why probes fail",
        )


def _quantiles(row: Standing) -> tuple[Quantile | None, ...]:
    return (row.ttft_p50_us, row.ttft_p95_us, row.tokens_per_second_p50)


def _said(quantile: Quantile | None) -> bool:
    """A quantile without an interval is not said: there are too few samples for it."""
    return quantile is not None and quantile.low is not None and quantile.high is not None


def _value(quantile: Quantile | None) -> float | None:
    return quantile.value if quantile is not None and _said(quantile) else None


def _interval_ms(quantile: Quantile | None) -> str:
    return interval(milliseconds(quantile.low), milliseconds(quantile.high)) if quantile else UNKNOWN


def _ms(quantile: Callable[[Standing], Quantile | None]) -> Callable[[Standing], str]:
    return lambda row: number(milliseconds(_value(quantile(row))))


_COLUMNS: tuple[Column[Standing], ...] = (
    Column(heading="rank", text=lambda row: str(row.rank)),
    Column(heading="model", text=lambda row: row.model, wide=True),
    Column(heading="provider", text=lambda row: row.provider, wide=True),
    Column(heading="ttft p50", unit="ms", text=_ms(lambda row: row.ttft_p50_us)),
    Column(heading="interval", unit="95 %, ms", text=lambda row: _interval_ms(row.ttft_p50_us)),
    Column(heading="ttft p95", unit="ms", text=_ms(lambda row: row.ttft_p95_us)),
    Column(heading="speed p50", unit="tokens/s", text=lambda row: number(_value(row.tokens_per_second_p50))),
    Column(heading="output", unit="$/M", text=lambda row: dollars(row.usd_per_m_output)),
    Column(heading="n", text=lambda row: str(row.n)),
    Column(
        heading="failed",
        text=lambda row: str(row.failed),
        style=lambda row: "red" if row.failed else "",
    ),
)
