"""The spool keeps what it was given, in order, until it is told that the collector has it."""

from pathlib import Path

import pytest

from isochrone_agent import spool as spool_module
from isochrone_agent.errors import SpoolError
from isochrone_agent.spool import Spool
from isochrone_wire import codec
from isochrone_wire.model import Outcome, Plan, Sample


def sample(number: int) -> Sample:
    return Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=number)


def rounds(spool: Spool) -> list[int]:
    batch = spool.next_batch()
    return [s.round_at for s in batch.samples] if batch else []


def test_what_is_recorded_survives_a_reopening(tmp_path: Path) -> None:
    """Another process that opens the file finds the samples, their order, the epoch and the plan."""
    first = Spool(tmp_path / "deep" / "spool.sqlite3")
    for number in range(3):
        first.record(sample(number))
    first.keep_plan(Plan(version=4, baseline="a"))
    second = Spool(tmp_path / "deep" / "spool.sqlite3")
    assert (second.epoch, rounds(second)) == (first.epoch, [0, 1, 2])
    assert second.last_plan() == Plan(version=4, baseline="a")


def test_a_sealed_batch_never_changes(tmp_path: Path) -> None:
    """Samples recorded after the sealing travel in the next batch, under the next number."""
    spool = Spool(tmp_path / "spool.sqlite3")
    spool.record(sample(1))
    sealed = spool.next_batch()
    spool.record(sample(2))
    assert spool.next_batch() == sealed
    spool.acknowledge(sealed.seq if sealed else 0)
    following = spool.next_batch()
    assert sealed is not None
    assert following is not None
    assert (following.seq, [s.round_at for s in following.samples]) == (sealed.seq + 1, [2])


def test_numbers_are_not_reused_after_the_spool_was_empty(tmp_path: Path) -> None:
    """A number once given is never given again, even when nothing of it is left."""
    spool = Spool(tmp_path / "spool.sqlite3")
    seen = []
    for number in range(3):
        spool.record(sample(number))
        batch = spool.next_batch()
        assert batch is not None
        spool.acknowledge(batch.seq)
        seen.append(batch.seq)
    assert seen == [1, 2, 3]
    assert (spool.depth().waiting, spool.depth().recorded) == (0, 3)


def test_batches_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch holds no more than its limit, and at least one sample."""
    size = len(codec.encode(sample(1)).SerializeToString())
    monkeypatch.setattr(spool_module, "MAX_BATCH_BYTES", 2 * size + 1)
    spool = Spool(tmp_path / "spool.sqlite3")
    for number in range(5):
        spool.record(sample(number))
    assert rounds(spool) == [0, 1]


def test_what_the_collector_will_never_take_is_set_aside(tmp_path: Path) -> None:
    """A refused batch leaves the way free and stays on disk, counted."""
    spool = Spool(tmp_path / "spool.sqlite3")
    spool.record(sample(1))
    batch = spool.next_batch()
    assert batch is not None
    spool.set_aside(batch.seq, "it said no")
    assert spool.next_batch() is None
    assert (spool.depth().waiting, spool.depth().aside) == (0, 1)


def test_a_spool_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    """A folder in the way is an error with the path and a hint, not a traceback."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SpoolError, match="cannot be opened") as caught:
        Spool(tmp_path / "file" / "spool.sqlite3")
    assert "--data-dir" in caught.value.hint
