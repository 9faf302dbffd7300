"""Rankings: targets per region and within price tiers, and regions per provider; with the columns that matter."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from isochrone_client import formats
from isochrone_client.errors import InsufficientError, NoSamplesError
from isochrone_client.pages import cells
from isochrone_client.render.page import SUFFIX_OF, Column, Page, answer_page
from isochrone_wire.answers import Decision, Metric, Order, Source
from isochrone_wire.insights import Leaderboard, RegionCost, RegionCostList, Standing, TierLine, TierList
from isochrone_wire.json_format import minute
from isochrone_wire.text import ESTIMAND


def page(answer: Leaderboard) -> Page[Standing]:
    """The page of a leaderboard, one table per region."""
    quantiles = [_QUANTILES[name] for name in _SHOWN[answer.order] if name in _QUANTILES]
    return answer_page(
        answer,
        f"leaderboard by {_BY[answer.order]}, rounds between {formats.between(answer.window)}",
        _columns(answer),
        group=lambda row: f"from {row.region}",
        notes=cells.notes_that_hold(
            (_share_ranks(answer.standings), _RANKS),
            (answer.standings, ESTIMAND),
            (cells.are_early(of(row) for of in quantiles for row in answer.standings), cells.EARLY),
            (answer.source is Source.SUMMARIES, cells.SUMMARISED),
            *((True, cells.busy(region, share)) for region, share in _left_out(answer.standings).items()),
        ),
    )


def _left_out(standings: Sequence[Standing]) -> dict[str, float]:
    """The mean share of the probes of each region that are not compared, if it is worth a note."""
    found: dict[str, list[float]] = {}
    for row in standings:
        if row.left_out is not None:
            found.setdefault(row.region, []).append(row.left_out)
    shares = {region: sum(own) / len(own) for region, own in found.items()}
    return {region: share for region, share in shares.items() if share > cells.FEW_LEFT_OUT}


def require_ranking(answer: Leaderboard) -> None:
    """Raises `InsufficientError` if no target has a value of the quantity that ranks."""
    if not answer.standings:
        raise cells.no_samples(answer.window)
    if answer.order is Order.PRICE:
        cells.require_price(row.usd_per_m_output for row in answer.standings)
    measured = _QUANTILES.get(_RANKED_BY[answer.order])
    if measured is not None:
        cells.require_medians(map(measured, answer.standings))


def _columns(answer: Leaderboard) -> tuple[Column[Standing], ...]:
    """Rank, model and the quantity of the order are always shown, of the others the later ones are left out first."""
    shown = _SHOWN[answer.order]
    counts = ("sent", "failed", "throttled", "skipped") if answer.order is Order.SUCCESS else ("n", "failed")
    ranking = _QUANTILES.get(_RANKED_BY[answer.order], _QUANTILES["ttft p50"])
    columns = _COLUMNS | {
        "rank": Column("rank", lambda row: _ranks(row) if _is_ranked(row, answer.order) else formats.UNKNOWN),
        "n": cells.worth_column("n", lambda row: row.n, ranking),
    }
    models: dict[str, set[str]] = {}
    for row in answer.standings:
        models.setdefault(row.model, set()).add(row.provider)
    distinct = all(len(providers) == 1 for providers in models.values())
    always = {"rank", "model", shown[0], *(() if distinct else ("provider",))}
    return tuple(
        columns[name] if name in always else replace(columns[name], priority=_PRIORITY_OF.get(name, place))
        for place, name in enumerate(("rank", "model", "provider", *shown, *counts))
    )


def _count_column(heading: str, of: Callable[[Standing], int], style: str = "") -> Column[Standing]:
    return Column(heading, lambda row: str(of(row)), style=lambda row: style if of(row) else "")


def _per_dollar(row: Standing | TierLine) -> str | formats.Amount:
    """Speed per price; `free` for a price of 0."""
    return "free" if row.usd_per_m_output == 0 else formats.amount(row.tokens_per_second_per_usd)


def _ranks(row: Standing | TierLine) -> str:
    """The ranks that are possible: `2`, or `1-3`."""
    return "-".join(map(str, dict.fromkeys((row.rank_low or row.rank, row.rank_high or row.rank))))


def _is_ranked(row: Standing, order: Order) -> bool:
    """Return whether the row has what the order ranks by: a value, and its price where that counts."""
    if order in (Order.PRICE, Order.TOKENS_PER_USD) and row.usd_per_m_output is None:
        return False
    measured = _QUANTILES.get(_RANKED_BY[order])
    return measured(row) is not None if measured else order is Order.PRICE or row.success is not None


def _share_ranks(rows: Iterable[Standing | TierLine]) -> bool:
    return any(row.rank_low != row.rank_high for row in rows)


_RANKS = "rank 1-3: any of these; the data do not tell such neighbours apart"

_QUANTILES: dict[str, cells.QuantileOf[Standing]] = {
    "ttft p50": lambda row: row.ttft_p50_us,
    "ttft p95": lambda row: row.ttft_p95_us,
    "cold p50": lambda row: row.ttft_cold_p50_us,
    "ttfat p50": lambda row: row.ttfat_p50_us,
    "e2e p50": lambda row: row.e2e_p50_us,
    "speed p50": lambda row: row.tokens_per_second_p50,
}
_UNITS = {"speed p50": "tokens/s"}
_COLUMNS: dict[str, Column[Standing]] = {
    "model": Column("model", lambda row: row.model, wide=True),
    "provider": Column("provider", lambda row: row.provider, wide=True),
    **{
        name: cells.quantile_column(
            name,
            of,
            share=0.95 if name.endswith("p95") else 0.5,
            n=lambda row: row.n,
            unit=_UNITS.get(name, "ms"),
        )
        for name, of in _QUANTILES.items()
    },
    **{f"{name} ±": cells.interval_column(of, unit=_UNITS.get(name, "ms")) for name, of in _QUANTILES.items()},
    "per $": Column("speed", _per_dollar, unit="per $/M"),
    "input": Column("input", lambda row: formats.amount_dollars(row.usd_per_m_input), unit="$/M"),
    "output": Column("output", lambda row: formats.amount_dollars(row.usd_per_m_output), unit="$/M"),
    **dict(zip(("success", "success ±"), cells.share_columns("success", lambda row: row.success), strict=True)),
    "sent": cells.worth_column("sent", lambda row: row.success.n if row.success else 0, lambda row: row.success),
    "failed": _count_column("failed", lambda row: row.failed, "red"),
    "throttled": _count_column("throttled", lambda row: row.throttled),
    "skipped": _count_column("skipped", lambda row: row.skipped),
}
# In place of the position of the column.
_PRIORITY_OF = {"failed": 5, "provider": 6}
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


def tiers_page(answer: TierList) -> Page[TierLine]:
    """The page of the tiers, one table per region, cheapest tier first."""
    tiers = list(dict.fromkeys(row.tier for row in answer.tiers))
    rows = tuple(sorted(answer.tiers, key=lambda row: (row.region, tiers.index(row.tier), row.rank)))
    return answer_page(
        answer,
        f"price tiers by median ttft, rounds between {formats.between(answer.window)}",
        (
            Column("tier", lambda row: row.tier, wide=True),
            Column("rank", lambda row: _ranks(row) if row.ttft_p50_us else formats.UNKNOWN, priority=2),
            cells.target_column(rows, lambda row: row.target),
            Column("output", lambda row: formats.amount_dollars(row.usd_per_m_output), unit="$/M", priority=3),
            cells.quantile_column("ttft p50", lambda row: row.ttft_p50_us),
            cells.interval_column(lambda row: row.ttft_p50_us, priority=1),
            cells.quantile_column("speed p50", lambda row: row.tokens_per_second_p50, unit="tokens/s", priority=4),
            Column("speed", _per_dollar, unit="per $/M", priority=5),
            cells.worth_column("n", lambda row: row.n, lambda row: row.ttft_p50_us, priority=6),
        ),
        rows=rows,
        group=lambda row: f"from {row.region}",
        notes=cells.notes_that_hold(
            (_share_ranks(rows), _RANKS),
            (rows, ESTIMAND),
            (cells.are_early(one for row in rows for one in (row.ttft_p50_us, row.tokens_per_second_p50)), cells.EARLY),
        ),
    )


def require_tiers(answer: TierList) -> None:
    """Raises `InsufficientError` if no target has a median or none has a price."""
    if not answer.tiers:
        raise cells.no_samples(answer.window)
    cells.require_price(row.usd_per_m_output for row in answer.tiers)
    cells.require_medians(row.ttft_p50_us for row in answer.tiers)


def best_page(answer: RegionCostList, *, metric: Metric) -> Page[RegionCost]:
    """The page of the regions by a metric, each provider's best region first."""
    footnotes = cells.Footnotes(map(_cost_remark, answer.costs))
    unit = formats.display_unit(metric.unit)

    def of(value: float | None) -> float | None:
        return formats.displayed(value, metric.unit)

    def interval(row: RegionCost) -> str | formats.Amount:
        """The bounds of `_slower_by`."""
        bounds = (row.added_low, row.added_high)
        if row.metric.more_is_better:
            bounds = (_negative(row.added_high), _negative(row.added_low))
        return "" if _is_best(row) else formats.amount_interval(*map(of, bounds))

    return answer_page(
        answer,
        f"best regions by {metric}, rounds between {formats.between(answer.window)}",
        (
            Column("provider", lambda row: row.provider, wide=True, once=True),
            Column("region", lambda row: row.region, wide=True),
            Column("median", lambda row: formats.amount(of(row.median)), unit=unit, scale="latency", priority=2),
            Column("slower by", lambda row: _slower_by(row, of), unit=unit, scale="latency"),
            Column("interval", interval, unit=f"95 %, {unit}", scale="latency", priority=1),
            Column("targets", lambda row: str(row.targets), priority=4),
            Column(
                "pairs ≈\nindependent", lambda row: "" if _is_best(row) else cells.worth(row.n, row.n_eff), priority=3
            ),
            Column(
                "decision",
                lambda row: footnotes.marked(
                    "best" if _is_best(row) and row.decision is Decision.FASTER else row.decision.value,
                    _cost_remark(row),
                ),
                style=lambda row: cells.DECISION_STYLES.get(row.decision, ""),
                wide=True,
            ),
        ),
        facts={"metric": metric.value},
        units=dict.fromkeys(("median", "added", "added_low", "added_high"), SUFFIX_OF[metric.unit]),
        notes=(
            *footnotes.notes,
            "slower by: than from the best region, paired by target and round; median: of the targets' medians",
            *cells.notes_that_hold(
                (any(row.added_low is not None for row in answer.costs), ESTIMAND),
                (any(map(_is_early, answer.costs)), cells.EARLY),
            ),
        ),
    )


