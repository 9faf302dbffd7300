"""Samples of rounds that are stored already: found before a batch is stored, and set aside. Pure.

The laws, for a sample of a batch and the stored samples of the same vantage, target and round:

1. If another agent, with an epoch that is not in the lineage, has stored one, the round is complete.
2. A stored sample of the same request is the sample itself: a restored snapshot has sealed it again.
3. A round of one sample has no second one. Of a burst, a restart may have left a part in the spool: it is stored.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from isochrone_collector.ingest.copy_format import LATE_ORDER, ORDER
from isochrone_collector.store.batches import PackedBatch, PackedRows, StoredRow
from isochrone_collector.store.postgres.instants import POSTGRES_EPOCH_AT

REASON = "already_stored"

_int16, _int32 = struct.Struct("!h"), struct.Struct("!i")
# Three columns of eight bytes, each behind its length; see `copy_format`.
_KEY = struct.Struct("!4xq4xq4xq")
_KEY_COLUMNS = ("target_id", "round_at", "dispatched_at")
_KEY_PLACE = ORDER.index(_KEY_COLUMNS[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A packed row: its target and round, the instant of its request, and its bytes."""

    target_id: int
    round_at: int
    dispatched_at: int
    content: bytes

    @property
    def round(self) -> tuple[int, int]:
        """Return the target and the instant of its round."""
        return self.target_id, self.round_at


def read_rows(block: PackedRows) -> Iterator[Row]:
    """Yield the rows of a block."""
    offset = 0
    for _ in range(block.rows):
        begin, key_at = offset, 0
        (columns,) = _int16.unpack_from(block.content, begin)
        offset += _int16.size
        for place in range(columns):
            if place == _KEY_PLACE:
                key_at = offset
            (length,) = _int32.unpack_from(block.content, offset)
            offset += _int32.size + max(length, 0)
        target_id, round_at, dispatched_at = _KEY.unpack_from(block.content, key_at)
        yield Row(
            target_id=target_id,
            round_at=round_at + POSTGRES_EPOCH_AT,
            dispatched_at=dispatched_at + POSTGRES_EPOCH_AT,
            content=block.content[begin:offset],
        )


def repeated(rows: Sequence[Row], stored: Iterable[StoredRow], lineage: AbstractSet[int]) -> set[int]:
    """Return the places of the rows that must not be stored beside the `stored` samples."""
    of_round: dict[tuple[int, int], list[StoredRow]] = defaultdict(list)
    for one in stored:
        of_round[one.target_id, one.round_at].append(one)
    counts = Counter(row.round for row in rows)
    return {
        place
        for place, row in enumerate(rows)
        if (others := of_round.get(row.round)) and _is_repeated(row, others, counts[row.round], lineage)
    }


def _is_repeated(row: Row, others: Collection[StoredRow], count: int, lineage: AbstractSet[int]) -> bool:
    return (
        any(other.epoch not in lineage or other.dispatched_at == row.dispatched_at for other in others)
        or len(others) == count == 1
    )


def set_aside(batch: PackedBatch, rows: Sequence[Row], places: AbstractSet[int]) -> PackedBatch:
    """Return the batch with the rows at these places among the late ones."""
    kept = [row for place, row in enumerate(rows) if place not in places]
    late = b"".join(_late(rows[place].content) for place in sorted(places))
    return replace(
        batch,
        rows=PackedRows(ORDER, len(kept), b"".join(row.content for row in kept)),
        late_rows=PackedRows(LATE_ORDER, batch.late_rows.rows + len(places), batch.late_rows.content + late),
        oldest_round_at=min((row.round_at for row in kept), default=None),
        newest_round_at=max((row.round_at for row in kept), default=None),
        probe_counts=None,
        records=None,
    )


def _late(row: bytes) -> bytes:
    reason = REASON.encode()
    return _int16.pack(len(LATE_ORDER)) + row[_int16.size :] + _int32.pack(len(reason)) + reason
