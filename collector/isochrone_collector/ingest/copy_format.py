"""Rows of `sample` in the binary format of COPY, packed for a whole sheet at once.

The format (PostgreSQL's manual, COPY, "Binary Format"): each row is the number of its columns in two bytes, then every
column as its length in four bytes and its big-endian content; -1 is the length of NULL, which has no content.

So whatever is no text takes whole words of four bytes. All of those are laid out as if nothing were NULL, as one matrix
of words; dropping the words of what is NULL leaves the rows. Columns may come in any order: first what is the same for
the whole batch, then the words, then the texts.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.ingest.sample_columns import (
    COLUMN,
    NUMBERS,
    RATES,
    TEXTS,
    WORDS,
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

_OF_BATCH = ("vantage_id", "epoch", "seq", "received_at", "region")
_EIGHTS = tuple(name for name in NUMBERS if name not in WORDS and COLUMNS[name] != "int4")
_FOURS = tuple(name for name in NUMBERS if name not in WORDS and COLUMNS[name] == "int4")
_SPOKEN = (*WORDS, *TEXTS)
ORDER = (*_OF_BATCH, *_EIGHTS, *RATES, "idx", *_FOURS, *_SPOKEN)
"""The columns of a packed row, in their order."""
LATE_ORDER = (*ORDER, "reason")

_EIGHT_COLUMNS = [COLUMN[name] for name in _EIGHTS]
_FOUR_COLUMNS = [COLUMN[name] for name in _FOURS]
_WORD_COLUMNS = [COLUMN[name] for name in WORDS]
_WORDS_OF_EIGHTS = 3 * (len(_EIGHTS) + len(RATES))
_WORDS_OF_FOURS = 2 * (1 + len(_FOURS))
_SINCE_2000 = np.array([POSTGRES_EPOCH_AT if COLUMNS[name] == "timestamptz" else 0 for name in _EIGHTS], np.int64)
# Longer than any text that is admitted, in bytes of UTF-8.
_MOST_BYTES = 4_000
_LENGTHS = [_int32.pack(length) for length in range(_MOST_BYTES)]


def pack(sheet: SampleColumns, chosen: Numbers, origin: Origin, reasons: Sequence[str] | None = None) -> PackedRows:
    """The `chosen` rows of a sheet, of samples that were admitted; late ones with the `reasons`, in the same order."""
    order = ORDER if reasons is None else LATE_ORDER
    if not len(chosen):
        return PackedRows(order, 0, b"")
    same = _same(origin, columns=len(order))
    columns: list[Iterable[bytes]] = [repeat(same, len(chosen)), _words(sheet, chosen), *_spoken(sheet, chosen)]
    if reasons is not None:
        columns.append(map(_text, reasons))
    return PackedRows(order, len(chosen), b"".join(chain.from_iterable(zip(*columns, strict=True))))


def _same(origin: Origin, *, columns: int) -> bytes:
    """How every row of a batch begins."""
    numbers = (origin.vantage_id, origin.epoch, origin.seq, origin.received_at - POSTGRES_EPOCH_AT)
    eights = b"".join(_LENGTHS[8] + _int64.pack(number) for number in numbers)
    return struct.pack("!h", columns) + eights + _text(origin.region)


def _words(sheet: SampleColumns, chosen: Numbers) -> list[bytes]:
    """What is no text, row by row."""
    numbers, present = sheet.numbers[chosen], sheet.present[chosen]
    words = np.empty((len(chosen), _WORDS_OF_EIGHTS + _WORDS_OF_FOURS), np.uint32)
    kept = np.ones(words.shape, np.bool_)
    eights = np.hstack((numbers[:, _EIGHT_COLUMNS] - _SINCE_2000, sheet.rates[chosen].view(np.int64)))
    known = np.hstack((present[:, _EIGHT_COLUMNS], sheet.rated[chosen]))
    _lay(eights.astype(">i8"), known, words[:, :_WORDS_OF_EIGHTS], kept[:, :_WORDS_OF_EIGHTS])
    fours = np.hstack((chosen[:, None], numbers[:, _FOUR_COLUMNS]))
    known = np.hstack((np.ones((len(chosen), 1), np.bool_), present[:, _FOUR_COLUMNS]))
    _lay(fours.astype(">i4"), known, words[:, _WORDS_OF_EIGHTS:], kept[:, _WORDS_OF_EIGHTS:])
    packed = words[kept].tobytes()
    ends = (np.count_nonzero(kept, axis=1).cumsum() * words.itemsize).tolist()
    return [packed[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _lay(content: NDArray[np.signedinteger[Any]], known: Flags, words: NDArray[np.uint32], kept: Flags) -> None:
    """Lay columns of one width out as `words`, each its length and then its content, all big-endian bytes whatever this
    machine's order is, and say which of the words are `kept`.
    """
    size = content.itemsize // 4
    length, null = np.array([content.itemsize, _NULL_LENGTH], ">u4").view(np.uint32)
    words[:, :: 1 + size] = np.where(known, length, null)
    halves = content.view(np.uint32)
    for half in range(size):
        words[:, 1 + half :: 1 + size] = halves[:, half::size]
        kept[:, 1 + half :: 1 + size] = known


def _spoken(sheet: SampleColumns, chosen: Numbers) -> list[list[bytes]]:
    """The texts, column by column."""
    outcomes, sources = sheet.numbers[chosen][:, _WORD_COLUMNS].T.tolist()
    known_sources = sheet.present[chosen, COLUMN["token_source"]].tolist()
    rows = chosen.tolist()
    return [
        [_OUTCOMES[outcome] for outcome in outcomes],
        [_SOURCES[source] if known else _NULL for source, known in zip(sources, known_sources, strict=True)],
        *([_text(column[row]) for row in rows] for column in sheet.texts),
    ]


def _text(text: str | None) -> bytes:
    if text is None:
        return _NULL
    content = text.encode()
    return _LENGTHS[len(content)] + content


def _packed_words(name: str) -> list[bytes]:
    return [_text(word) for word in WORDS[name]]


_OUTCOMES, _SOURCES = map(_packed_words, WORDS)
