"""Pages as tables for a screen of 60 to 200 columns.

While a line is too long, names get their shorter texts, then columns are left out by their priority, and in the end
names become narrower than their words. Columns of priority 0 are never left out. No word is broken as long as it fits.
There are no rules or boxes, so piped output looks like the screen without the colours.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from isochrone_client.formats import UNKNOWN
from isochrone_client.render.page import Column, Page, RenderOptions, Row, Table, cell_texts
from isochrone_wire.text import printable

# Marks beyond ASCII that take one column; other characters are looked up.
_NARROW = frozenset("–—…→↑↓±≤≥×·µ²³ÄÖÜäöüß’“”")  # noqa: RUF001  # signs that tables contain
_WORD = re.compile(r"(?:[^ ]*\d (?:%|ms|s|min|h|d)(?![^ ,.;:)\]])[^ ]*|[^ ]+) *")
_NAME_PART = re.compile(r"[^/]*/|[^/]+")
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
    for part in _NAME_PART.findall(word):
        if text_width(lines[-1] + part) <= width:
            lines[-1] += part
        else:
            lines += [shortened(part, width)] if shorten else _broken(part, width)
    return list(filter(None, lines))


def shortened(word: str, width: int) -> str:
    """The beginning and the end of a word, with an ellipsis in place of what does not fit between."""
    if text_width(word) <= width:
        return word
    end = _first(word[::-1], (width - 1) // 2)[::-1]
    return f"{_first(word, width - 1 - text_width(end))}…{end}"


def _broken(word: str, width: int) -> Iterator[str]:
    while word:
        first = _first(word, width) or word[0]
        yield first
        word = word[len(first) :]


def _first(text: str, width: int) -> str:
    """The beginning of a text that fits."""
    end = min(len(text), max(width, 0))
    while text_width(text[:end]) > width:
        end -= 1
    return text[:end]


GAP = 2
_LEAST_NAME = 8


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


def arrange(extents: Sequence[Extent], width: int) -> tuple[Place, ...]:
    """The columns that are shown, from left to right."""
    short = [extent.short or extent for extent in extents]
    kept = list(range(len(extents)))
    if _line_width(extents) > width:
        # The last of several columns with the same priority is left out first.
        optional = sorted((index for index in kept if short[index].priority), key=lambda index: short[index].priority)
        while optional and _line_width([short[index] for index in kept]) > width:
            kept.remove(optional.pop())
    is_short = _line_width([extents[index] for index in kept]) > width
    chosen = [short[index] if is_short else extents[index] for index in kept]
    return tuple(
        Place(index=index, width=wide, is_short=is_short and extents[index].short is not None)
        for index, wide in zip(kept, _widths(chosen, width), strict=True)
    )


def everything(extents: Sequence[Extent]) -> tuple[Place, ...]:
    """All columns with their natural widths."""
    return tuple(Place(index=index, width=extent.natural) for index, extent in enumerate(extents))


def _line_width(extents: Sequence[Extent]) -> int:
    return sum(extent.least for extent in extents) + GAP * max(len(extents) - 1, 0)


def _widths(extents: Sequence[Extent], width: int) -> list[int]:
    """The widths of columns that share a line: what the words leave is divided by what the columns would like."""
    least = _squeezed(extents, width)
    spare = width - sum(least) - GAP * max(len(least) - 1, 0)
    wishes = [
        max(extent.natural - own, 0) if extent.flexible else 0 for extent, own in zip(extents, least, strict=True)
    ]
    if spare <= 0 or not any(wishes):
        return least
    return [own + min(wish, spare * wish // sum(wishes)) for own, wish in zip(least, wishes, strict=True)]


def _squeezed(extents: Sequence[Extent], width: int) -> list[int]:
    """The least widths, the widest of them reduced until the line fits: of names first, at last of any column."""
    least = [extent.least for extent in extents]
    flexible = [place for place, extent in enumerate(extents) if extent.flexible]
    for places, floor in ((flexible, _LEAST_NAME), (range(len(extents)), 1)):
        while sum(least) + GAP * max(len(least) - 1, 0) > width:
            widest = max(places, key=least.__getitem__, default=None)
            if widest is None or least[widest] <= floor:
                break
            least[widest] -= 1
    return least


MIN_WIDTH, MAX_WIDTH = 60, 200
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_LEAST_PROSE = 20
# Later parts of a continued text must look like the first one.
_CONTINUED_DECIMALS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The places of the columns shown; the indices of those left out: too wide, or blank (0 or unknown throughout)."""

    places: tuple[Place, ...]
    wide: tuple[int, ...] = ()
    blank: tuple[int, ...] = ()


