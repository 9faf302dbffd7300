"""Pages as tables for a screen of 60 to 200 columns.

While a line is too long, names get their shorter texts, then columns are left out by their priority, and in the end
names become narrower than their words. Columns of priority 0 are never left out. No word is broken as long as it fits.
There are no rules or boxes, so piped output looks like the screen without the colours.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Generic

from isochrone_client.formats import UNKNOWN
from isochrone_client.render.page import Column, Page, RenderOptions, Row, Table, cell_texts
from isochrone_wire.text import printable

# Marks beyond ASCII that take one column; other characters are looked up.
_NARROW = frozenset("–—…→↑↓±≤≥×·µ²³ÄÖÜäöüß’“”")  # noqa: RUF001  # signs that tables contain
_WORD = re.compile(r"(?:[^ ]*\d (?:%|ms|s|min|h|d)(?![^ ,.;:)\]])[^ ]*|[^ ]+) *")
_CONTENT = re.compile(r"[^\W0_]|[▁-█]")


def text_width(text: str) -> int:
    """The number of terminal columns of a text without control characters."""
    if text.isascii() or all(mark < "\x7f" or mark in _NARROW for mark in text):
        return len(text)
    # Loaded only for a text that needs it: the import takes as long as a question to the collector.
    from rich.cells import cell_len  # noqa: PLC0415

    return cell_len(text)


def words(text: str) -> list[str]:
    """The parts of a text that are kept whole: words, and numbers with their unit (`31 ms`)."""
    return [word.rstrip(" ") for word in _WORD.findall(text)]


def fold(text: str, width: int, *, shorten: bool = False) -> list[str]:
    """Fold `text` into lines of at most `width` columns (one wide character may exceed a width of 1).

    A line breaks between words. A word that is longer than a line is folded after a `/`; what is still too long is
    broken where the line is full, or with `shorten` loses its middle.
    """
    if text_width(text) <= width:
        return [text]
    lines = [""]
    for word in _WORD.findall(text):
        if text_width(lines[-1] + word.rstrip(" ")) <= width:
            lines[-1] += word
        else:
            lines += _folded_word(word.rstrip(" "), width, shorten=shorten)
            lines[-1] += " " * (len(word) - len(word.rstrip(" ")))
    return [line.rstrip(" ") for line in lines if line.strip(" ")] or [""]


def _folded_word(word: str, width: int, *, shorten: bool) -> list[str]:
    lines = [""]
    for part in re.findall(r"[^/]*/|[^/]+", word):
        if text_width(lines[-1] + part) <= width:
            lines[-1] += part
        else:
            while not shorten and text_width(part) > width:
                lines.append(_first(part, width) or part[0])
                part = part[len(lines[-1]) :]  # noqa: PLW2901  # what is left of it
            lines.append(shortened(part, width))
    return list(filter(None, lines))


def shortened(word: str, width: int) -> str:
    """The beginning and the end of a word, with an ellipsis in place of what does not fit between."""
    if text_width(word) <= width:
        return word
    end = _first(word[::-1], (width - 1) // 2)[::-1]
    return f"{_first(word, width - 1 - text_width(end))}…{end}"


def _first(text: str, width: int) -> str:
    end = min(len(text), max(width, 0))
    while text_width(text[:end]) > width:
        end -= 1
    return text[:end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The widths that a column can have: `natural` is that of its longest text, `least` that of its longest word.

    Only `flexible` columns are folded. `short` is the extent with the shorter texts, if the column has any.
    """

    natural: int
    least: int
    priority: int = 0
    flexible: bool = False
    short: "Extent | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One column of a table: its index, its width, and whether it has its shorter texts."""

    index: int
    width: int
    is_short: bool = False


def arrange(extents: Sequence[Extent], width: int, gap: int) -> tuple[Place, ...]:
    """The columns that are shown, from left to right, `gap` spaces apart."""
    short = [extent.short or extent for extent in extents]
    kept = list(range(len(extents)))
    if _line_width(extents, gap) > width:
        # The last of several columns with the same priority is left out first.
        optional = sorted((index for index in kept if short[index].priority), key=lambda index: short[index].priority)
        while optional and _line_width([short[index] for index in kept], gap) > width:
            kept.remove(optional.pop())
    is_short = _line_width([extents[index] for index in kept], gap) > width
    chosen = [short[index] if is_short else extents[index] for index in kept]
    return tuple(
        Place(index=index, width=wide, is_short=is_short and extents[index].short is not None)
        for index, wide in zip(kept, _widths(chosen, width, gap), strict=True)
    )


