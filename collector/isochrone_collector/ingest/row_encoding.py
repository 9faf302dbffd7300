"""Encoding of a push batch: its samples are validated and encoded, all at once, as rows in the binary format of COPY.
Probes are also counted for Prometheus, and recorded for jobs.

The laws: the counts are those of `isochrone_common.probe_metrics.ProbeCounts.add`, sample by sample; the records are
those of the statement `probe_records`.

The format (PostgreSQL's manual, COPY, "Binary Format"): each row is the number of its parts in two bytes, then every
column as its length in four bytes and its big-endian content; -1 is the length of NULL, which has no content.

So every column that is not text takes whole words of four bytes. They are laid out as one matrix of words, as if no
value were NULL; the words of NULL values are then dropped. The order of columns is free: first those that are the same
for the whole batch, then the words, then the texts. Arrow joins these parts of each row.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from isochrone_collector.analysis.probe_records import BLOCKED_SHIFT, RECORD, Records
from isochrone_collector.analysis.probe_totals import UNKNOWN, BatchCounts
from isochrone_collector.analysis.stats.arrays import Flags, Integers
from isochrone_collector.ingest.sample_columns import COLUMN, ENUMS, LIMIT, NUMBERS, RATES, TEXTS, Array, SampleColumns
from isochrone_collector.ingest.validation import PushBatch, validate
from isochrone_collector.store.batches import EncodedBatch, EncodedRows, Origin
from isochrone_collector.store.postgres.values import POSTGRES_EPOCH_AT
from isochrone_collector.store.probe_queries import values_of
from isochrone_collector.store.samples import COLUMNS
from isochrone_common.probe_metrics import HISTOGRAMS, LIMITS, OFFSETS, OUTCOMES
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import Outcome, Quality

_NULL_LENGTH = 0xFFFF_FFFF
_NULL = _NULL_LENGTH.to_bytes(4, "big")
_int32, _int64 = struct.Struct("!i"), struct.Struct("!q")

_BATCH_COLUMNS = ("vantage_id", "epoch", "seq", "received_at", "region")
_EIGHTS = tuple(name for name in NUMBERS if name not in ENUMS and COLUMNS[name] != "int4")
_FOURS = tuple(name for name in NUMBERS if name not in ENUMS and COLUMNS[name] == "int4")
_TEXT_COLUMNS = (*ENUMS, *TEXTS)
ORDER = (*_BATCH_COLUMNS, *_EIGHTS, *RATES, "answer_from_us", "idx", "traits", *_FOURS, *_TEXT_COLUMNS)
"""The columns of a encoded row, in order."""
LATE_ORDER = (*ORDER, "reason")

_EIGHT_COLUMNS = [COLUMN[name] for name in _EIGHTS]
_FOUR_COLUMNS = [COLUMN[name] for name in _FOURS]
_ENUM_COLUMNS = [COLUMN[name] for name in ENUMS]
_WORDS_OF_EIGHTS = 3 * (len(_EIGHTS) + len(RATES) + 1)
_WORDS_OF_FOURS = 2 * (2 + len(_FOURS))
_SINCE_2000 = np.array([POSTGRES_EPOCH_AT if COLUMNS[name] == "timestamptz" else 0 for name in _EIGHTS], np.int64)

# The functions of `compute` make new options for each call, which takes as long as to join twenty rows.
_join, _AS_EMPTY = compute.get_function("binary_join_element_wise"), compute.JoinOptions("replace", "")


def encode_rows(
    columns: SampleColumns, chosen: Integers, origin: Origin, reasons: Sequence[str] | None = None
) -> EncodedRows:
    """Pack the `chosen` rows, which must be valid; late ones with their `reasons`, in the same order."""
    order = ORDER if reasons is None else LATE_ORDER
    if not len(chosen):
        return EncodedRows(order, 0, b"")
    columns = columns.select(chosen)
    numbers = (origin.vantage_id, origin.epoch, origin.seq, origin.received_at - POSTGRES_EPOCH_AT)
    eights = b"".join(_int32.pack(8) + _int64.pack(number) for number in numbers)
    prefix = pa.scalar(struct.pack("!h", len(order)) + eights + _text(origin.region), pa.binary())
    parts = [prefix, _fixed_width(columns, chosen), *_text_columns(columns)]
    if reasons is not None:
        parts.append(pa.array(map(_text, reasons), pa.binary()))
    rows = _join.call([*parts, pa.scalar(b"")], _AS_EMPTY)
    return EncodedRows(order, len(rows), rows.buffers()[2].to_pybytes())


def _fixed_width(columns: SampleColumns, places: Integers) -> Array:
    """Return the columns that are not text, one value per row; `places` are those of the rows in their batch."""
    numbers, present = columns.numbers, columns.present
    words = np.empty((len(columns), _WORDS_OF_EIGHTS + _WORDS_OF_FOURS), np.uint32)
    is_kept = np.ones(words.shape, np.bool_)
    answer_from_us, has_answer = columns.answer_from_us[:, None], ~np.isnan(columns.answer_from_us[:, None])
    answer_from = np.where(has_answer, answer_from_us, 0).astype(np.int64)
    eights = np.hstack((numbers[:, _EIGHT_COLUMNS] - _SINCE_2000, columns.rates.view(np.int64), answer_from))
    is_known = np.hstack((present[:, _EIGHT_COLUMNS], columns.rated, has_answer))
    _lay_out(eights.astype(">i8", order="C"), is_known, words[:, :_WORDS_OF_EIGHTS], is_kept[:, :_WORDS_OF_EIGHTS])
    fours = np.hstack((places[:, None], columns.traits[:, None], numbers[:, _FOUR_COLUMNS]))
    is_known = np.hstack((np.ones((len(columns), 2), np.bool_), present[:, _FOUR_COLUMNS]))
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


_LIMIT_COLUMNS = [COLUMN[LIMIT + name] for name in LIMITS]
_OK = OUTCOMES.index(Outcome.OK)
_METRICS = [Metric(histogram.field.removesuffix("_us")) for histogram in HISTOGRAMS]
_EDGES = [np.array(histogram.edges) for histogram in HISTOGRAMS]


def count_probes(columns: SampleColumns) -> BatchCounts:
    """Count the probes, all of which must be valid."""
    numbers, present = columns.numbers, columns.present
    target_ids, row = np.unique(numbers[:, COLUMN["target_id"]], return_inverse=True)
    shape = (len(target_ids), OFFSETS[-1])
    outcome, began_at = numbers[:, COLUMN["outcome"]], numbers[:, COLUMN["dispatched_at"]]
    cells = [row * shape[1] + outcome]
    sums = np.zeros((shape[0], len(HISTOGRAMS)))
    for place, histogram in enumerate(HISTOGRAMS):
        found, _ = values_of(_METRICS[place], columns.value)
        is_counted = ~np.isnan(found)
        rows, values = row[is_counted], found[is_counted]
        cells.append(rows * shape[1] + OFFSETS[place] + _EDGES[place].searchsorted(values))
        sums[:, place] = np.bincount(rows, weights=values, minlength=shape[0]) / histogram.per
    last_success_at = np.zeros(len(target_ids), np.int64)
    is_ok = outcome == _OK
    np.maximum.at(last_success_at, row[is_ok], began_at[is_ok])
    limits, limits_at = _newest_limits(row, began_at, numbers, present, of=len(target_ids))
    return BatchCounts(
        target_ids=target_ids,
        counts=np.bincount(np.concatenate(cells), minlength=shape[0] * shape[1]).reshape(shape).astype(np.uint16),
        sums=sums,
        last_success_at=last_success_at,
        limits=limits,
        limits_at=limits_at,
    )


def _newest_limits(
    row: Integers, began_at: Integers, numbers: Integers, present: Flags, *, of: int
) -> tuple[Integers, Integers]:
    """Return the rate limits of the newest probe with any, per target, and when it began; 0 if there is none."""
    limits, limits_at = np.full((of, len(LIMITS)), UNKNOWN, np.int64), np.zeros(of, np.int64)
    (limited,) = np.nonzero(present[:, _LIMIT_COLUMNS].any(axis=1))
    if len(limited):
        # The last of rows that are assigned twice stays: the newest.
        limited = limited[np.argsort(began_at[limited], kind="stable")]
        found = np.where(present[:, _LIMIT_COLUMNS], numbers[:, _LIMIT_COLUMNS], UNKNOWN)
        limits[row[limited]], limits_at[row[limited]] = found[limited], began_at[limited]
    return limits, limits_at


def probe_records(columns: SampleColumns, vantage_id: int) -> Records:
    """Return a record for each probe of a vantage; all of them must be valid."""
    records = np.empty(len(columns), RECORD)
    records["vantage_id"] = vantage_id
    blocked = columns.numbers[:, COLUMN["quality"]] & Quality.BLOCKED.value
    records["traits"] = columns.traits | blocked << BLOCKED_SHIFT
    for name in ("target_id", "round_at"):
        records[name] = columns.numbers[:, COLUMN[name]]
    for name in ("tokens_per_second", "rtt_us", "first_chunk_tokens"):
        records[name] = columns.value(name)
    records["answer_from_us"] = columns.answer_from_us
    ttft_us = columns.value("ttft_us")
    records["ttft_us"] = np.where(np.isnan(ttft_us), columns.value("timeout_us"), ttft_us)
    return records


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationContext:
    """The context of validation: the ids of all known `targets`, and the `window` of rounds that have a partition."""

    targets: frozenset[int]
    window: Window


def encode(batch: PushBatch, context: ValidationContext) -> EncodedBatch | None:
    """Return the encoded batch; `None` when it has unknown targets."""
    columns = batch.decode_columns()
    if not columns.targets() <= context.targets:
        return None
    validated = validate(batch, columns, window=context.window)
    origin = Origin(
        vantage_id=batch.vantage.id,
        region=batch.vantage.region,
        epoch=batch.epoch,
        seq=batch.seq,
        received_at=batch.received_at,
    )
    late = np.array([index for index, _ in validated.late], np.int64)
    fresh = columns.select(validated.fresh)
    rounds = fresh.numbers[:, COLUMN["round_at"]]
    return EncodedBatch(
        origin=origin,
        samples=batch.sample_count,
        content_hash=batch.hash_samples(),
        rows=encode_rows(columns, validated.fresh, origin),
        late_rows=encode_rows(columns, late, origin, [reason for _, reason in validated.late]),
        rejections=[(rejection.index, rejection.reason) for rejection in validated.rejections],
        oldest_round_at=int(rounds.min()) if len(rounds) else None,
        newest_round_at=int(rounds.max()) if len(rounds) else None,
        probe_counts=count_probes(fresh),
        records=probe_records(fresh, origin.vantage_id).tobytes(),
    )