def whole(page: Page[Row], options: RenderOptions) -> str:
    """Title, one table per group, notes; empty for a page without rows."""
    if not page.rows:
        return ""
    tables = tuple(page.tables())
    layout = _layout(page.columns, tables, options)
    blocks = [_paragraph(page.title, options, style="bold")]
    for table in tables:
        heading = _paragraph(table.heading, options, style="bold")
        blocks.append(heading + _headings(page.columns, layout, options) + _rows(page.columns, table, layout, options))
    notes = _notes((*_left_out(page.columns, layout, options), *page.notes, *_legend(page, layout, tables)), options)
    return "\n".join([*blocks, notes] if notes else blocks)


def opening(page: Page[Row], options: RenderOptions) -> str:
    """The headings, the first rows and their notes."""
    layout = _continued_layout(page, options)
    left_out = _notes(_left_out(page.columns, layout, options), options)
    return _headings(page.columns, layout, options) + _portion(page, layout, options) + left_out


def more(page: Page[Row], options: RenderOptions) -> str:
    """More rows under the headings written before, and their notes."""
    return _portion(page, _continued_layout(page, options), options) if page.rows else ""


def _portion(page: Page[Row], layout: _Layout, options: RenderOptions) -> str:
    return _rows(page.columns, _portion_table(page), layout, options) + _notes(page.notes, options)


def _portion_table(page: Page[Row]) -> Table[Row]:
    return Table(heading="", rows=page.rows, cells=cell_texts(page.columns, page.rows, decimals=_CONTINUED_DECIMALS))


def _layout(columns: tuple[Column[Row], ...], tables: Sequence[Table[Row]], options: RenderOptions) -> _Layout:
    """The layout of all tables of a page."""
    extents = [_extent(column, index, tables) for index, column in enumerate(columns)]
    if options.wide:
        return _Layout(places=everything(extents))
    # Without a letter, a bar or a digit other than 0: nothing, an unknown value, a zero.
    blank = tuple(
        index
        for index, column in enumerate(columns)
        if column.priority and not any(_CONTENT.search(line[index]) for table in tables for line in table.cells)
    )
    return _arranged(extents, blank, options)


def _continued_layout(page: Page[Row], options: RenderOptions) -> _Layout:
    """The layout of a text that continues: the reserved widths, so that later rows are below the same headings."""
    table = _portion_table(page)
    extents = [_extent(column, index, [table]) for index, column in enumerate(page.columns)]
    if options.wide:
        return _Layout(places=everything(extents))
    reserved = [_reserved(column, extent) for column, extent in zip(page.columns, extents, strict=True)]
    return _arranged(reserved, (), options)


def _arranged(extents: Sequence[Extent], blank: tuple[int, ...], options: RenderOptions) -> _Layout:
    kept = [index for index in range(len(extents)) if index not in blank]
    places = tuple(
        replace(place, index=kept[place.index])
        for place in arrange([extents[index] for index in kept], _width(options))
    )
    shown = {place.index for place in places}
    return _Layout(places=places, wide=tuple(index for index in kept if index not in shown), blank=blank)


def _extent(column: Column[Row], index: int, tables: Sequence[Table[Row]]) -> Extent:
    full = _extent_of(column, [line[index] for table in tables for line in table.cells])
    if column.short is None:
        return full
    return replace(full, short=_extent_of(column, [column.short(row) for table in tables for row in table.rows]))


def _extent_of(column: Column[Row], cells: Sequence[str]) -> Extent:
    texts = [*_heading_lines(column), *map(printable, cells)]
    natural = max(map(text_width, texts))
    longest = max((text_width(word) for text in texts for word in words(text)), default=0)
    least = max(longest, min(natural, _LEAST_PROSE)) if column.prose else natural
    return Extent(natural=natural, least=least, priority=column.priority, flexible=column.is_text)


def _reserved(column: Column[Row], extent: Extent) -> Extent:
    if column.reserved is None:
        return replace(extent, short=None)
    # Later rows fold a longer name; a number is never folded.
    least = column.reserved if column.is_text else max(column.reserved, extent.natural)
    return replace(extent, short=None, least=least, natural=MAX_WIDTH if column.prose else least)


