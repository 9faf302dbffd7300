"""Pages: the description of an answer from which every output format is rendered.

A page has two kinds of columns. `Field`s are for programs: every field of a row, as on the wire (see `record`).
`Column`s are for people: the few quantities that answer the question, rounded, with the unit in the heading.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic, TypeVar

from isochrone_client.formats import Amount, common_decimals
from isochrone_client.render.record import Field, row_record

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row]):
    """One quantity of a row for people, under `heading` (of one or two lines) and `unit`.

    `text` returns a text, or an `Amount`: all amounts of a column have the same decimals, and so have those of the
    columns of one `scale`, such as the terms of a sum.

    `wide` columns hold names, which are left-aligned; the others hold numbers. `prose` is folded between words.
    A column of `priority` 0 is always shown. The others are left out of a table that is too wide, the one with the
    largest number first; and those that have nothing but zeros and unknown values.
    `short` is a shorter text of the cell, without the `short_of`, for a table that is too wide. With `once`, a text is
    not repeated in the rows below it.
    `reserved` is the width of the column in a text that continues, regardless of its first rows.
    `style` is a colour for terminals (a key of `render.table.STYLES`), and must never be the only carrier of a meaning.
    """

    heading: str
    text: Callable[[Row], str | Amount]
    unit: str = ""
    scale: str = ""
    wide: bool = False
    prose: bool = False
    priority: int = 0
    short: Callable[[Row], str] | None = None
    short_of: str = ""
    once: bool = False
    reserved: int | None = None
    style: Callable[[Row], str] = lambda _row: ""

    @property
    def title(self) -> str:
        """Heading and unit in one line."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def name(self) -> str:
        """The heading in one line."""
        return self.heading.replace("\n", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Generic[Row]):
    """One table of a page: its rows, and for each of them the texts of all columns."""

    heading: str
    rows: tuple[Row, ...]
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Row]):
    """An answer, ready to be rendered in any format.

    `schema` names the JSON document and its version; `facts` are the fields of the document besides its rows. Adjacent
    rows with the same `group` form one table under that heading. `notes` follow the tables. Programs get the `record`
    of each row, or `records` if a row for people combines several of them.
    """

    schema: str
    title: str
    fields: tuple[Field, ...]
    columns: tuple[Column[Row], ...]
    rows: tuple[Row, ...]
    facts: Mapping[str, object] = field(default_factory=dict)
    group: Callable[[Row], str] = lambda _row: ""
    notes: tuple[str, ...] = ()
    record: Callable[[Row], dict[str, Any]] = row_record
    records: tuple[dict[str, Any], ...] | None = None

    def groups(self) -> Iterator[tuple[str, tuple[Row, ...]]]:
        """Yield each group's heading with its rows, in the order of the rows."""
        for heading, rows in groupby(self.rows, key=self.group):
            yield heading, tuple(rows)

    def tables(self) -> Iterator[Table[Row]]:
        """Yield the table of each group, in the order of the rows."""
        for heading, rows in self.groups():
            yield Table(heading=heading, rows=rows, cells=cell_texts(self.columns, rows))

    def iter_records(self) -> Iterator[dict[str, Any]]:
        """Yield the records for programs."""
        yield from (self.record(row) for row in self.rows) if self.records is None else self.records


def cell_texts(
    columns: tuple[Column[Row], ...], rows: tuple[Row, ...], *, decimals: int | None = None
) -> tuple[tuple[str, ...], ...]:
    """The texts of each row; the columns choose the decimals of their numbers unless `decimals` is given."""
    contents = [[column.text(row) for column in columns] for row in rows]
    amounts: defaultdict[str, list[Amount]] = defaultdict(list)
    scales = [column.scale or str(place) for place, column in enumerate(columns)]
    for line in contents:
        for scale, content in zip(scales, line, strict=True):
            if isinstance(content, Amount):
                amounts[scale].append(content)
    places = {scale: common_decimals(of) if decimals is None else decimals for scale, of in amounts.items()}
    return tuple(
        tuple(
            content.text(places[scale]) if isinstance(content, Amount) else content
            for scale, content in zip(scales, line, strict=True)
        )
        for line in contents
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """The width of a table in columns of text, and whether to use colours.

    `wide` shows every column at any width; it is `None` if the command has no such option.
    """

    width: int = 100
    colour: bool = False
    wide: bool | None = None