def _line_width(extents: Sequence[Extent], gap: int) -> int:
    return sum(extent.least for extent in extents) + gap * max(len(extents) - 1, 0)


def _widths(extents: Sequence[Extent], width: int, gap: int) -> list[int]:
    """The widths of columns that share a line: what the words leave is divided by what the columns would like."""
    room = width - gap * max(len(extents) - 1, 0)
    least = _squeezed(extents, room)
    spare = room - sum(least)
    wishes = [
        max(extent.natural - own, 0) if extent.flexible else 0 for extent, own in zip(extents, least, strict=True)
    ]
    if spare <= 0 or not any(wishes):
        return least
    return [own + min(wish, spare * wish // sum(wishes)) for own, wish in zip(least, wishes, strict=True)]


def _squeezed(extents: Sequence[Extent], room: int) -> list[int]:
    """The least widths, the widest of them reduced until they fit: of names first, at last of any column."""
    least = [extent.least for extent in extents]
    flexible = [place for place, extent in enumerate(extents) if extent.flexible]
    for places, floor in ((flexible, 8), (range(len(extents)), 1)):
        while sum(least) > room:
            widest = max(places, key=least.__getitem__, default=None)
            if widest is None or least[widest] <= floor:
                break
            least[widest] -= 1
    return least


MIN_WIDTH, MAX_WIDTH = 60, 200
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def whole(page: Page[Row], options: RenderOptions) -> str:
    """Title, one table per group, notes; only its `empty` for a page without rows."""
    grid = _Grid(page, tuple(page.tables()), options)
    if not page.rows:
        return grid.paragraph(page.empty, "")
    blocks = [grid.paragraph(page.title, "bold")]
    for table in grid.tables:
        blocks += [grid.paragraph(table.heading, "bold") + grid.headings() + grid.rows(table)]
    notes = grid.notes(*grid.left_out(), *page.notes, *grid.legend())
    return "\n".join([*blocks, notes] if notes else blocks)


def opening(page: Page[Row], options: RenderOptions) -> str:
    """The headings, the first rows and their notes."""
    grid = _continued(page, options)
    return grid.headings() + grid.rows(grid.tables[0]) + grid.notes(*page.notes, *grid.left_out())


def more(page: Page[Row], options: RenderOptions) -> str:
    """More rows under the headings written before, and their notes."""
    if not page.rows:
        return ""
    grid = _continued(page, options)
    return grid.rows(grid.tables[0]) + grid.notes(*page.notes)


def _continued(page: Page[Row], options: RenderOptions) -> "_Grid[Row]":
    """The rows of a text that continues: the reserved widths keep later rows below the same headings."""
    # Later parts of a continued text must look like the first one.
    cells = cell_texts(page.columns, page.rows, decimals=1)
    return _Grid(page, (Table(heading="", rows=page.rows, cells=cells),), options, continued=True)


class _Grid(Generic[Row]):
    """The tables of a page with the places of the columns shown, and the indices of those left out: too `wide`, or
    `blank` (0 or unknown throughout).
    """

    def __init__(
        self, page: Page[Row], tables: tuple[Table[Row], ...], options: RenderOptions, *, continued: bool = False
    ) -> None:
        self._page, self._columns, self.tables, self._options = page, page.columns, tables, options
        self._width = min(max(options.width, MIN_WIDTH), MAX_WIDTH)
        extents = [self._extent(index, continued=continued) for index in range(len(self._columns))]
        kept = list(range(len(extents)))
        if options.wide:
            self._places = tuple(Place(index=index, width=extents[index].natural) for index in kept)
        else:
            if not continued:
                kept = [index for index in kept if not self._columns[index].priority or self._has_content(index)]
            places = arrange([extents[index] for index in kept], self._width, page.gap)
            self._places = tuple(replace(place, index=kept[place.index]) for place in places)
        shown = {place.index for place in self._places}
        self._wide = [index for index in kept if index not in shown]
        self._blank = [index for index in range(len(extents)) if index not in kept]

    def headings(self) -> str:
        lines = [_heading_lines(self._columns[place.index]) for place in self._places]
        return self._lines(lines, ["bold"] * len(lines))

    def rows(self, table: Table[Row]) -> str:
        text = []
        before: tuple[str, ...] | None = None
        for row, cells in zip(table.rows, table.cells, strict=True):
            lines = []
            for place in self._places:
                column, cell = self._columns[place.index], cells[place.index]
                if column.once and before is not None and before[place.index] == cell:
                    cell = ""
                elif place.is_short and column.short is not None:
                    cell = column.short(row)
                folded = fold(printable(cell), place.width, shorten=True)
                lines.append([*folded, column.below(row)] if column.below else folded)
            text.append(self._lines(lines, [self._columns[place.index].style(row) for place in self._places]))
            before = cells
        return "".join(text)

    def notes(self, *texts: str) -> str:
        return "".join(self.paragraph(text, "dim") for text in texts)

    def paragraph(self, text: str, style: str) -> str:
        lines = fold(printable(text), self._width) if text else []
        return "".join(f"{self._styled(line, style)}\n" for line in lines)

    def left_out(self) -> Iterator[str]:
        """The sentence that names the columns left out, if there are any."""
        names = [column.name for column in self._columns]
        titles = [one.title if names.count(one.name) > 1 else one.name for one in self._columns]
        shortened = dict.fromkeys(self._columns[place.index].short_of for place in self._places if place.is_short)
        too_wide = [*shortened, *(titles[index] for index in self._wide)]
        blank = [titles[index] for index in self._blank]
        reasons = ((f"at {self._width} columns", too_wide), (f"0 or {UNKNOWN} in every row", blank))
        parts = [f"{reason}: {', '.join(found)}" for reason, found in reasons if found]
        if parts:
            hint = ["--wide shows all"] if self._options.wide is not None else []
            yield f"left out{'' if too_wide else ','} {'; '.join([*parts, *hint])}"

    def legend(self) -> Iterator[str]:
        """The meaning of an unknown value, if one is shown and no note of the page gives a closer one."""
        cells = (line[place.index] for table in self.tables for line in table.cells for place in self._places)
        is_there = any(UNKNOWN in cell.split() for cell in cells)
        if is_there and not any(note.startswith(f"{UNKNOWN}:") for note in self._page.notes):
            yield f"{UNKNOWN}: not known"

    def _has_content(self, index: int) -> bool:
        """True with a letter, a bar or a digit other than 0."""
        return any(_CONTENT.search(line[index]) for table in self.tables for line in table.cells)

    def _extent(self, index: int, *, continued: bool) -> Extent:
        column = self._columns[index]
        below = [column.below(row) for table in self.tables for row in table.rows] if column.below else []
        full = _extent_of(column, [*below, *(line[index] for table in self.tables for line in table.cells)])
        if continued and not self._options.wide:
            if column.reserved is None:
                return full
            # Later rows fold a longer name; a number is never folded.
            least = column.reserved if column.is_text else max(column.reserved, full.natural)
            return replace(full, least=least, natural=MAX_WIDTH if column.prose else least)
        if column.short is None:
            return full
        short = [column.short(row) for table in self.tables for row in table.rows]
        return replace(full, short=_extent_of(column, short))

    def _lines(self, cells: Sequence[list[str]], styles: Sequence[str]) -> str:
        """One row of a table, with as many lines as its highest cell."""
        lines = []
        for parts in zip_longest(*cells, fillvalue=""):
            pieces = []
            for place, part, style in zip(self._places, parts, styles, strict=True):
                padding, styled = " " * (place.width - text_width(part)), self._styled(part, style)
                pieces.append(styled + padding if self._columns[place.index].is_text else padding + styled)
            lines.append(f"{(' ' * self._page.gap).join(pieces).rstrip()}\n")
        return "".join(lines)

    def _styled(self, text: str, style: str) -> str:
        code = STYLES.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if self._options.colour and code and text else text


def _extent_of(column: Column[Row], cells: Sequence[str]) -> Extent:
    texts = [*_heading_lines(column), *map(printable, cells)]
    natural = max(map(text_width, texts))
    longest = max((text_width(word) for text in texts for word in words(text)), default=0)
    least = max(longest, min(natural, 20)) if column.prose else natural
    return Extent(natural=natural, least=least, priority=column.priority, flexible=column.is_text)


def _heading_lines(column: Column[Row]) -> list[str]:
    """The heading and, below it or behind its second line, the unit."""
    first, _, second = column.heading.partition("\n")
    return [line for line in (first, ", ".join(filter(None, (second, column.unit)))) if line] or [""]