def _left_out(columns: Sequence[Column[Row]], layout: _Layout, options: RenderOptions) -> Iterator[str]:
    """The sentence that names the columns left out, if there are any."""
    shortened = dict.fromkeys(columns[place.index].short_of for place in layout.places if place.is_short)
    too_wide = [*shortened, *_names(columns, layout.wide)]
    blank = _names(columns, layout.blank)
    reasons = (
        (f"at {_width(options)} columns", too_wide),
        ("0 or – in every row", blank),  # noqa: RUF001  # the sign for unknown
    )
    parts = [f"{reason}: {', '.join(names)}" for reason, names in reasons if names]
    if parts:
        hint = ["--wide shows all"] if options.wide is not None else []
        yield f"left out{'' if too_wide else ','} {'; '.join([*parts, *hint])}"


def _legend(page: Page[Any], layout: _Layout, tables: Sequence[Table[Any]]) -> Iterator[str]:
    """The meaning of an unknown value, if one is shown and no note of the page gives a closer one."""
    shown = [place.index for place in layout.places]
    is_there = any(UNKNOWN in line[index].split() for table in tables for line in table.cells for index in shown)
    if is_there and not any(note.startswith(f"{UNKNOWN}:") for note in page.notes):
        yield f"{UNKNOWN}: not known"


def _names(columns: Sequence[Column[Any]], indices: Iterable[int]) -> list[str]:
    """The headings of these columns, with their units where two have the same."""
    names = [column.name for column in columns]
    return [columns[index].title if names.count(names[index]) > 1 else names[index] for index in indices]


def _heading_lines(column: Column[Row]) -> list[str]:
    """The heading and, below it or behind its second line, the unit."""
    first, _, second = column.heading.partition("\n")
    return [line for line in (first, ", ".join(filter(None, (second, column.unit)))) if line] or [""]


def _headings(columns: Sequence[Column[Row]], layout: _Layout, options: RenderOptions) -> str:
    lines = [_heading_lines(columns[place.index]) for place in layout.places]
    return _line_of(columns, layout, lines, ["bold"] * len(lines), options)


def _rows(columns: Sequence[Column[Row]], table: Table[Row], layout: _Layout, options: RenderOptions) -> str:
    text = []
    before: tuple[str, ...] | None = None
    for row, cells in zip(table.rows, table.cells, strict=True):
        lines = [
            fold(_cell(columns[place.index], place, row, cells, before), place.width, shorten=True)
            for place in layout.places
        ]
        styles = [columns[place.index].style(row) for place in layout.places]
        text.append(_line_of(columns, layout, lines, styles, options))
        before = cells
    return "".join(text)


def _cell(column: Column[Row], place: Place, row: Row, cells: tuple[str, ...], before: tuple[str, ...] | None) -> str:
    text = cells[place.index]
    if column.once and before is not None and before[place.index] == text:
        return ""
    return printable(column.short(row) if place.is_short and column.short is not None else text)


def _line_of(
    columns: Sequence[Column[Row]],
    layout: _Layout,
    cells: Sequence[list[str]],
    styles: Sequence[str],
    options: RenderOptions,
) -> str:
    """One row of a table, with as many lines as its highest cell."""
    lines = []
    for number in range(max(map(len, cells), default=0)):
        pieces = []
        for place, content, style in zip(layout.places, cells, styles, strict=True):
            part = content[number] if number < len(content) else ""
            padding, styled = " " * (place.width - text_width(part)), _styled(part, style, options)
            pieces.append(styled + padding if columns[place.index].is_text else padding + styled)
        lines.append(f"{(' ' * GAP).join(pieces).rstrip()}\n")
    return "".join(lines)


def _notes(texts: Iterable[str], options: RenderOptions) -> str:
    return "".join(_paragraph(text, options, style="dim") for text in texts)


def _paragraph(text: str, options: RenderOptions, *, style: str) -> str:
    lines = fold(printable(text), _width(options)) if text else []
    return "".join(f"{_styled(line, style, options)}\n" for line in lines)


def _styled(text: str, style: str, options: RenderOptions) -> str:
    code = STYLES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if options.colour and code and text else text


def _width(options: RenderOptions) -> int:
    return min(max(options.width, MIN_WIDTH), MAX_WIDTH)
