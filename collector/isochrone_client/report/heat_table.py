"""The heat table: a row per target and a column per region, with medians and differences from the baseline."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from isochrone_client.formats import (
    UNKNOWN,
    Amount,
    amount_dollars,
    display_unit,
    displayed,
    fitting_decimals,
    interval,
    moment,
    number,
)
from isochrone_client.render.page import Column, Page, cell_texts
from isochrone_client.report import tables
from isochrone_client.report.html_elements import Markup, breakable, element, joined
from isochrone_wire.answers import Decision, Differential, Metric, Quantile
from isochrone_wire.insights import Standing

SCHEMA = "isochrone.report-regions/1"
MAX_COLUMNS = 8
"""The largest number of regions that are columns of a table; with more, each target has a list of tiles."""

_HUNDRED = 100.0
_MEDIAN_OF: dict[Metric, Callable[[Standing], Quantile | None]] = {
    Metric.TTFT: lambda row: row.ttft_p50_us,
    Metric.TTFT_COLD: lambda row: row.ttft_cold_p50_us,
    Metric.TTFAT: lambda row: row.ttfat_p50_us,
    Metric.E2E: lambda row: row.e2e_p50_us,
    Metric.TOKENS_PER_SECOND: lambda row: row.tokens_per_second_p50,
}
# The relative difference in per cent from which on a colour is stronger.
_STRONGER = (20.0, 50.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One target from one region: the median, and the difference from the baseline if it was compared."""

    median: float | None = None
    difference: Differential | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """One target: its cells by region; the lowest success rate (0 to 1) and speed of all regions, and its price."""

    target: str
    cells: Mapping[str, Cell] = field(default_factory=dict)
    success: float | None = None
    speed: float | None = None
    usd_per_m_output: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatTable:
    """The rows of a heat table, fastest first, and its regions, the baseline first."""

    metric: Metric
    baseline: str
    regions: tuple[str, ...]
    rows: tuple[HeatRow, ...]
    now_at: int

    @property
    def decimals(self) -> int:
        """The decimals of all values."""
        medians = [cell.median for row in self.rows for cell in row.cells.values() if cell.median is not None]
        return fitting_decimals(displayed(max(medians, default=0.0), self.metric.unit) or 0.0)


def heat_table(
    standings: Sequence[Standing], differences: Sequence[Differential], *, metric: Metric, baseline: str, now_at: int
) -> HeatTable:
    """The heat table of the standings of all regions and the differentials against the baseline."""
    found = {row.region for row in standings} | {row.region for row in differences}
    compared = {row.baseline for row in differences}
    regions = tuple(sorted(found | compared, key=lambda region: (region != baseline, region)))
    targets = dict.fromkeys([*(row.target for row in standings), *(row.target for row in differences)])
    rows = [_row(target, standings, differences, metric=metric) for target in targets]
    best_first = -1 if metric.more_is_better else 1

    def place(row: HeatRow) -> tuple[bool, float, str]:
        known = [cell.median for region in regions if (cell := row.cells.get(region)) and cell.median is not None]
        return (not known, best_first * known[0] if known else 0.0, row.target)

    return HeatTable(
        metric=metric, baseline=baseline, regions=regions, rows=tuple(sorted(rows, key=place)), now_at=now_at
    )


def _row(target: str, standings: Sequence[Standing], differences: Sequence[Differential], *, metric: Metric) -> HeatRow:
    own = [row for row in standings if row.target == target]
    cells = {row.region: Cell(median=_median(row, metric)) for row in own}
    for row in differences:
        if row.target == target:
            for region, median in ((row.baseline, row.baseline_median), (row.region, row.region_median)):
                known = cells.get(region, Cell())
                is_present = region == row.region and row.since_at is not None
                cells[region] = Cell(
                    # After a step, the median of the whole window is of neither level.
                    median=median if is_present or known.median is None else known.median,
                    difference=row if region == row.region else known.difference,
                )
    return HeatRow(
        target=target,
        cells=cells,
        success=min((row.success.value for row in own if row.success), default=None),
        speed=min((row.tokens_per_second_p50.value for row in own if row.tokens_per_second_p50), default=None),
        usd_per_m_output=next((row.usd_per_m_output for row in own if row.usd_per_m_output is not None), None),
    )


def _median(row: Standing, metric: Metric) -> float | None:
    quantile = _MEDIAN_OF[metric](row) if metric in _MEDIAN_OF else None
    return quantile.value if quantile is not None else None


def page(table: HeatTable) -> Page[HeatRow]:
    """The table as text: `513 (+191)`."""
    return Page(
        schema=SCHEMA,
        title=f"median {table.metric}, {display_unit(table.metric.unit)}, and the difference from {table.baseline}",
        fields=(),
        columns=(
            Column(heading="target", text=lambda row: row.target, wide=True),
            *(_column(table, region) for region in table.regions),
            *_MORE,
        ),
        rows=table.rows,
        notes=(_NOTE,),
    )