def require_best(answer: RegionCostList) -> None:
    """Raises `InsufficientError` if no region of any provider is decided."""
    if not answer.costs:
        raise cells.no_samples(answer.window)
    if all(row.decision is Decision.UNDECIDED for row in answer.costs):
        nothing, regions = "nothing is decided for any provider", {row.region for row in answer.costs}
        if len(regions) == 1:
            hint = "compare at least two regions: omit --region, or add one with isochrone-collector vantage add"
            raise NoSamplesError(nothing, window=answer.window, besides=regions.pop(), hint=hint)
        raise InsufficientError(nothing, hint=cells.MORE_ROUNDS)


def _is_best(row: RegionCost) -> bool:
    return row.region == row.best_region


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


def _slower_by(row: RegionCost, of: Callable[[float | None], float | None]) -> str | formats.Amount:
    """Positive for a region that is slower: of a rate the smaller one."""
    if _is_best(row):
        return formats.amount(0.0)
    size = formats.amount(of(_negative(row.added) if row.metric.more_is_better else row.added))
    return replace(size, pattern="{}?") if _is_early(row) else size


def _is_early(row: RegionCost) -> bool:
    return not _is_best(row) and row.added is not None and None in (row.added_low, row.added_high)


def _cost_remark(row: RegionCost) -> str:
    """The reason of a decision, whether it is provisional and, once per provider, the change that cut its rounds."""
    cut = f"only rounds since a change at {minute(row.since_at)}" if row.since_at and _is_best(row) else ""
    provisional = cells.PROVISIONAL if row.provisional else ""
    return "; ".join(filter(None, (cells.without_size(row.reason), provisional, cut)))
