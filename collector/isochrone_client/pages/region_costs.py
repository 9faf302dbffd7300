"""The best region of each provider, and how much slower the other regions are."""

from collections.abc import Callable

from isochrone_client.errors import InsufficientError, NoSamplesError
from isochrone_client.formats import (
    UNKNOWN,
    Amount,
    amount,
    amount_interval,
    between,
    display_unit,
    displayed,
)
from isochrone_client.pages.footnotes import Footnotes, without_size
from isochrone_client.pages.insufficient import no_samples
from isochrone_client.pages.quantiles import worth
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.answers import Decision, Metric
from isochrone_wire.insights import RegionCost, RegionCostList
from isochrone_wire.json_format import minute, to_json_value
from isochrone_wire.text import ESTIMAND

SCHEMA = "isochrone.region-costs/1"
_SCALE = "latency"
_Scale = Callable[[float | None], float | None]
_STYLE_OF = {Decision.FASTER: "green", Decision.SLOWER: "red", Decision.MIXED: "yellow", Decision.UNDECIDED: "dim"}
_QUANTITIES = ("median", "added", "added_low", "added_high")
_HOW = "slower by: than from the best region, paired by target and round; median: of the targets' medians"


def page(answer: RegionCostList, *, metric: Metric) -> Page[RegionCost]:
    """The page of an answer about `metric`, one table per provider, its best region first."""
    footnotes = Footnotes(map(_remark, answer.costs))
    unit = "us" if metric.unit == "us" else "tokens_per_second"
    return Page(
        schema=SCHEMA,
        title=f"best regions by {metric}, rounds between {between(answer.window)}",
        facts={"window": to_json_value(answer.window), "metric": metric.value},
        fields=wire_fields(RegionCost, units=dict.fromkeys(_QUANTITIES, unit)),
        columns=_columns(metric, footnotes),
        rows=answer.costs,
        notes=(*footnotes.notes, _HOW, *([ESTIMAND] if any(row.added_low is not None for row in answer.costs) else ())),
    )


def require_best(answer: RegionCostList) -> None:
    """Raises `InsufficientError` if no region of any provider is decided."""
    if not answer.costs:
        raise no_samples(answer.window)
    if all(row.decision is Decision.UNDECIDED for row in answer.costs):
        nothing, regions = "nothing is decided for any provider", {row.region for row in answer.costs}
        if len(regions) == 1:
            hint = "compare at least two regions: omit --region, or add one with isochrone-collector vantage add"
            raise NoSamplesError(nothing, window=answer.window, besides=regions.pop(), hint=hint)
        raise InsufficientError(
            nothing, hint="more rounds narrow the intervals: wait or use a longer --window; see `isochrone coverage`"
        )


def _columns(metric: Metric, footnotes: Footnotes) -> tuple[Column[RegionCost], ...]:
    unit = display_unit(metric.unit)

    def of(value: float | None) -> float | None:
        return displayed(value, metric.unit)

    return (
        Column(heading="provider", text=lambda row: row.provider, wide=True, once=True),
        Column(heading="region", text=lambda row: row.region, wide=True),
        Column(heading="median", unit=unit, text=lambda row: amount(of(row.median)), scale=_SCALE, priority=2),
        Column(heading="slower by", unit=unit, text=lambda row: _slower_by(row, of), scale=_SCALE),
        Column(
            heading="interval",
            unit=f"95 %, {unit}",
            text=lambda row: "" if _is_best(row) else amount_interval(*_bounds(row, of)),
            scale=_SCALE,
            priority=1,
        ),
        Column(heading="targets", text=lambda row: str(row.targets), priority=4),
        Column(
            heading="pairs ≈\nindependent",
            text=lambda row: "" if _is_best(row) else worth(row.n, row.n_eff),
            priority=3,
        ),
        Column(
            heading="decision",
            text=lambda row: footnotes.marked(_decision(row), _remark(row)),
            style=lambda row: _STYLE_OF.get(row.decision, ""),
            wide=True,
        ),
    )


def _is_best(row: RegionCost) -> bool:
    return row.region == row.best_region


def _slower_by(row: RegionCost, of: _Scale) -> str | Amount:
    """Positive for a region that is slower: of a rate the smaller one. A number without an interval is not shown."""
    if _is_best(row):
        return amount(0.0)
    if row.added is None or row.added_low is None or row.added_high is None:
        return UNKNOWN
    return amount(of(-row.added if row.metric.more_is_better else row.added))


def _bounds(row: RegionCost, of: _Scale) -> tuple[float | None, float | None]:
    if row.added_low is None or row.added_high is None or not row.metric.more_is_better:
        return of(row.added_low), of(row.added_high)
    return of(-row.added_high), of(-row.added_low)


def _remark(row: RegionCost) -> str:
    """The reason of a decision and, once per provider, the change that cut its rounds."""
    cut = f"only rounds since a change at {minute(row.since_at)}" if row.since_at and _is_best(row) else ""
    return "; ".join(filter(None, (without_size(row.reason), cut)))


def _decision(row: RegionCost) -> str:
    return "best" if _is_best(row) and row.decision is Decision.FASTER else row.decision.value
