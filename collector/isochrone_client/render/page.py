"""Pages: the description of an answer from which every output format is rendered.

A page has two kinds of columns. `Field`s are for programs: every field of a row with its name and unit on the wire
(`isochrone_wire.json_format`), as one JSON object; CSV has the same object flattened, with columns such as
`ttft_p50_us.low`. Unknown values are null, and so are numbers that JSON cannot express. `Column`s are for people: the
few quantities that answer the question, rounded, with the unit in the heading.
"""

import json
import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from isochrone_client.errors import UsageError
from isochrone_client.formats import UNKNOWN, Amount, common_decimals
from isochrone_wire.json_format import to_json_value
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.text import did_you_mean, same_name

SUFFIX_OF = {"us": "us", "tokens/s": "tokens_per_second"}
"""The suffix of a field's header by the unit of its metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of CSV: its header, and the path of its value in a row's record."""

    header: str
    path: tuple[str, ...]

    def value(self, record: Mapping[str, Any]) -> object:
        """The value at the path; `None` if an object on the path is unknown."""
        part: Any = record
        for name in self.path:
            part = part[name] if part is not None else None
        return part


def row_record(row: object) -> dict[str, Any]:
    """The row as plain data."""
    record: dict[str, Any] = to_json_value(row)
    return record


def wire_fields(
    cls: type, *, inline: tuple[str, ...] = (), also: Iterable[str] = (), units: Mapping[str, str] | None = None
) -> tuple[Field, ...]:
    """The columns for rows of `cls`. The fields of the objects named in `inline` are fields of the row, and `also`
    names additional ones. `units` holds the units of fields whose names have none; they are appended to the header.
    """
    paths = [path[1:] if path[0] in inline else path for path in _leaves(cls)]
    names = {path: ".".join(path) for path in (*paths, *((name,) for name in also))}
    suffixes = {name: f"_{unit}" for name, unit in (units or {}).items()}
    return tuple(Field(header=name + suffixes.get(name, ""), path=path) for path, name in names.items())


def _leaves(cls: type) -> Iterator[tuple[str, ...]]:
    """The paths of the fields of a class and of its objects; a field with several values is one cell in CSV."""
    hints = typing.get_type_hints(cls)
    for part in fields(cls):
        hint = hints[part.name]
        several = typing.get_origin(hint) in (tuple, list)
        candidates = () if several else (hint, *typing.get_args(hint))
        nested = next((one for one in candidates if isinstance(one, type) and is_dataclass(one)), None)
        yield from ((part.name, *path) for path in (_leaves(nested) if nested else [()]))


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One quantity of a row for people, under `heading` (of one or two lines) and `unit`.

    `text` returns a text, or an `Amount`: all amounts of a column have the same decimals, and so have those of the
    columns of one `scale`, such as the terms of a sum.

    `wide` columns hold names, which are left-aligned, and `prose` texts that are folded between words; the others hold
    numbers. A column of `priority` 0 is always shown. The others are left out of a table that is too wide, the one with
    the largest number first; and those that have nothing but zeros and unknown values.
    `short` is a shorter text of the cell, without the `short_of`, for a table that is too wide. With `once`, a text is
    not repeated in the rows below it. `below` is a second line of the cell.
    `reserved` is the width of the column in a text that continues, regardless of its first rows.
    `style` is a colour for terminals (a key of `render.table.STYLES`), and must never be the only carrier of a meaning.
    """

    heading: str
    text: Callable[[Row], str | Amount]
    _: KW_ONLY
    unit: str = ""
    scale: str = ""
    wide: bool = False
    prose: bool = False
    priority: int = 0
    short: Callable[[Row], str] | None = None
    short_of: str = ""
    below: Callable[[Row], str] | None = None
    once: bool = False
    reserved: int | None = None
    style: Callable[[Row], str] = lambda _row: ""

    @property
    def is_text(self) -> bool:
        """True for names and prose."""
        return self.wide or self.prose

    @property
    def title(self) -> str:
        """Heading and unit in one line."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def name(self) -> str:
        """The heading in one line."""
        return " ".join(self.heading.split())


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
    rows with the same `group` form one table under that heading. `notes` follow the tables. Columns are `gap` spaces
    apart. People get `empty` in place of no rows. Programs get the `record` of each row, or `records` if a row for
    people combines several of them.
    """

    schema: str
    title: str
    fields: tuple[Field, ...]
    columns: tuple[Column[Row], ...]
    rows: tuple[Row, ...]
    facts: Mapping[str, object] = field(default_factory=dict)
    group: Callable[[Row], str] = lambda _row: ""
    notes: tuple[str, ...] = ()
    gap: int = 2
    empty: str = ""
    record: Callable[[Row], dict[str, Any]] = row_record
    records: tuple[dict[str, Any], ...] | None = None

    def tables(self) -> Iterator[Table[Row]]:
        """Yield the table of each group, in the order of the rows."""
        for heading, group in groupby(self.rows, key=self.group):
            rows = tuple(group)
            yield Table(heading=heading, rows=rows, cells=cell_texts(self.columns, rows))

    def iter_records(self) -> Iterator[dict[str, Any]]:
        """Yield the records for programs."""
        yield from map(self.record, self.rows) if self.records is None else self.records


_NOTHING: Mapping[str, Any] = MappingProxyType({})


def answer_page(
    answer: object,
    title: str,
    columns: tuple[Column[Row], ...],
    *,
    rows: tuple[Row, ...] | None = None,
    group: Callable[[Row], str] = lambda _row: "",
    notes: Iterable[str] = (),
    facts: Mapping[str, object] = _NOTHING,
    also: Mapping[str, Callable[[Row], object]] = _NOTHING,
    derived: tuple[str, ...] = (),
    units: Mapping[str, str] | None = None,
    records: tuple[dict[str, Any], ...] | None = None,
) -> Page[Row]:
    """The page of an answer that has a document in `FORMATS`, with the fields and the rows of the document.

    `facts` and `also` add fields to the document and to its rows, `derived` names those that the document's rows have
    besides the fields of their class, and `units` are those of `wire_fields`.
    """
    found = FORMATS[type(answer).__name__]
    row_class = typing.get_args(typing.get_type_hints(type(answer))[found.rows])[0]

    def record(row: Row) -> dict[str, Any]:
        return found.record(row) | {name: of(row) for name, of in also.items()}

    return Page(
        schema=found.schema,
        title=title,
        facts={**found.facts(answer), **facts},
        fields=wire_fields(row_class, inline=found.inline, also=(*derived, *also), units=units),
        columns=columns,
        rows=found.rows_of(answer) if rows is None else rows,
        group=group,
        notes=tuple(notes),
        record=record,
        records=records,
    )


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

    `wide` shows every column at any width; it is `None` if the command has no such option. `raw` keeps the texts of CSV
    as they are.
    """

    width: int = 100
    colour: bool = False
    wide: bool | None = None
    raw: bool = False


