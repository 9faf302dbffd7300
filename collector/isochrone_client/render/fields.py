"""Selection of fields: the page with the fields named, in that order, for every output format.

A field has the name of its JSON key or of its CSV column: `shift` or `shift_us`, `ttft_p50_us` (all of it) or
`ttft_p50_us.low`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from isochrone_client.errors import FieldError
from isochrone_client.render.page import Column, Page, Row
from isochrone_client.render.record import Field
from isochrone_wire.text import did_you_mean, same_name

_UNKNOWN = "–"  # noqa: RUF001  # an en dash, as everywhere


@dataclass(frozen=True, slots=True)
class SelectedRow:
    """The selected fields of a row, and the heading of its group."""

    record: dict[str, Any]
    group: str


def field_names(page: Page[Row]) -> list[str]:
    """The name of every field of the page's rows."""
    return list(_places(page))


def select_fields(page: Page[Row], names: tuple[str, ...]) -> Page[SelectedRow]:
    """The page with the fields of those names, the first ones the most important. Raises `FieldError` with the nearest
    name.
    """
    places = _places(page)
    names = tuple(_known(name, page, places) for name in names)
    rows = tuple(
        SelectedRow({name: _at(record, places[name]) for name in names}, group) for record, group in _records(page)
    )
    fields = tuple(field for name in names for field in _leaves(page, name, places[name]))
    return Page(
        schema=page.schema,
        title=page.title,
        facts=page.facts,
        fields=fields,
        columns=tuple(_column(field, rows, priority=place) for place, field in enumerate(fields)),
        rows=rows,
        group=lambda row: row.group,
        record=lambda row: row.record,
    )


def _known(name: str, page: Page[Row], places: Mapping[str, tuple[str, ...]]) -> str:
    found = same_name(name, places)
    if found is None:
        known = ", ".join(dict.fromkeys(field.path[0] for field in page.fields))
        hint = f"fields: {known}; `--fields help` lists their parts, too"
        raise FieldError(f"unknown field {name!r}{did_you_mean(name, places)}", hint=hint)
    return found


def _places(page: Page[Row]) -> dict[str, tuple[str, ...]]:
    """Where the field of each name is in a record; JSON's names first."""
    tops = {field.path[0]: field.path[:1] for field in page.fields}
    return tops | {field.header: field.path for field in page.fields if field.header not in tops}


def _records(page: Page[Row]) -> Iterator[tuple[Mapping[str, Any], str]]:
    if page.records is not None:
        yield from ((record, "") for record in page.records)
        return
    yield from ((page.record(row), page.group(row)) for row in page.rows)


def _leaves(page: Page[Row], name: str, place: tuple[str, ...]) -> Iterator[Field]:
    """The CSV columns of one name: a nested field has several."""
    for field in page.fields:
        if field.path[: len(place)] == place:
            yield Field(header=field.header, path=(name, *field.path[len(place) :]))


def _column(field: Field, rows: tuple[SelectedRow, ...], *, priority: int) -> Column[SelectedRow]:
    is_text = any(isinstance(field.value(row.record), str) for row in rows)
    return Column(
        heading=field.header, text=lambda row: _text(field.value(row.record)), wide=is_text, priority=priority
    )


def _text(value: object) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, dict):
        return ";".join(f"{name}={_text(part)}" for name, part in sorted(value.items()))
    if isinstance(value, list):
        return ";".join(_text(part) for part in value)
    return str(value)


def _at(record: Mapping[str, Any], place: tuple[str, ...]) -> Any:  # noqa: ANN401  # plain data
    return Field(header="", path=place).value(record)
