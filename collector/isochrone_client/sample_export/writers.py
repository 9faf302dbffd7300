"""Writers of samples into an open file: CSV, JSON lines or Parquet."""

from collections.abc import Callable
from importlib import import_module
from typing import IO, Any, Protocol

from isochrone_client.errors import MissingExtraError
from isochrone_client.pages import samples as sample_pages
from isochrone_client.render import renderer
from isochrone_client.render.page import RenderOptions
from isochrone_client.sample_export.columns import Column, Instant, Strings, columns, parts
from isochrone_wire.answers import Window
from isochrone_wire.fleet import StoredSample

Rows = tuple[StoredSample, ...]
# Rows per row group of a Parquet file; a row group is held in memory.
_ROW_GROUP_ROWS = 20_000


class Writer(Protocol):
    """A writer of samples. `close` writes the remaining rows and leaves the file open."""

    def write(self, rows: Rows) -> None:
        """Write more samples."""

    def close(self) -> None:
        """Write the remaining rows."""


class _TextWriter:
    """Text with a line per sample, as `isochrone samples` prints it in the format `output`."""

    def __init__(self, file: IO[bytes], window: Window, output: str) -> None:
        self._file = file
        self._window = window
        self._renderer = renderer(output)
        self._has_begun = False

    def write(self, rows: Rows) -> None:
        page = sample_pages.page(rows, window=self._window, now_at=self._window.until_at)
        lines = self._renderer.more if self._has_begun else self._renderer.opening
        self._has_begun = True
        self._file.write(lines(page, RenderOptions()).encode())

    def close(self) -> None:
        if not self._has_begun:
            self.write(())


class _ParquetWriter:
    """Parquet with timestamps in UTC, and units in the names of the columns."""

    def __init__(self, file: IO[bytes], window: Window) -> None:
        self._arrow, parquet = _pyarrow()
        self._columns = columns()
        metadata = {
            "isochrone.schema": sample_pages.FORMAT.schema,
            "isochrone.window": f"{window.from_at}..{window.until_at}",
        }
        kinds = [(column.name, _arrow_type(self._arrow, column.kind)) for column in self._columns]
        self._schema = self._arrow.schema(kinds, metadata=metadata)
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._batches: list[Any] = []
        self._rows = 0

    def write(self, rows: Rows) -> None:
        arrays = [self._array(column, rows) for column in self._columns]
        self._batches.append(self._arrow.record_batch(arrays, schema=self._schema))
        self._rows += len(rows)
        if self._rows >= _ROW_GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _array(self, column: Column, rows: Rows) -> Any:  # noqa: ANN401  # pyarrow has no types
        return self._arrow.array(column.values(rows), type=self._schema.field(column.name).type)

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(self._arrow.Table.from_batches(self._batches))
        self._batches, self._rows = [], 0


FORMATS: dict[str, Callable[[IO[bytes], Window], Writer]] = {
    "parquet": _ParquetWriter,
    "csv": lambda file, window: _TextWriter(file, window, "csv"),
    "jsonl": lambda file, window: _TextWriter(file, window, "json"),
}
"""The writer of each format, for a file and a window. Parquet raises `MissingExtraError`."""


def _pyarrow() -> tuple[Any, Any]:
    # pyarrow is large and needed for Parquet only.
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtraError(
            "--output parquet needs pyarrow, which is not installed",
            hint="pip install 'isochrone[export]', or use --output csv or jsonl",
        ) from error


def _arrow_type(arrow: Any, kind: type) -> Any:  # noqa: ANN401  # pyarrow has no types
    plain = {
        int: arrow.int64(),
        float: arrow.float64(),
        str: arrow.string(),
        Instant: arrow.timestamp("us", tz="UTC"),
        Strings: arrow.list_(arrow.string()),
    }
    if kind in plain:
        return plain[kind]
    return arrow.struct([(name, _arrow_type(arrow, inner)) for name, inner in parts(kind).items()])
