"""Samples of rounds that are stored already: which ones are set aside, and that the others stay as they are encoded."""

import pytest

from isochrone_collector.ingest.raw_push import decode_push
from isochrone_collector.ingest.row_encoding import ValidationContext, encode
from isochrone_collector.ingest.vantage_owner import REASON, Row, read_rows, repeated, set_aside
from isochrone_collector.store.batches import EncodedBatch, StoredRow
from isochrone_wire import codec
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, Batch, Outcome, Sample, Vantage

NOW_AT = 1_795_248_000_000_000
OURS, EARLIER, FOREIGN = 5, 4, 9


def encoded(*rounds: int) -> EncodedBatch:
    """A batch of samples with texts and missing values; rounds below 0 are too old."""
    samples = [
        Sample(
            target_id=7,
            round_at=NOW_AT + one,
            dispatched_at=NOW_AT + one + place,
            outcome=Outcome.OK,
            error=None if place % 2 else f"é {place}",
            ttft_us=place or None,
        )
        for place, one in enumerate(rounds)
    ]
    batch = Batch(vantage=Vantage(name="v", region="zürich"), epoch=OURS, seq=1, samples=tuple(samples))
    window = Window(from_at=NOW_AT, until_at=NOW_AT + DAY_US)
    found = encode(
        decode_push(codec.encode(batch).SerializeToString(), NOW_AT),
        ValidationContext(targets=frozenset({7}), window=window),
    )
    assert found is not None
    return found


def test_packed_rows_are_read_back() -> None:
    """Each with its target, its round, the instant of its request, and exactly its bytes."""
    batch = encoded(0, 10, -DAY_US, 20)
    rows = list(read_rows(batch.rows))
    assert [(row.target_id, row.round_at - NOW_AT, row.dispatched_at - NOW_AT) for row in rows] == [
        (7, 0, 0),
        (7, 10, 11),
        (7, 20, 23),
    ]
    assert b"".join(row.content for row in rows) == batch.rows.content


def test_rows_that_are_set_aside_are_late_ones_with_a_reason() -> None:
    """The number of stored samples stays the same, and the late rows have the format of late rows."""
    batch = encoded(0, 10, -DAY_US, 20)
    done = set_aside(batch, list(read_rows(batch.rows)), {0, 2})
    assert (done.rows.rows, done.late_rows.rows, done.stored) == (1, 3, batch.stored)
    assert [row.round_at - NOW_AT for row in read_rows(done.rows)] == [10]
    late = list(read_rows(done.late_rows))
    assert [row.round_at - NOW_AT for row in late] == [-DAY_US, 0, 20]
    assert [row.content.endswith(REASON.encode()) for row in late] == [False, True, True]
    assert b"".join(row.content for row in late) == done.late_rows.content
    assert (done.oldest_round_at, done.newest_round_at) == (NOW_AT + 10, NOW_AT + 10)
    none = set_aside(batch, list(read_rows(batch.rows)), {0, 1, 2})
    assert (none.rows.rows, none.oldest_round_at, none.newest_round_at) == (0, None, None)


@pytest.mark.parametrize(
    ("sent", "stored", "places"),
    [
        ([1], [], []),
        ([1], [(FOREIGN, 3)], [0]),
        ([1, 2, 3], [(FOREIGN, 9)], [0, 1, 2]),
        ([1, 2, 3], [(FOREIGN, 9), (EARLIER, 2)], [0, 1, 2]),
        ([1], [(EARLIER, 1)], [0]),
        ([1], [(EARLIER, 2)], [0]),
        ([1], [(OURS, 2)], [0]),
        ([1, 2, 3], [(EARLIER, 2), (EARLIER, 9)], [1]),
        ([1, 2, 3], [(EARLIER, 9)], []),
        ([1], [(EARLIER, 8), (EARLIER, 9)], []),
    ],
)
def test_which_samples_are_stored_already(sent: list[int], stored: list[tuple[int, int]], places: list[int]) -> None:
    """By the instants of the requests, and by the epochs of those that are stored; see the laws."""
    rows = [Row(target_id=7, round_at=NOW_AT, dispatched_at=at, content=b"") for at in sent]
    rows.append(Row(target_id=8, round_at=NOW_AT, dispatched_at=1, content=b""))
    others = [StoredRow(target_id=7, round_at=NOW_AT, epoch=epoch, dispatched_at=at) for epoch, at in stored]
    assert repeated(rows, others, {OURS, EARLIER}) == set(places)
