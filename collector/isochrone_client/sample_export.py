"""Export of samples to a file as CSV, JSON lines or Parquet: the fields of the JSON document, with its names."""

import typing
from collections.abc import Callable
from dataclasses import asdict, fields
from enum import Enum
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import IO, Any, NamedTuple

from isochrone_client.errors import MissingExtraError
from isochrone_client.pages import samples as sample_pages
from isochrone_client.render import renderer
from isochrone_client.render.page import RenderOptions
from isochrone_wire.answers import Window
from isochrone_wire.fleet import StoredSample
from isochrone_wire.model import Quality, RateLimit, Sample
from isochrone_wire.queries.documents import FORMATS as DOCUMENTS

Rows = tuple[StoredSample, ...]


class Column(NamedTuple):
    """One column: its name, the path of its value in a `StoredSample`, and the type of the value."""

    name: str
    path: str
    kind: type

    def values(self, rows: Rows) -> list[Any]:
        """The column's values in `rows` as plain data; `None` if a value is unknown."""
        return [_plain(value) for value in map(attrgetter(self.path), rows)]


def columns() -> tuple[Column, ...]:
    """All columns, in the order of the JSON document."""
    own = [column for column in _columns_of(StoredSample) if column.kind is not Sample]
    return (*own, *_columns_of(Sample, "sample."))


def _columns_of(cls: Any, prefix: str = "") -> list[Column]:  # noqa: ANN401  # a value class; mypy has no name for those
    derived = {name: typing.get_type_hints(getattr(cls, name).fget)["return"] for name in getattr(cls, "DERIVED", ())}
    hints = typing.get_type_hints(cls) | derived
    kinds = {
        name: next((part for part in typing.get_args(hint) if part is not type(None)), hint)
        for name, hint in hints.items()
    }
    return [Column(name, prefix + name, kinds[name]) for name in (*(part.name for part in fields(cls)), *derived)]


def _plain(value: Any) -> Any:  # noqa: ANN401  # any field's
    if isinstance(value, Quality):
        return list(value.labels)
    if isinstance(value, Enum):
        return value.value
    return asdict(value) if isinstance(value, RateLimit) else value


class _TextWriter:
    """Text with a line per sample, as `isochrone samples` prints it in the format `output`."""

    def __init__(self, file: IO[bytes], window: Window, *, output: str, raw: bool = False) -> None:
        self._file = file
        self._window = window
        self._options = RenderOptions(raw=raw)
        self._renderer = renderer(output)
        self._has_begun = False

    def write(self, rows: Rows) -> None:
        page = sample_pages.page(rows, window=self._window, now_at=self._window.until_at)
        lines = self._renderer.more if self._has_begun else self._renderer.opening
        self._has_begun = True
        self._file.write(lines(page, self._options).encode())

    def close(self) -> None:
        if not self._has_begun:
            self.write(())


class _ParquetWriter:
    """Parquet with timestamps in UTC, and units in the names of the columns."""

    def __init__(self, file: IO[bytes], window: Window, *, raw: bool = False) -> None:  # noqa: ARG002  # always is
        # pyarrow is large and needed for Parquet only.
        try:
            self._arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        except ImportError as error:
            raise MissingExtraError(
                "--output parquet needs pyarrow, which is not installed",
                hint="pip install 'isochrone[export]', or use --output csv or jsonl",
            ) from error
        self._columns = columns()
        metadata = {
            "isochrone.schema": DOCUMENTS["SampleList"].schema,
            "isochrone.window": f"{window.from_at}..{window.until_at}",
        }
        kinds = [(column.name, _arrow_type(self._arrow, column)) for column in self._columns]
        self._schema = self._arrow.schema(kinds, metadata=metadata)
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._batches: list[Any] = []
        self._rows = 0

    def write(self, rows: Rows) -> None:
        arrays = [
            self._arrow.array(column.values(rows), type=self._schema.field(column.name).type)
            for column in self._columns
        ]
        self._batches.append(self._arrow.record_batch(arrays, schema=self._schema))
        self._rows += len(rows)
        if self._rows >= 20_000:  # noqa: PLR2004  # a row group is held in memory
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(self._arrow.Table.from_batches(self._batches))
        self._batches, self._rows = [], 0


Writer = _TextWriter | _ParquetWriter
FORMATS: dict[str, Callable[..., Writer]] = {
    "parquet": _ParquetWriter,
    "csv": partial(_TextWriter, output="csv"),
    "jsonl": partial(_TextWriter, output="json"),
}
"""The writer of each format, for a file, which `close` leaves open, a window and `raw`. Raises `MissingExtraError`."""


def _arrow_type(arrow: Any, column: Column) -> Any:  # noqa: ANN401  # pyarrow has no types
    """The type of a column in Parquet: lists of labels, structs of dataclasses, and instants by the end of the name."""
    if column.kind is Quality:
        return arrow.list_(arrow.string())
    if column.name.endswith("_at") and column.kind is int:
        return arrow.timestamp("us", tz="UTC")
    if column.kind in (int, float):
        return arrow.int64() if column.kind is int else arrow.float64()
    if issubclass(column.kind, str):
        return arrow.string()
    return arrow.struct([(part.name, _arrow_type(arrow, part)) for part in _columns_of(column.kind)])