def field_text(value: object, *, unknown: str = "") -> str:
    """The text of a field's value: counts as `ok=12;timed_out=3`, lists with semicolons, lists of objects as JSON."""
    if value is None:
        return unknown
    if isinstance(value, dict):
        return ";".join(f"{name}={field_text(part, unknown=unknown)}" for name, part in sorted(value.items()))
    if isinstance(value, list):
        if any(isinstance(part, dict) for part in value):
            return json.dumps(value, ensure_ascii=False)
        return ";".join(field_text(part, unknown=unknown) for part in value)
    return str(value)


Selected = tuple[dict[str, Any], str]
"""The selected fields of a row, and the heading of its group."""


def field_places(page: Page[Row]) -> dict[str, tuple[str, ...]]:
    """The place of the field of each name in a record of the page; JSON's names first, then those of CSV."""
    tops = {field.path[0]: field.path[:1] for field in page.fields}
    return tops | {field.header: field.path for field in page.fields if field.header not in tops}


def select_fields(page: Page[Row], names: tuple[str, ...]) -> Page[Selected]:
    """The page with the fields of those names, the first ones the most important. Raises `UsageError`."""
    places = field_places(page)
    for name in names:
        if same_name(name, places) is None:
            known = ", ".join(dict.fromkeys(field.path[0] for field in page.fields))
            hint = f"fields: {known}; `--fields help` lists their parts, too"
            raise UsageError(f"unknown field {name!r}{did_you_mean(name, places)}", hint=hint)
    wanted = [Field(header=name, path=places[name]) for name in filter(None, (same_name(one, places) for one in names))]
    groups = map(page.group, page.rows) if page.records is None else [""] * len(page.records)
    rows = tuple(
        ({one.header: one.value(record) for one in wanted}, group)
        for record, group in zip(page.iter_records(), groups, strict=True)
    )
    # A nested field has several columns.
    chosen = tuple(
        Field(header=one.header, path=(top.header, *one.path[len(top.path) :]))
        for top in wanted
        for one in page.fields
        if one.path[: len(top.path)] == top.path
    )

    def column(of: Field, priority: int) -> Column[Selected]:
        is_text = any(isinstance(of.value(row[0]), str) for row in rows)
        return Column(
            of.header, lambda row: field_text(of.value(row[0]), unknown=UNKNOWN), wide=is_text, priority=priority
        )

    return Page(
        schema=page.schema,
        title=page.title,
        facts=page.facts,
        fields=chosen,
        columns=tuple(column(one, place) for place, one in enumerate(chosen)),
        rows=rows,
        group=lambda row: row[1],
        record=lambda row: row[0],
    )