def _column(table: HeatTable, region: str) -> Column[HeatRow]:
    def text(row: HeatRow) -> str:
        cell = row.cells.get(region, Cell())
        note = _difference(cell, table)
        return f"{_value(cell, table)} ({note})" if note else _value(cell, table)

    return Column(heading=region, text=text)


_MORE: tuple[Column[HeatRow], ...] = (
    Column(
        heading="lowest success",
        unit="%",
        text=lambda row: UNKNOWN if row.success is None else number(_HUNDRED * row.success, decimals=1),
    ),
    Column(heading="lowest speed", unit="tokens/s", text=lambda row: Amount((row.speed,))),
    Column(heading="output", unit="$/M", text=lambda row: amount_dollars(row.usd_per_m_output)),
)
_NOTE = "lowest success and lowest speed: of all regions"


def _value(cell: Cell, table: HeatTable) -> str:
    return number(displayed(cell.median, table.metric.unit), decimals=table.decimals)


def _difference(cell: Cell, table: HeatTable) -> str:
    """The second line of a cell: the difference if it is decided."""
    row = cell.difference
    if row is None:
        return ""
    if row.decision is Decision.EQUIVALENT:
        return "same"
    if row.decision in (Decision.UNDECIDED, Decision.MIXED):
        return row.decision.value
    since = "" if row.since_at is None else f" since {moment(row.since_at, now_at=table.now_at)}"
    return f"{number(displayed(row.shift, table.metric.unit), signed=True, decimals=table.decimals)}{since}"


def drawing(table: HeatTable) -> Markup:
    """The table in colours; tiles instead of columns if it has many regions or the screen is narrow."""
    baseline = element("small", "baseline")
    heads = [tables.heading(region, baseline if region == table.baseline else "") for region in table.regions]
    more = [tables.heading(column.heading, element("small", column.unit)) for column in _MORE]
    content = tables.table(
        caption=f"median {table.metric} in {display_unit(table.metric.unit)}, and the difference from {table.baseline}",
        head=[tables.heading("target", class_="name"), *heads, *more],
        rows=[_cells(table, row, texts) for row, texts in zip(table.rows, cell_texts(_MORE, table.rows), strict=True)],
        class_="heat tiles" if len(table.regions) > MAX_COLUMNS else "heat",
    )
    return joined(_key(), content)


def _cells(table: HeatTable, row: HeatRow, more: Sequence[str]) -> list[Markup]:
    return [
        tables.name_cell(breakable(row.target)),
        *(_cell(table, region, row.cells.get(region, Cell())) for region in table.regions),
        *(tables.cell(text, label=column.title) for column, text in zip(_MORE, more, strict=True)),
    ]


def _cell(table: HeatTable, region: str, cell: Cell) -> Markup:
    note = _difference(cell, table)
    median, small = element("b", _value(cell, table)), element("small", note) if note else ""
    return tables.cell(median, small, label=region, title=_tooltip(cell, table), class_=f"tile {_class(cell)}".rstrip())


def _tooltip(cell: Cell, table: HeatTable) -> str | None:
    row = cell.difference
    if row is None:
        return None
    low, high = displayed(row.shift_low, table.metric.unit), displayed(row.shift_high, table.metric.unit)
    text = f"{row.decision}, {interval(low, high, signed=True)} {display_unit(table.metric.unit)} over {row.n} rounds"
    return f"{text}: {row.reason}" if row.reason else text


def _class(cell: Cell) -> str:
    """`worse1` to `worse3`, `better1` to `better3` by the relative difference; `unsure` if it is neither."""
    row = cell.difference
    if row is None or row.decision is Decision.EQUIVALENT:
        return ""
    if row.decision in (Decision.UNDECIDED, Decision.MIXED):
        return "unsure"
    strength = 1 + sum(abs(row.shift_percent or 0.0) >= limit for limit in _STRONGER)
    return f"{'worse' if row.decision is Decision.SLOWER else 'better'}{strength}"


def _key() -> Markup:
    """The meaning of the colours."""
    entries = (
        ("worse1", "slower by less than 20 %"),
        ("worse2", "20 to 50 %"),
        ("worse3", "50 % or more"),
        ("better1", "faster by less than 20 %"),
        ("better2", "20 to 50 %"),
        ("better3", "50 % or more"),
        ("unsure", "undecided, or mixed"),
    )
    items = (element("li", element("span", class_=f"swatch {name}"), text) for name, text in entries)
    return element("ul", *items, class_="legend", aria_label="colours")
