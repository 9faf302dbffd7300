"""Pages: the description of an answer from which every output format is rendered.

A page has two kinds of columns. `Field`s are for programs: every field of a row with its name and unit on the wire
(`isochrone_wire.json_format`), as one JSON object; CSV has the same object flattened, with columns such as
`ttft_p50_us.low`. Unknown values are null, and so are numbers that JSON cannot express. `Column`s are for people: the
few quantities that answer the question, rounded, with the unit in the heading.
"""

import typing
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import groupby
from typing import Any, Generic, TypeVar

from isochrone_client.errors import FieldError
from isochrone_client.formats import Amount, common_decimals
from isochrone_wire.json_format import to_json_value
from isochrone_wire.text import did_you_mean, same_name


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


def row_record(row: object, *, inline: tuple[str, ...] = ()) -> dict[str, Any]:
    """The row as plain data; the fields of the objects named in `inline` become fields of the row."""
    record: dict[str, Any] = to_json_value(row)
    for name in inline:
        record |= record.pop(name)
    return record


def wire_fields(
    cls: type, *, inline: tuple[str, ...] = (), also: tuple[str, ...] = (), units: Mapping[str, str] | None = None
) -> tuple[Field, ...]:
    """The columns for rows of `cls`, with `inline` as in `row_record`; `also` names additional fields of the record.

    `units` holds the units of fields whose names have none; they are appended to the header.
    """
    paths = [path[1:] if path[0] in inline else path for path in _leaves(cls)]
    named = [*paths, *((name,) for name in also)]
    return tuple(Field(header=_header(path, units or {}), path=path) for path in named)


def _leaves(cls: type) -> Iterator[tuple[str, ...]]:
    hints = typing.get_type_hints(cls)
    for part in fields(cls):
        nested = _nested_class(hints[part.name])
        inner = _leaves(nested) if nested else [()]
        yield from ((part.name, *path) for path in inner)


def _nested_class(hint: object) -> type | None:
    """The dataclass of a field that holds one value or none; a field with several values is one cell in CSV."""
    several = typing.get_origin(hint) in (tuple, list)
    candidates = () if several else (hint, *typing.get_args(hint))
    return next((part for part in candidates if isinstance(part, type) and is_dataclass(part)), None)


def _header(path: tuple[str, ...], units: Mapping[str, str]) -> str:
    name = ".".join(path)
    return f"{name}_{units[name]}" if name in units else name


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


UNKNOWN = "–"  # noqa: RUF001  # an en dash, as everywhere


@dataclass(frozen=True, slots=True)
class SelectedRow:
    """The selected fields of a row, and the heading of its group."""

    record: dict[str, Any]
    group: str


def field_names(page: Page[Row]) -> list[str]:
    """The name of every field of the page's rows."""
    return list(_field_places(page))


def select_fields(page: Page[Row], names: tuple[str, ...]) -> Page[SelectedRow]:
    """The page with the fields of those names, the first ones the most important. Raises `FieldError` with the nearest
    name.
    """
    places = _field_places(page)
    names = tuple(_known_name(name, page, places) for name in names)
    rows = tuple(
        SelectedRow({name: _at(record, places[name]) for name in names}, group) for record, group in _records(page)
    )
    fields = tuple(field for name in names for field in _named_leaves(page, name, places[name]))
    return Page(
        schema=page.schema,
        title=page.title,
        facts=page.facts,
        fields=fields,
        columns=tuple(_field_column(field, rows, priority=place) for place, field in enumerate(fields)),
        rows=rows,
        group=lambda row: row.group,
        record=lambda row: row.record,
    )


def _known_name(name: str, page: Page[Row], places: Mapping[str, tuple[str, ...]]) -> str:
    found = same_name(name, places)
    if found is None:
        known = ", ".join(dict.fromkeys(field.path[0] for field in page.fields))
        hint = f"fields: {known}; `--fields help` lists their parts, too"
        raise FieldError(f"unknown field {name!r}{did_you_mean(name, places)}", hint=hint)
    return found


def _field_places(page: Page[Row]) -> dict[str, tuple[str, ...]]:
    """Where the field of each name is in a record; JSON's names first."""
    tops = {field.path[0]: field.path[:1] for field in page.fields}
    return tops | {field.header: field.path for field in page.fields if field.header not in tops}


def _records(page: Page[Row]) -> Iterator[tuple[Mapping[str, Any], str]]:
    if page.records is not None:
        yield from ((record, "") for record in page.records)
        return
    yield from ((page.record(row), page.group(row)) for row in page.rows)


def _named_leaves(page: Page[Row], name: str, place: tuple[str, ...]) -> Iterator[Field]:
    """The CSV columns of one name: a nested field has several."""
    for one in page.fields:
        if one.path[: len(place)] == place:
            yield Field(header=one.header, path=(name, *one.path[len(place) :]))


def _field_column(field: Field, rows: tuple[SelectedRow, ...], *, priority: int) -> Column[SelectedRow]:
    is_text = any(isinstance(field.value(row.record), str) for row in rows)
    return Column(
        heading=field.header, text=lambda row: _field_text(field.value(row.record)), wide=is_text, priority=priority
    )


def _field_text(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, dict):
        return ";".join(f"{name}={_field_text(part)}" for name, part in sorted(value.items()))
    if isinstance(value, list):
        return ";".join(_field_text(part) for part in value)
    return str(value)


def _at(record: Mapping[str, Any], place: tuple[str, ...]) -> Any:  # noqa: ANN401  # plain data
    return Field(header="", path=place).value(record)
