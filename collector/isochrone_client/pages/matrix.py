"""Targets and regions as one matrix: the median of a metric and its difference from a baseline region in each cell.

`isochrone watch`, the demo and the report show it. Quantities are in the unit of the metric.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING

from isochrone_client.formats import displayed, fitting_decimals, moment, number
from isochrone_client.pages.cells import has_interval, model_part
from isochrone_client.render.page import Column, Page
from isochrone_client.render.table import shortened
from isochrone_wire.answers import Decision, Differential, Metric, Quantile

if TYPE_CHECKING:
    from isochrone_wire.insights import Standing

Place = tuple[str, str]
"""A target and a region."""

METRICS = (Metric.TTFT, Metric.TTFT_COLD, Metric.TTFAT, Metric.E2E, Metric.TOKENS_PER_SECOND)
"""The metrics of which a leaderboard has medians."""
SORTS = ("name", "value", "difference")
ROUNDS_NEEDED = 6
"""The rounds that an interval needs."""
CHANGED_MARK, FAILING_MARK, STALE_MARK, EARLY_MARK = "▲", "✗", "○", "?"
DECISION_MARKS = {Decision.EQUIVALENT: "=", Decision.MIXED: "~", Decision.UNDECIDED: "?"}
MARKS = ", ".join(f"{mark} {decision}" for decision, mark in DECISION_MARKS.items())
SCHEMA = "isochrone.matrix/1"

_HEADINGS = {Metric.TTFT_COLD: "cold", Metric.TOKENS_PER_SECOND: "speed"}
_STYLES = {Decision.FASTER: "green", Decision.SLOWER: "red"}
_SHORT = {Decision.EQUIVALENT: "equal", Decision.UNDECIDED: "?"}
# Room for every decision in full, or in a short form.
_FULL_WORD, _SHORT_WORD = 10, 6
_LEAST_VALUE, _LEAST_SHIFT, _LEAST_ERROR = 4, 5, 4
# Names of targets lose their middle before a region is left out.
_LEAST_NAME = 12
_DIRECTION = re.compile("north|south|east|west|central")
_WORD = re.compile("[a-z]+|[0-9]+")
_LONGEST_CODE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One target from one region. `changed` is a certain change of the difference; `bars` begin with the oldest. A
    value without an interval, also of the pairs, `is_early`.
    """

    value: float | None = None
    rounds: int = 0
    difference: Differential | None = None
    changed: float | None = None
    is_failing: bool = False
    is_stale: bool = False
    is_early: bool = False
    bars: str = ""

    @property
    def firm(self) -> Differential | None:
        """The difference, if it has an interval."""
        row = self.difference
        return row if row and None not in (row.shift, row.shift_low, row.shift_high) else None

    @property
    def mark(self) -> str:
        """The mark of a failing, changed or stale place or of an early value, otherwise a space."""
        marks = (
            (self.is_failing, FAILING_MARK),
            (self.changed is not None, CHANGED_MARK),
            (self.is_stale, STALE_MARK),
            (self.is_early, EARLY_MARK),
        )
        return next((mark for holds, mark in marks if holds), " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The cells by target and region; `regions` are those other than the baseline."""

    metric: Metric
    baseline: str
    regions: tuple[str, ...]
    targets: tuple[str, ...]
    cells: Mapping[Place, Cell] = field(default_factory=dict)

    def cell(self, target: str, region: str) -> Cell:
        """The cell of a target and region; an empty one before its first sample."""
        return self.cells.get((target, region), Cell())

    @property
    def has_every_value(self) -> bool:
        """Return whether each target has a median from each region."""
        places = [(target, region) for target in self.targets for region in (self.baseline, *self.regions)]
        return all(self.cell(*place).value is not None for place in places)

    @property
    def is_firm(self) -> bool:
        """Return whether each difference has an interval."""
        return all(self.cell(target, region).firm for target in self.targets for region in self.regions)

    @property
    def changed(self) -> tuple[Place, ...]:
        """The places whose difference has changed."""
        return tuple(place for place, cell in self.cells.items() if cell.changed is not None)

    @property
    def decimals(self) -> int:
        """The decimals of all values in their display unit."""
        values = [displayed(cell.value, self.metric.unit) for cell in self.cells.values()]
        return fitting_decimals(max((value for value in values if value is not None), default=0.0))


def matrix_of(
    standings: "Iterable[Standing]",
    differentials: Iterable[Differential],
    *,
    metric: Metric,
    baseline: str,
    regions: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
) -> Matrix:
    """The matrix of two answers about one window, of all their regions and targets unless these are given."""
    ranked = {(row.target, row.region): row for row in standings}
    compared = by_place(differentials)
    found = dict.fromkeys([*ranked, *compared])
    # Of another metric than those of a leaderboard, and of rounds that are too few for an interval on their own.
    paired, early = (
        {
            (row.target, region): value
            for row in compared.values()
            if (row.shift_low is not None and row.shift_high is not None) is is_firm
            for region, value in ((row.baseline, row.baseline_median), (row.region, row.region_median))
        }
        for is_firm in (True, False)
    )
    since_change = _medians_since_change(compared.values())
    names = dict.fromkeys(target for target, _ in found) if targets is None else targets
    others = sorted({region for _, region in found} - {baseline}) if regions is None else regions

    def cell(place: Place) -> Cell:
        standing, row = ranked.get(place), compared.get(place)
        own = median(standing, metric) if standing else None
        of_all = own.value if own else None
        values = (
            (of_all if has_interval(own) else None, False),
            (paired.get(place), False),
            (of_all, True),
            (early.get(place), True),
        )
        value, is_early = next((one for one in values if one[0] is not None), (None, False))
        if place in since_change:
            value, is_early = since_change[place], place not in paired
        rounds = (row.n or min(row.baseline_n, row.region_n)) if row else 0
        return Cell(value=value, rounds=rounds, difference=row, is_early=is_early)

    cells = {(target, region): cell((target, region)) for target in names for region in (baseline, *others)}
    return Matrix(metric=metric, baseline=baseline, regions=tuple(others), targets=tuple(names), cells=cells)


def _medians_since_change(rows: Iterable[Differential]) -> dict[Place, float]:
    """The medians of the places whose differences are of the rounds since a change only: that of the whole window is of
    neither level, and does not add up with the difference. The live page has the same rule in `matrix_model.js`.
    """
    found, of_target = dict[Place, float](), defaultdict[str, list[Differential]](list)
    for row in rows:
        if row.baseline_median is not None and row.region_median is not None:
            of_target[row.target].append(row)
            if row.since_at is not None:
                found[row.target, row.region] = row.region_median
    for target, own in of_target.items():
        most = max(own, key=lambda row: row.n)
        if all(row.since_at is not None for row in own):
            found[target, most.baseline] = most.baseline_median or 0.0
    return found


def by_place(rows: Iterable[Differential]) -> dict[Place, Differential]:
    """The rows by target and region."""
    return {(row.target, row.region): row for row in rows}


def median(row: "Standing", metric: Metric) -> Quantile | None:
    """The median of one of `METRICS` in a row of a leaderboard; `None` of another metric."""
    name = "tokens_per_second_p50" if metric is Metric.TOKENS_PER_SECOND else f"{metric.value}_p50_us"
    found: Quantile | None = getattr(row, name) if metric in METRICS else None
    return found


def arranged(matrix: Matrix, *, sort: str, name_part: str = "") -> Matrix:
    """The matrix with the targets whose names contain `name_part`, in one of the orders `SORTS`.

    `value` puts the best target of the baseline region first, `difference` the target that is worst in any other
    region; targets without a value are the last ones.
    """
    names = sorted(target for target in matrix.targets if name_part.lower() in target.lower())
    more_is_better = matrix.metric.more_is_better
    sign = -1 if more_is_better else 1

    def worst(target: str) -> float | None:
        rows = (matrix.cell(target, region).firm for region in matrix.regions)
        return max((sign * row.shift for row in rows if row and row.shift is not None), default=None)

    values = {
        target: worst(target) if sort == "difference" else matrix.cell(target, matrix.baseline).value
        for target in names
        if sort != "name"
    }
    known = {target: value for target, value in values.items() if value is not None}
    best = sorted(known, key=known.__getitem__, reverse=sort == "difference" or more_is_better)
    return replace(matrix, targets=(*best, *(target for target in names if target not in known)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The parts of a cell and its row: the decision takes `word` letters or a mark, and `bars` is their number.

    A `stacked` cell has the value above the difference, below the code of the region, `gap` spaces from the next one.
    Names have at most `name` letters.
    """

    name: int = 200
    stacked: bool = False
    gap: int = 0
    providers: bool = False
    error: bool = False
    word: int = 0
    marks: bool = False
    network: bool = False
    bars: int = 0


_STACKED = (Form(stacked=True, gap=2), Form(stacked=True))
# From the most informative to the narrowest.
FORMS = (
    Form(providers=True, error=True, word=_FULL_WORD, network=True),
    Form(providers=True, error=True, word=_FULL_WORD),
    Form(providers=True, error=True, word=_SHORT_WORD),
    Form(error=True, word=_SHORT_WORD),
    Form(error=True, marks=True),
    Form(marks=True),
    *_STACKED,
)
FORMS_WITH_BARS = (
    *(Form(providers=True, error=True, word=_FULL_WORD, bars=bars) for bars in (24, 12)),
    Form(providers=True, error=True, word=_SHORT_WORD, bars=6),
    Form(error=True, word=_SHORT_WORD, bars=6),
    Form(error=True, marks=True, bars=6),
    Form(marks=True, bars=6),
    Form(error=True, marks=True),
    Form(marks=True),
    *_STACKED,
)


def fitting_page(matrix: Matrix, title: str, *, width: int, forms: Iterable[Form] = FORMS) -> Page[str]:
    """The page of a matrix in the first of the `forms` with lines of at most `width` columns, or in the last one."""
    form, excess, found = FORMS[1], 0, page(matrix, title)
    for form in forms:
        found = page(matrix, title, form=form)
        excess = width_of(found) - width
        if excess <= 0:
            return found
    longest = max((len(str(found.columns[0].text(target)).rstrip()) for target in found.rows), default=0)
    return page(matrix, title, form=replace(form, name=max(_LEAST_NAME, longest - excess)))


def width_of(page: Page[str]) -> int:
    """The columns of a line of a matrix that is not folded."""
    texts = [
        [*column.heading.split("\n"), *(str(of(row)) for row in page.rows for of in (column.text, column.below) if of)]
        for column in page.columns
    ]
    return sum(max(map(len, of)) for of in texts) + page.gap * (len(texts) - 1)


def page(matrix: Matrix, title: str, *, form: Form = FORMS[1]) -> Page[str]:
    """The page of a matrix: a row per target, and a column per region with the value and the difference.

    The columns of the last regions are left out of a table that is too wide.
    """
    if form.stacked:
        return _stacked_page(matrix, title, form)
    text = _CellText(matrix, form)
    first = max(len(matrix.baseline), text.value_width)
    heading = _HEADINGS.get(matrix.metric, matrix.metric.value)

    def column(region: str, place: int) -> Column[str]:
        difference = f"{'difference' if form.error else 'diff'}{text.network_heading}"
        return Column(
            f"{region}\n{heading:>{text.value_width}}  {difference}",
            lambda row: text.compared(matrix.cell(row, region)),
            style=lambda row: _style(matrix.cell(row, region)),
            wide=True,
            priority=place,
        )

    target: Column[str] = Column("target", _names(matrix, form).__getitem__, wide=True)
    reference: Column[str] = Column(
        f"{matrix.baseline:>{first}}\n{heading:>{first}}",
        lambda row: text.reference(matrix.cell(row, matrix.baseline), first),
        style=lambda row: _reference_style(matrix.cell(row, matrix.baseline)),
        wide=True,
    )
    others = (column(region, place) for place, region in enumerate(matrix.regions, start=1))
    return Page(schema=SCHEMA, title=title, fields=(), columns=(target, reference, *others), rows=matrix.targets)


def _stacked_page(matrix: Matrix, title: str, form: Form) -> Page[str]:
    """The page of many regions: each has a column of numbers, with their marks between these columns."""
    text, codes = _CellText(matrix, form), region_codes((matrix.baseline, *matrix.regions))

    def column(region: str, place: int) -> Column[str]:
        cells = {target: text.stacked(matrix.cell(target, region)) for target in matrix.targets}
        width = max(len(codes[region]), *(len(part) - 1 for parts in cells.values() for part in parts), 0)
        return Column(
            f"{codes[region]:>{width}}",
            lambda row: f"{cells[row][0]:>{width + 1}}",
            below=(lambda row: f"{cells[row][1]:>{width + 1}}") if place else None,
            style=lambda row: (_style if place else _reference_style)(matrix.cell(row, region)),
            wide=True,
            priority=place,
        )

    names = _names(matrix, form)
    target: Column[str] = Column("target", lambda row: f"{names[row]}  ", wide=True)
    columns = (column(region, place) for place, region in enumerate(codes))
    legend = ", ".join(f"{code} = {region}" for region, code in codes.items() if code != region)
    return Page(
        schema=SCHEMA,
        title=title,
        fields=(),
        columns=(target, *columns),
        rows=matrix.targets,
        gap=form.gap,
        notes=(legend, f"{matrix.metric}, and below it the difference from {matrix.baseline}; {MARKS}"),
    )


def region_codes(regions: Sequence[str]) -> dict[str, str]:
    """A short name for each region, in the manner of the zones of AWS: `apse1` for `ap-southeast-1`.

    Directions are initials, and other words have two letters, or as many as tell the regions apart.
    """
    for letters in range(2, 9):
        codes = {region: _code(region, letters) for region in regions}
        if len({*codes.values()}) == len(codes):
            return codes
    return {region: region for region in regions}


def _code(region: str, letters: int) -> str:
    words = _WORD.findall(_DIRECTION.sub(lambda found: found[0][0], region.lower()))
    return region if len(region) <= _LONGEST_CODE else "".join(word[:letters] for word in words)


def _names(matrix: Matrix, form: Form) -> dict[str, str]:
    """The name of each target: without its provider if the form has none and no other target has the same model."""
    models = Counter(map(model_part, matrix.targets))
    return {
        target: shortened(model if models[model] == 1 and not form.providers else target, form.name)
        for target, model in zip(matrix.targets, map(model_part, matrix.targets), strict=True)
    }


def _style(cell: Cell) -> str:
    if cell.mark in (FAILING_MARK, CHANGED_MARK):
        return "red"
    return _STYLES.get(cell.firm.decision, "") if cell.firm else "dim"


def _reference_style(cell: Cell) -> str:
    return "dim" if cell.is_early else ""


class _CellText:
    """The texts of the cells in one form, in parts of equal width."""

    def __init__(self, matrix: Matrix, form: Form) -> None:
        self._form, self._unit = form, matrix.metric.unit
        self._decimals = 1 if matrix.metric.more_is_better else 0
        cells = matrix.cells.values()
        firm = [cell.firm for cell in cells if cell.firm]
        self.value_width = max(
            _LEAST_VALUE, 5 * matrix.metric.more_is_better, *(len(self._value(one)) for one in cells), 0
        )
        self._shift_width = max(_LEAST_SHIFT, *(len(self._signed(row.shift)) for row in firm), 0)
        self._error_width = max(_LEAST_ERROR, *(1 + len(self._error(row)) for row in firm), 0)
        has_network = any(abs(row.network_shift or 0) >= 1000 for row in firm)  # noqa: PLR2004  # 1 ms
        self._has_network = form.network and has_network
        error = 1 + self._error_width if form.error else 0
        self._width = self._shift_width + error + (1 + form.word if form.word else 0)
        self.network_heading = f"{'':{max(self._width - 10, 0)}}  network" if self._has_network else ""

    def reference(self, cell: Cell, width: int) -> str:
        """The text of the baseline's cell."""
        return f"{self._value(cell):>{width}}{cell.mark}{self._bars(cell)}".rstrip()

    def compared(self, cell: Cell) -> str:
        """The text of the cell of another region."""
        row, mark = cell.firm, cell.mark
        if row and mark == " " and self._form.marks:
            mark = DECISION_MARKS.get(row.decision, " ")
        difference = self._difference(row) if row else self._warming_up(cell)
        network = f"  {self._signed(row.network_shift if row else None):>7}" if self._has_network else ""
        text = f"{self._value(cell):>{self.value_width}}{mark} {difference:<{self._width}}"
        return f"{text}{network}{self._bars(cell)}".rstrip()

    def stacked(self, cell: Cell) -> tuple[str, str]:
        """The value of a cell with its mark; and its difference with the mark of the decision, or its rounds so far."""
        row = cell.difference
        difference = f"{_progress(cell)} "
        if row is not None and row.shift is not None:
            mark = DECISION_MARKS.get(row.decision, " ") if cell.firm else EARLY_MARK
            difference = f"{self._signed(row.shift)}{mark}"
        return f"{self._value(cell)}{cell.mark}", difference

    def _value(self, cell: Cell) -> str:
        return number(displayed(cell.value, self._unit), decimals=self._decimals)

    def _signed(self, shift: float | None) -> str:
        return number(displayed(shift, self._unit), signed=True, decimals=self._decimals)

    def _error(self, row: Differential) -> str:
        """The larger distance of a bound of the interval from the difference, rounded up."""
        shift, low, high = row.shift or 0.0, row.shift_low or 0.0, row.shift_high or 0.0
        steps = ceil((displayed(max(high - shift, shift - low), self._unit) or 0.0) * 10**self._decimals)
        return number(max(1, steps) / 10**self._decimals, decimals=self._decimals)

    def _difference(self, row: Differential) -> str:
        error = f" {'±' + self._error(row):<{self._error_width}}" if self._form.error else ""
        word = row.decision.value if self._form.word == _FULL_WORD else _SHORT.get(row.decision, row.decision.value)
        return f"{self._signed(row.shift):>{self._shift_width}}{error}{' ' + word if self._form.word else ''}"

    def _warming_up(self, cell: Cell) -> str:
        rounds, row, words = _progress(cell), cell.difference, "warming up"
        if row is not None and row.since_at is not None:
            words = "changing"
        elif row is not None and row.shift is not None:
            words = f"{self._signed(row.shift):>{self._shift_width}}?"
        words = f"{words} {rounds}"
        return words if len(words) <= self._width else rounds

    def _bars(self, cell: Cell) -> str:
        bars = self._form.bars
        return f" {cell.bars[-bars:]:>{bars}}" if bars else ""


def _progress(cell: Cell) -> str:
    """`3/6`: the rounds so far, of those that an interval needs."""
    return f"{min(cell.rounds, ROUNDS_NEEDED)}/{ROUNDS_NEEDED}"


def note_of(cell: Cell, matrix: Matrix, *, now_at: int) -> str:
    """The difference of a cell in a few words: `+191`, `+12?` if undecided, `same`; empty without one. The live page
    has the same rule in `matrix.js`.
    """
    row = cell.difference
    if row is None:
        return ""
    if row.decision is Decision.EQUIVALENT:
        return "same"
    if row.decision is Decision.MIXED or row.shift is None:
        return row.decision.value
    mark = EARLY_MARK if row.decision is Decision.UNDECIDED else ""
    since = "" if row.since_at is None else f" since {moment(row.since_at, now_at=now_at)}"
    return f"{number(displayed(row.shift, matrix.metric.unit), signed=True, decimals=matrix.decimals)}{mark}{since}"
