"""Rows of the table `sample` in the binary format of COPY, packed for all samples of a push at once.

The format (PostgreSQL's manual, COPY, "Binary Format"): each row is the number of its parts in two bytes, then every
column as its length in four bytes and its big-endian content; -1 is the length of NULL, which has no content.

So every column that is not text takes whole words of four bytes. They are laid out as one matrix of words, as if no
value were NULL; the words of NULL values are then dropped. The order of columns is free: first those that are the same
for the whole batch, then the words, then the texts.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.ingest.sample_columns import (
    COLUMN,
    ENUMS,
    NUMBERS,
    RATES,
    TEXTS,
    Flags,
    Numbers,
    SampleColumns,
)
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
# More bytes of UTF-8 than any valid text has.
_MOST_BYTES = 4_000
_LENGTHS = [_int32.pack(length) for length in range(_MOST_BYTES)]


def pack_rows(
    columns: SampleColumns, chosen: Numbers, origin: Origin, reasons: Sequence[str] | None = None
) -> PackedRows:
    """Pack the `chosen` rows, which must be valid; late ones with their `reasons`, in the same order."""
    order = ORDER if reasons is None else LATE_ORDER
    if not len(chosen):
        return PackedRows(order, 0, b"")
    prefix, columns = _batch_prefix(origin, columns=len(order)), columns.select(chosen)
    parts: list[Iterable[bytes]] = [
        repeat(prefix, len(chosen)),
        _fixed_width(columns, chosen),
        *_text_columns(columns),
    ]
    if reasons is not None:
        parts.append(map(_text, reasons))
    return PackedRows(order, len(chosen), b"".join(chain.from_iterable(zip(*parts, strict=True))))


def _batch_prefix(origin: Origin, *, columns: int) -> bytes:
    """Return the bytes with which every row of a batch begins."""
    numbers = (origin.vantage_id, origin.epoch, origin.seq, origin.received_at - POSTGRES_EPOCH_AT)
    eights = b"".join(_LENGTHS[8] + _int64.pack(number) for number in numbers)
    return struct.pack("!h", columns) + eights + _text(origin.region)


def _fixed_width(columns: SampleColumns, places: Numbers) -> list[bytes]:
    """Return the columns that are not text, row by row; `places` are those of the rows in their batch."""
    numbers, present = columns.numbers, columns.present
    words = np.empty((len(columns), _WORDS_OF_EIGHTS + _WORDS_OF_FOURS), np.uint32)
    is_kept = np.ones(words.shape, np.bool_)
    eights = np.hstack((numbers[:, _EIGHT_COLUMNS] - _SINCE_2000, columns.rates.view(np.int64)))
    is_known = np.hstack((present[:, _EIGHT_COLUMNS], columns.rated))
    _lay_out(eights.astype(">i8", order="C"), is_known, words[:, :_WORDS_OF_EIGHTS], is_kept[:, :_WORDS_OF_EIGHTS])
    fours = np.hstack((places[:, None], numbers[:, _FOUR_COLUMNS]))
    is_known = np.hstack((np.ones((len(columns), 1), np.bool_), present[:, _FOUR_COLUMNS]))
    _lay_out(fours.astype(">i4", order="C"), is_known, words[:, _WORDS_OF_EIGHTS:], is_kept[:, _WORDS_OF_EIGHTS:])
    packed = words[is_kept].tobytes()
    ends = (np.count_nonzero(is_kept, axis=1).cumsum() * words.itemsize).tolist()
    return [packed[start:end] for start, end in zip([0, *ends], ends, strict=False)]


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


def _text_columns(columns: SampleColumns) -> list[list[bytes]]:
    """Return the text columns, column by column."""
    outcomes, sources = columns.numbers[:, _ENUM_COLUMNS].T.tolist()
    known_sources = columns.present[:, COLUMN["token_source"]].tolist()
    return [
        [_OUTCOMES[outcome] for outcome in outcomes],
        [_SOURCES[source] if is_known else _NULL for source, is_known in zip(sources, known_sources, strict=True)],
        *map(_texts, columns.texts),
    ]


def _texts(texts: Sequence[bytes | None]) -> list[bytes]:
    return [_NULL if text is None else _LENGTHS[len(text)] + text for text in texts]


def _text(text: str) -> bytes:
    content = text.encode()
    return _LENGTHS[len(content)] + content


def _packed_members(name: str) -> list[bytes]:
    return [_text(word) for word in ENUMS[name]]


_OUTCOMES, _SOURCES = map(_packed_members, ENUMS)
