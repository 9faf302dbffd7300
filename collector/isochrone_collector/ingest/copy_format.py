"""Rows of the table `sample` in the binary format of COPY, packed for all samples of a push at once.

The format (PostgreSQL's manual, COPY, "Binary Format"): each row is the number of its parts in two bytes, then every
column as its length in four bytes and its big-endian content; -1 is the length of NULL, which has no content.

So every column that is not text takes whole words of four bytes. They are laid out as one matrix of words, as if no
value were NULL; the words of NULL values are then dropped. The order of columns is free: first those that are the same
for the whole batch, then the words, then the texts. Arrow joins these parts of each row.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from isochrone_collector.analysis.stats.arrays import Flags, Integers
from isochrone_collector.ingest.sample_columns import COLUMN, ENUMS, NUMBERS, RATES, TEXTS, Array, SampleColumns
from isochrone_collector.store.batches import PackedRows
from isochrone_collector.store.postgres.instants import POSTGRES_EPOCH_AT
from isochrone_collector.store.rows import COLUMNS, Origin

_NULL_LENGTH = 0xFFFF_FFFF
_NULL = _NULL_LENGTH.to_bytes(4, "big")
_int32, _int64 = struct.Struct("!i"), struct.Struct("!q")

_BATCH_COLUMNS = ("vantage_id", "epoch", "seq", "received_at", "region")
_EIGHTS = tuple(name for name in NUMBERS if name not in ENUMS and COLUMNS[name] != "int4")
_FOURS = tuple(name for name in NUMBERS if name not in ENUMS and COLUMNS[name] == "int4")
_TEXT_COLUMNS = (*ENUMS, *TEXTS)
ORDER = (*_BATCH_COLUMNS, *_EIGHTS, *RATES, "idx", *_FOURS, *_TEXT_COLUMNS)
"""The columns of a packed row, in order."""
LATE_ORDER = (*ORDER, "reason")

_EIGHT_COLUMNS = [COLUMN[name] for name in _EIGHTS]
_FOUR_COLUMNS = [COLUMN[name] for name in _FOURS]
_ENUM_COLUMNS = [COLUMN[name] for name in ENUMS]
_WORDS_OF_EIGHTS = 3 * (len(_EIGHTS) + len(RATES))
_WORDS_OF_FOURS = 2 * (1 + len(_FOURS))
_SINCE_2000 = np.array([POSTGRES_EPOCH_AT if COLUMNS[name] == "timestamptz" else 0 for name in _EIGHTS], np.int64)

# The functions of `compute` make their options anew for each call, which takes as long as to join twenty rows.
_join, _AS_EMPTY = compute.get_function("binary_join_element_wise"), compute.JoinOptions("replace", "")
_NOTHING = pa.scalar(b"")


def pack_rows(
    columns: SampleColumns, chosen: Integers, origin: Origin, reasons: Sequence[str] | None = None
) -> PackedRows:
    """Pack the `chosen` rows, which must be valid; late ones with their `reasons`, in the same order."""
    order = ORDER if reasons is None else LATE_ORDER
    if not len(chosen):
        return PackedRows(order, 0, b"")
    columns = columns.select(chosen)
    prefix = pa.scalar(_batch_prefix(origin, columns=len(order)), pa.binary())
    parts = [prefix, _fixed_width(columns, chosen), *_text_columns(columns)]
    if reasons is not None:
        parts.append(pa.array(map(_text, reasons), pa.binary()))
    rows = _join.call([*parts, _NOTHING], _AS_EMPTY)
    return PackedRows(order, len(rows), rows.buffers()[2].to_pybytes())


def _batch_prefix(origin: Origin, *, columns: int) -> bytes:
    """Return the bytes with which every row of a batch begins."""
    numbers = (origin.vantage_id, origin.epoch, origin.seq, origin.received_at - POSTGRES_EPOCH_AT)
    eights = b"".join(_int32.pack(8) + _int64.pack(number) for number in numbers)
    return struct.pack("!h", columns) + eights + _text(origin.region)


def _fixed_width(columns: SampleColumns, places: Integers) -> Array:
    """Return the columns that are not text, one value per row; `places` are those of the rows in their batch."""
    numbers, present = columns.numbers, columns.present
    words = np.empty((len(columns), _WORDS_OF_EIGHTS + _WORDS_OF_FOURS), np.uint32)
    is_kept = np.ones(words.shape, np.bool_)
    eights = np.hstack((numbers[:, _EIGHT_COLUMNS] - _SINCE_2000, columns.rates.view(np.int64)))
    is_known = np.hstack((present[:, _EIGHT_COLUMNS], columns.rated))
    _lay_out(eights.astype(">i8", order="C"), is_known, words[:, :_WORDS_OF_EIGHTS], is_kept[:, :_WORDS_OF_EIGHTS])
    fours = np.hstack((places[:, None], numbers[:, _FOUR_COLUMNS]))
    is_known = np.hstack((np.ones((len(columns), 1), np.bool_), present[:, _FOUR_COLUMNS]))
    _lay_out(fours.astype(">i4", order="C"), is_known, words[:, _WORDS_OF_EIGHTS:], is_kept[:, _WORDS_OF_EIGHTS:])
    ends = np.zeros(len(columns) + 1, np.int32)
    np.count_nonzero(is_kept, axis=1).cumsum(out=ends[1:])
    return _binary(words[is_kept], ends * words.itemsize)


def _binary(content: NDArray[Any], ends: NDArray[np.int32]) -> Array:
    """Return the bytes of `content` as a binary array of the values between these `ends`, of which the first is 0."""
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(content)])


def _lay_out(
    content: NDArray[np.signedinteger[Any]], is_known: Flags, words: NDArray[np.uint32], is_kept: Flags
) -> None:
    """Write columns of one width into `words`, each as its length and its content, in big-endian bytes on any machine.
    Sets `is_kept` to False for the content words of NULL values.
    """
    size = content.itemsize // 4
    length, null = np.array([content.itemsize, _NULL_LENGTH], ">u4").view(np.uint32)
    words[:, :: 1 + size] = np.where(is_known, length, null)
    halves = content.view(np.uint32)
    for half in range(size):
        words[:, 1 + half :: 1 + size] = halves[:, half::size]
        is_kept[:, 1 + half :: 1 + size] = is_known


def _text_columns(columns: SampleColumns) -> list[Array]:
    """Return the parts of the text columns: the packed members of enums, and each text behind its length."""
    outcomes, sources = columns.numbers[:, _ENUM_COLUMNS].T
    sources = np.where(columns.present[:, COLUMN["token_source"]], sources, len(_SOURCES) - 1)
    parts = [_MEMBERS.take(outcomes * len(_SOURCES) + sources)]
    # The size of an absent text is the length of NULL.
    sizes, rows = columns.sizes.T.astype(">i4", order="C"), len(columns)
    lengths = _binary(sizes, np.arange(sizes.size + 1, dtype=np.int32) * sizes.itemsize)
    for place, texts in enumerate(columns.texts):
        parts += [lengths[place * rows : (place + 1) * rows], texts]
    return parts


def _text(text: str) -> bytes:
    content = text.encode()
    return _int32.pack(len(content)) + content


# Every pair of an outcome and a source, the last of which is NULL.
_SOURCES = [*map(_text, ENUMS["token_source"]), _NULL]
_MEMBERS = pa.array([_text(outcome) + source for outcome in ENUMS["outcome"] for source in _SOURCES], pa.binary())
