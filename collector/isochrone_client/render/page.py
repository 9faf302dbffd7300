"""Pages: the description of an answer from which every output format is rendered.

A page has two kinds of columns. `Field`s are for programs: every field of a row, as on the wire (see `record`).
`Column`s are for people: the few quantities that answer the question, rounded, with the unit in the heading.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic, TypeVar

from isochrone_client.render.record import Field, row_record

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row]):
    """One quantity of a row for people, under `heading` and, below it, `unit`.

    `wide` columns hold names: they are left-aligned and folded if the line is too long; the others hold numbers. A wide
    column of `prose` is folded between words only.
    `reserved` is the width of the column in a text that continues, regardless of its first rows.
    `style` is a colour for terminals, as a rich style, and must never be the only carrier of a meaning.
    """

    heading: str
    text: Callable[[Row], str]
    unit: str = ""
    wide: bool = False
    prose: bool = False
    reserved: int | None = None
    style: Callable[[Row], str] = lambda _row: ""

    @property
    def title(self) -> str:
        """Heading and unit in one line."""
        return f"{self.heading} ({self.unit})" if self.unit else self.heading


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

    def iter_records(self) -> Iterator[dict[str, Any]]:
        """Yield the records for programs."""
        yield from (self.record(row) for row in self.rows) if self.records is None else self.records


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """The width of a table in columns of text, and whether to use colours."""

    width: int = 100
    colour: bool = False
