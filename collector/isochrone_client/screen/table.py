"""A board as a table: a line per target, a block of columns per region. Pure.

The least important columns are left out if the screen is too narrow for all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from rich.text import Text

from isochrone_client.formats import display_unit, displayed, number
from isochrone_client.screen.board import ROUNDS_NEEDED, Board, Cell
from isochrone_wire.answers import Decision

CHANGED_MARK = "▲"
FAILING_MARK = "✗"
STALE_MARK = "○"
DECISION_MARKS = {Decision.EQUIVALENT: "=", Decision.MIXED: "~", Decision.UNDECIDED: "?"}
_STYLE_OF = {Decision.FASTER: "green", Decision.SLOWER: "red"}
_MARK_STYLES = {CHANGED_MARK: "bold red", FAILING_MARK: "bold red", STALE_MARK: "dim"}
GAP = "  "
# Least widths, so that columns do not move with each digit.
_LEAST_VALUE, _LEAST_SHIFT, _LEAST_ERROR, _NETWORK = 4, 5, 4, 7
# Room for every decision in full, or in a short form.
_FULL_WORD, _SHORT_WORD = 10, 6
_SHORT = {Decision.EQUIVALENT: "equal", Decision.UNDECIDED: "?"}
MOST_BARS = 24
_FEW_BARS, _FEWEST_BARS = 12, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The metric's heading, its unit on the wire, and the decimals of its values and differences on the screen."""

    heading: str = "ttft"
    unit: str = "us"
    decimals: int = 0

    @property
    def display_unit(self) -> str:
        """The unit in which people read values."""
        return display_unit(self.unit)

    def text(self, value: float | None, *, signed: bool = False) -> str:
        """A value or difference in the unit in which people read it."""
        return number(displayed(value, self.unit), signed=signed, decimals=self.decimals)

    def error(self, cell: Cell) -> str:
        """The larger distance of a bound of the interval from the difference, rounded up."""
        shift, low, high = cell.shift or 0.0, cell.low or 0.0, cell.high or 0.0
        steps = ceil((displayed(max(high - shift, shift - low), self.unit) or 0.0) * 10**self.decimals)
        return number(max(1, steps) / 10**self.decimals, decimals=self.decimals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The columns of a table: targets with their provider or models only, errors, the decision in `word` letters or as
    a mark, the network's part of a difference, and the newest `bars`.
    """

    providers: bool = False
    error: bool = False
    word: int = 0
    marks: bool = False
    network: bool = False
    bars: int = 0

    def names(self, targets: Sequence[str]) -> list[str]:
        """The targets as their lines name them: with the provider also where two have the same model."""
        models = [target.partition("/")[2] or target for target in targets]
        return [
            target if self.providers or models.count(model) > 1 else model
            for target, model in zip(targets, models, strict=True)
        ]


# From the most informative to the narrowest.
FORMS = (
    Form(providers=True, error=True, word=_FULL_WORD, network=True),
    Form(providers=True, error=True, word=_FULL_WORD),
    Form(providers=True, error=True, word=_SHORT_WORD),
    Form(error=True, word=_SHORT_WORD),
    Form(error=True),
    Form(),
)
FORMS_WITH_BARS = (
    Form(providers=True, error=True, word=_FULL_WORD, bars=MOST_BARS),
    Form(providers=True, error=True, word=_FULL_WORD, bars=_FEW_BARS),
    Form(providers=True, error=True, word=_SHORT_WORD, bars=_FEWEST_BARS),
    Form(error=True, word=_SHORT_WORD, bars=_FEWEST_BARS),
    Form(error=True, marks=True, bars=_FEWEST_BARS),
    Form(marks=True, bars=_FEWEST_BARS),
    Form(error=True, marks=True),
    Form(marks=True),
)
_TTFT = Scale()


def table(board: Board, *, title: str, width: int, forms: Iterable[Form] = FORMS, scale: Scale = _TTFT) -> list[Text]:
    """The board as lines, two of headings and one per target: the first of the `forms` with at most `width` columns, or
    the last one of them.
    """
    narrowest: list[Text] = []
    for form in forms:
        if form.network and not board.has_network:
            continue
        narrowest = _Columns(board=board, form=form, scale=scale).lines(title)
        if max(line.cell_len for line in narrowest) <= width:
            break
    return narrowest


def legend(parts: Sequence[str], width: int) -> Text:
    """The meaning of the signs in a table: as many of the parts as there is room for."""
    texts = ("   ".join(parts[:count]) for count in range(len(parts), 0, -1))
    return Text(next((text for text in texts if len(text) <= width), ""), style="dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The columns of one form of a board."""

    board: Board
    form: Form
    scale: Scale

    def lines(self, title: str) -> list[Text]:
        """The lines of the table."""
        board, form = self.board, self.form
        names = form.names(board.targets)
        name_width = max(len(title), *map(len, names), 0)
        first = max(len(board.baseline), self._value_width)
        more = " " * (self._has_own_mark + (1 + form.bars if form.bars else 0))
        blocks = [max(len(region), len(self._heading)) for region in board.regions]
        regions = [f"{region:<{block}}" for region, block in zip(board.regions, blocks, strict=True)]
        headings = [f"{self._heading:<{block}}" for block in blocks]
        lines = [
            Text(GAP.join((f"{title:<{name_width}}", f"{board.baseline:>{first}}{more}", *regions)), style="bold"),
            Text(GAP.join((" " * name_width, f"{self.scale.heading:>{first}}{more}", *headings)), style="dim"),
        ]
        for target, name in zip(board.targets, names, strict=True):
            line = Text(f"{name:<{name_width}}{GAP}")
            line.append_text(self._reference(board.cell(target, board.baseline), first))
            for region, block in zip(board.regions, blocks, strict=True):
                part = self._block(board.cell(target, region))
                line.append(GAP).append_text(part).append(" " * (block - part.cell_len))
            lines.append(line)
        for line in lines:
            line.rstrip()
        return lines

    @property
    def _has_own_mark(self) -> bool:
        """Return whether the baseline's column has marks."""
        return bool(self.form.bars or self.form.marks)

    @property
    def _value_width(self) -> int:
        return max(
            _LEAST_VALUE, len(self.scale.heading), *(len(self._value(cell)) for cell in self.board.cells.values())
        )

    @property
    def _shift_width(self) -> int:
        shifts = (self.scale.text(cell.shift, signed=True) for cell in self.board.cells.values() if cell.is_firm)
        return max(_LEAST_SHIFT, *map(len, shifts), 0)

    @property
    def _error_width(self) -> int:
        errors = (self.scale.error(cell) for cell in self.board.cells.values() if cell.is_firm)
        return max(_LEAST_ERROR, *(1 + len(error) for error in errors), 0)

    @property
    def _difference_width(self) -> int:
        form = self.form
        return self._shift_width + (1 + self._error_width if form.error else 0) + (1 + form.word if form.word else 0)

    @property
    def _heading(self) -> str:
        """The heading of one region's columns."""
        words = "difference" if self.form.error else "diff"
        network = f"{GAP}{'network':>{_NETWORK}}" * self.form.network
        bars = " " * (1 + self.form.bars if self.form.bars else 0)
        return f"{self.scale.heading:>{self._value_width}}  {words:<{self._difference_width}}{network}{bars}"

    def _value(self, cell: Cell) -> str:
        return self.scale.text(cell.value)

    def _reference(self, cell: Cell, width: int) -> Text:
        """The columns of the baseline."""
        text = Text(f"{self._value(cell):>{width}}")
        if self._has_own_mark:
            mark = _alarm(cell)
            text.append(mark, style=_MARK_STYLES.get(mark, ""))
        if self.form.bars:
            text.append(f" {self._bars(cell)}", style="cyan")
        return text

    def _block(self, cell: Cell) -> Text:
        """One region's columns of a target."""
        mark = _alarm(cell)
        if mark == " " and self.form.marks and cell.is_firm:
            mark = DECISION_MARKS.get(cell.decision, " ")
        difference = self._difference(cell) if cell.is_firm else self._warming_up(cell)
        style = _STYLE_OF.get(cell.decision, "") if cell.is_firm else "dim"
        text = Text(f"{self._value(cell):>{self._value_width}}")
        text.append(f"{mark} {difference:<{self._difference_width}}", style=_MARK_STYLES.get(mark, style))
        if self.form.network:
            text.append(f"{GAP}{self.scale.text(cell.network_shift, signed=True):>{_NETWORK}}")
        if self.form.bars:
            text.append(f" {self._bars(cell)}", style="cyan")
        return text

    def _bars(self, cell: Cell) -> str:
        return f"{cell.bars[-self.form.bars :]:>{self.form.bars}}"

    def _difference(self, cell: Cell) -> str:
        form = self.form
        shift = f"{self.scale.text(cell.shift, signed=True):>{self._shift_width}}"
        error = f" {'±' + self.scale.error(cell):<{self._error_width}}" if form.error else ""
        word = cell.decision if form.word == _FULL_WORD else _SHORT.get(cell.decision, cell.decision)
        return f"{shift}{error} {word}" if form.word else f"{shift}{error}"

    def _warming_up(self, cell: Cell) -> str:
        rounds = f"{min(cell.rounds, ROUNDS_NEEDED)}/{ROUNDS_NEEDED}"
        words = f"{'changing' if cell.is_changing else 'warming up'} {rounds}"
        return words if len(words) <= self._difference_width else rounds


def _alarm(cell: Cell) -> str:
    """The mark of a failing, changed or stale place, otherwise a space."""
    if cell.is_failing:
        return FAILING_MARK
    return CHANGED_MARK if cell.changed is not None else STALE_MARK if cell.is_stale else " "
