"""One description of an answer, from which every output format is written.

A page has two kinds of columns. `Field`s are what machines get: all of a row, as it is on the wire (see `record`).
`Column`s are what people get: the few quantities that answer the question, rounded, with the unit in the heading.
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

    `wide` columns hold names: they stand on the left and fold when the line is too long; the others hold numbers. A
    wide column of `prose` folds between words only.
    `reserved` is the width that a text which goes on gives the column, whatever is in the first rows of it.
    `style` is a colour for terminals, in rich's words, and must never be the only carrier of a meaning.
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
    """An answer, ready to be written in any format.

    `schema` names the JSON document and its version, `facts` is what the document says besides its rows. Neighbouring
    rows of which `group` says the same form one table under that heading. `notes` stand below. `records` are what
    machines get where people are shown several of them in one row; otherwise it is the `record` of each row.
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
        """Each group's heading with its rows, in the order of the rows."""
        for heading, rows in groupby(self.rows, key=self.group):
            yield heading, tuple(rows)

    def recorded(self) -> Iterator[dict[str, Any]]:
        """What machines get, one record after the other."""
        yield from (self.record(row) for row in self.rows) if self.records is None else self.records


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """What a table may use: columns of text across, and whether the other end shows colours."""

    width: int = 100
    colour: bool = False
