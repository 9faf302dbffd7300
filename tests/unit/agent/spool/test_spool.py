"""The spool keeps each sample until the collector has stored it, and its account holds at every instant."""

import contextlib
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from isochrone_agent.errors import SpoolDamaged, SpoolError
from isochrone_agent.settings import Drain
from isochrone_agent.spool import batches, database
from isochrone_agent.spool import spool as spool_module
from isochrone_agent.spool.database import SealedBatch
from isochrone_agent.spool.spool import Spool
from isochrone_wire import codec
from isochrone_wire.model import DAY_US, Account, Outcome, Plan, Sample, Spend
from isochrone_wire.v1 import sample_pb2
from testdata.samples import realistic_sample


def sample(number: int, **more: object) -> Sample:
    return Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=number, **more)  # type: ignore[arg-type]


def spool_of(folder: Path, numbers: range, **more: object) -> Spool:
    spool = Spool(folder / "spool.sqlite3", **more)  # type: ignore[arg-type]
    for number in numbers:
        spool.record(sample(number))
    return spool


def leased(spool: Spool, *, seal: bool = True) -> SealedBatch:
    batch = spool.lease(seal=seal)
    assert batch is not None
    return batch


def rounds(batch: SealedBatch | None) -> list[int]:
    bodies = batch.bodies if batch else []
    return [codec.decode(Sample, sample_pb2.Sample.FromString(body)).round_at for body in bodies]


def test_recorded_samples_survive_reopening(tmp_path: Path) -> None:
    """Another process that opens the file finds the samples in order, the account and the plan."""
    first = spool_of(tmp_path / "deep", range(3))
    first.save_plan(Plan(version=4, baseline="a"))
    first.close()
    second = Spool(tmp_path / "deep" / "spool.sqlite3")
    assert rounds(second.lease()) == [0, 1, 2]
    assert second.last_plan() == Plan(version=4, baseline="a")
    assert second.stats().account == Account(finished=3, stored=0, spooled=3)


def test_a_sealed_batch_never_changes(tmp_path: Path) -> None:
    """Samples recorded after the sealing go into another batch; a retry carries the same bytes."""
    spool = spool_of(tmp_path, range(1, 2), drain=Drain.OLDEST)
    sealed = leased(spool)
    spool.record(sample(2))
    spool.release(sealed)
    assert leased(spool) == sealed
    assert rounds(leased(spool)) == [2]


def test_numbers_are_not_reused_after_the_spool_was_empty(tmp_path: Path) -> None:
    """A number is never assigned twice, even when its batch is gone."""
    spool = spool_of(tmp_path, range(0))
    seen = []
    for number in range(3):
        spool.record(sample(number))
        batch = leased(spool)
        spool.acknowledge(batch)
        seen.append(batch.seq)
    assert seen == [1, 2, 3]
    assert spool.stats().account == Account(finished=3, stored=3, spooled=0)


def test_a_restored_file_repeats_no_number(tmp_path: Path) -> None:
    """A spool restored from a copy assigns numbers of another epoch than the spool it replaces."""
    path = tmp_path / "spool.sqlite3"
    spool_of(tmp_path, range(1)).close()
    before = path.read_bytes()
    numbers = set[tuple[int, int]]()
    for number in range(3):
        path.write_bytes(before)
        spool = spool_of(tmp_path, range(number, number + 1))
        batch = leased(spool)
        numbers.add((batch.epoch, batch.seq))
        spool.close()
    assert len(numbers) == 3


def test_sealed_batches_keep_their_number_over_a_restart(tmp_path: Path) -> None:
    """A sealed batch keeps epoch and number, because it may be stored already. Once acknowledged it counts as stored
    under an earlier epoch; new samples count under the current one.
    """
    first = spool_of(tmp_path, range(1))
    sealed = leased(first)
    first.record(sample(1))
    first.acknowledge(leased(first))
    first.close()
    second = Spool(tmp_path / "spool.sqlite3")
    assert second.epoch != first.epoch
    assert leased(second) == sealed
    assert (second.stats().stored, second.stats().earlier) == (1, 1)
    second.acknowledge(sealed)
    second.record(sample(2))
    new = leased(second)
    second.acknowledge(new)
    assert (new.epoch, new.seq) == (second.epoch, 1)
    assert (second.stats().stored, second.stats().earlier) == (3, 2)


def test_a_leased_batch_is_not_leased_again(tmp_path: Path) -> None:
    """Calls in flight carry different batches; a released batch can be leased again."""
    spool = spool_of(tmp_path, range(1))
    first = leased(spool)
    spool.record(sample(1))
    second = leased(spool)
    assert (rounds(first), rounds(second), spool.lease()) == ([0], [1], None)
    spool.release(first)
    assert leased(spool) == first


def test_batches_are_bounded_in_bytes_and_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch stays within its limits but has at least one sample; a full batch is sealed without a lease."""
    size = len(codec.encode(sample(1)).SerializeToString())
    monkeypatch.setattr(batches, "MAX_BATCH_BYTES", 2 * size + 1)
    spool = spool_of(tmp_path, range(1, 6), drain=Drain.OLDEST)
    assert [rounds(spool.lease()) for _ in range(4)] == [[1, 2], [3, 4], [5], []]
    monkeypatch.setattr(batches, "MAX_BATCH_BYTES", 1)
    spool.record(sample(6))
    assert rounds(leased(spool, seal=False)) == [6]


@pytest.mark.parametrize(
    ("drain", "order"),
    [
        (Drain.NEWEST, [[9], [0], [6, 7, 8], [1, 2], [3, 4, 5]]),
        (Drain.OLDEST, [[0], [1, 2], [3, 4, 5], [6, 7, 8], [9]]),
    ],
)
def test_new_samples_do_not_wait_for_the_backlog(tmp_path: Path, drain: Drain, order: list[list[int]]) -> None:
    """After an outage the newest go first and the backlog in every other batch, or with `Drain.OLDEST` the oldest."""
    spool = spool_of(tmp_path, range(0), drain=drain)
    for group in ([0], [1, 2], [3, 4, 5], [6, 7, 8]):
        for number in group:
            spool.record(sample(number))
        spool._seal_waiting()
    spool.record(sample(9))
    assert [rounds(spool.lease()) for _ in range(5)] == order


def test_rejected_samples_are_counted_as_dropped(tmp_path: Path) -> None:
    """Samples that the collector rejected count as dropped for its reason; the rest counts as stored."""
    spool = spool_of(tmp_path, range(5))
    spool.acknowledge(leased(spool), rejected={"unknown_target": 2})
    assert spool.stats().account == Account(finished=5, stored=3, spooled=0, dropped={"unknown_target": 2})


def test_reasons_of_a_hostile_collector_are_bounded(tmp_path: Path) -> None:
    """Every push has the counts by reason. A collector that invents reasons cannot make pushes too large for good; the
    account holds, also after the batch was delivered again.
    """
    spool = spool_of(tmp_path, range(200))
    spool.acknowledge(leased(spool), rejected={f"{number}{'x' * 10_000}": 1 for number in range(200)})
    dropped = spool.stats().account.dropped
    assert (len(dropped), dropped[batches.OTHER]) == (batches.MAX_REASONS + 1, 200 - batches.MAX_REASONS)
    assert max(map(len, dropped)) < 100
    assert spool.stats().account.holds
    assert spool.redeliver(spool.replay_ranges()) == 1
    assert (dict(spool.stats().account.dropped), spool.stats().account.holds) == ({}, True)


def test_a_refused_batch_is_halved_down_to_one_sample(tmp_path: Path) -> None:
    """Splitting assigns new numbers, loses no sample, and ends with the refused sample alone in quarantine."""
    spool = spool_of(tmp_path, range(5))
    tried, delivered = list[int](), list[int]()
    while (batch := spool.lease()) is not None:
        tried.append(batch.seq)
        if 3 in rounds(batch):
            spool.split(batch, "INVALID_ARGUMENT: no threes")
        else:
            delivered += rounds(batch)
            spool.acknowledge(batch)
        assert spool.stats().account.holds
    assert (sorted(delivered), len(set(tried))) == ([0, 1, 2, 4], len(tried))
    assert (spool.stats().waiting, spool.stats().quarantined) == (0, 1)


def test_a_batch_whose_number_is_taken_gets_one_of_a_new_epoch(tmp_path: Path) -> None:
    """The samples stay, in order, and are delivered under a new epoch, whose account begins anew."""
    spool = spool_of(tmp_path, range(3))
    spool.acknowledge(leased(spool))
    for number in range(3, 6):
        spool.record(sample(number))
    refused, epoch = leased(spool), spool.epoch
    spool.renumber(refused)
    again = leased(spool)
    assert (rounds(again), again.seq) == ([3, 4, 5], 1)
    assert again.epoch == spool.epoch != epoch
    spool.acknowledge(again)
    assert spool.stats().account == Account(finished=6, stored=6, spooled=0)
    assert spool.stats().earlier == 3


def test_the_epoch_history_has_the_newest_starts(tmp_path: Path) -> None:
    """It survives restarts, a new epoch and salvage in the running agent, and is bounded."""
    epochs: list[int] = []
    for _ in range(20):
        spool = Spool(tmp_path / "spool.sqlite3")
        epochs.append(spool.epoch)
        assert spool.epoch_history[: len(epochs)] == tuple(reversed(epochs))[:16]
        assert len(spool.epoch_history) <= 16
        spool.close()
    spool = spool_of(tmp_path, range(1))
    before = spool.epoch_history
    spool.renumber(leased(spool))
    assert spool.epoch_history == (spool.epoch, *before)[:16]
    spool._salvage_and_reopen(SpoolDamaged("a test"))
    assert (spool.epoch_history[0], before[0] in spool.epoch_history) == (spool.epoch, True)


def test_the_oldest_are_dropped_at_the_limit(tmp_path: Path) -> None:
    """The file stays within its limit; dropped samples are counted, and the newest is never dropped."""
    limit = 200_000
    spool = Spool(tmp_path / "spool.sqlite3", limit_bytes=limit)
    for number in range(900):
        spool.record(sample(number, error=os.urandom(80).hex()))
    files = sum(file.stat().st_size for file in tmp_path.iterdir() if not file.name.endswith("-shm"))
    account = spool.stats().account
    assert account.holds
    assert account.dropped["spool_full"] > 0
    assert spool._used_pages() * database.PAGE_BYTES <= limit
    assert files < limit + spool_module._SIDE_FILES_BYTES
    assert 899 in rounds(leased(spool))


def test_the_file_shrinks_after_a_backlog(tmp_path: Path) -> None:
    """Pages that an outage needed are returned to the file system while the backlog is delivered."""
    spool = Spool(tmp_path / "spool.sqlite3", keep_bytes=100_000)
    with database.Transaction(spool._db):
        for number in range(12_000):
            batches.record(spool._db, spool.epoch, number, os.urandom(300))
    before = database.value(spool._db, "pragma page_count")
    while (batch := spool.lease()) is not None:
        spool.acknowledge(batch)
    assert database.value(spool._db, "pragma page_count") < before / 2


def test_a_batch_in_flight_is_not_dropped(tmp_path: Path) -> None:
    """A batch in flight may be stored at any moment, so another one is dropped."""
    spool = spool_of(tmp_path, range(1))
    batch = leased(spool)
    spool.record(sample(1))
    spool._seal_waiting()
    with database.Transaction(spool._db):
        assert spool._drop_oldest("spool_full")
        assert not spool._drop_oldest("spool_full")
    spool.acknowledge(batch)
    assert spool.stats().account == Account(finished=2, stored=1, spooled=0, dropped={"spool_full": 1})


def test_the_quarantine_is_dropped_first(tmp_path: Path) -> None:
    """Refused samples are dropped before those the collector has not seen, and counted under their own reason."""
    spool = Spool(tmp_path / "spool.sqlite3", limit_bytes=200_000)
    for number in range(40):
        spool.record(sample(number, error=os.urandom(900).hex()))
    while (batch := spool.lease()) is not None:
        spool.split(batch, "INVALID_ARGUMENT")
    assert spool.stats().quarantined > 0
    for number in range(40, 100):
        spool.record(sample(number, error=os.urandom(900).hex()))
    dropped = spool.stats().account.dropped
    assert (dropped["quarantine_full"], dropped["quarantine_full"] + spool.stats().quarantined) == (40, 40)
    assert spool._used_pages() * database.PAGE_BYTES <= 200_000
    assert spool.stats().account.holds


def test_a_dropped_batch_is_forgotten(tmp_path: Path) -> None:
    """The set of batches that were ever leased does not grow with dropped batches."""
    spool = spool_of(tmp_path, range(1))
    spool.release(leased(spool))
    with database.Transaction(spool._db):
        assert spool._drop_oldest("spool_full")
    assert spool._ever_leased == set()


def test_a_batch_that_may_be_stored_is_dropped_last(tmp_path: Path) -> None:
    """A batch that was never sent is dropped before one whose reply was lost, which may count as stored and dropped."""
    spool = spool_of(tmp_path, range(1))
    spool.release(leased(spool))
    spool.record(sample(1))
    spool._seal_waiting()
    with database.Transaction(spool._db):
        spool._drop_oldest("spool_full")
    assert rounds(leased(spool)) == [0]


def test_a_full_disk_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample that cannot be written raises an error and is counted; with free space recording continues."""
    spool = spool_of(tmp_path, range(3))
    monkeypatch.setattr(database, "_MIN_FREE_RESERVES", 1 << 40)
    monkeypatch.setattr(spool_module, "_DISK_FULL_PAGES", 0)
    pages = database.value(spool._db, "pragma page_count")
    spool._db.execute(f"pragma max_page_count = {pages}").fetchall()
    for number in range(3, 20):
        with contextlib.suppress(SpoolError):
            spool.record(sample(number, error="x" * 3000))
        assert spool.stats().account.holds
    assert spool.stats().account.dropped["disk_full"] > 0
    monkeypatch.undo()
    spool.record(sample(20))
    account = spool.stats().account
    spool.close()
    again = Spool(tmp_path / "spool.sqlite3")
    assert (account.finished, account.holds) == (21, True)
    assert again.stats().account == account


def test_lost_samples_are_counted_in_memory_first(tmp_path: Path) -> None:
    """A sample that cannot be written even after a drop is in the account at once, and on disk with the next sample."""
    spool = spool_of(tmp_path, range(1))

    def fail(*_arguments: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with pytest.MonkeyPatch.context() as disk:
        disk.setattr(batches, "record", fail)
        for number in range(4):
            with pytest.raises(SpoolError, match="full"):
                spool.record(sample(number))
    assert spool.stats().account == Account(finished=5, stored=0, spooled=1, dropped={"disk_full": 4})
    spool.record(sample(5))
    spool.close()
    again = Spool(tmp_path / "spool.sqlite3")
    assert again.stats().account == Account(finished=6, stored=0, spooled=2, dropped={"disk_full": 4})


def test_spend_is_recorded_with_the_sample(tmp_path: Path) -> None:
    """Money, tokens and requests add up per provider and day, across a restart; a skipped round adds no request."""
    spool = Spool(tmp_path / "spool.sqlite3")
    noon = 20_000 * DAY_US + DAY_US // 2
    one = Sample(target_id=1, round_at=noon, outcome=Outcome.OK, dispatched_at=noon)
    day_at = 20_000 * DAY_US
    paid = Spend(provider="deep", day_at=day_at, usd=0.5, tokens=12, requests=1)
    most = Spend(provider="deep", day_at=day_at, usd=2.0, tokens=90, requests=1)
    taken_back = replace(most, usd=-2.0, tokens=-90, requests=-1)
    spool.reserve([most])
    assert spool.spend(day_at) == (most,)
    for spends in ([paid, taken_back], [paid], []):
        spool.record(one, spends)
    # A reservation that salvage has lost cannot make the sum negative.
    spool.record(one, [replace(paid, provider="other"), replace(taken_back, provider="gone")])
    spool.close()
    assert Spool(tmp_path / "spool.sqlite3").spend(day_at) == (
        Spend(provider="deep", day_at=day_at, usd=1.0, tokens=24, requests=2),
        Spend(provider="gone", day_at=day_at),
        Spend(provider="other", day_at=day_at, usd=0.5, tokens=12, requests=1),
    )


def test_a_week_at_one_sample_a_second_fits(tmp_path: Path) -> None:
    """604 800 realistic samples take less than 100 MB, extrapolated from 5 000."""
    spool = Spool(tmp_path / "spool.sqlite3")
    with database.Transaction(spool._db):
        for number in range(5000):
            batches.record(spool._db, spool.epoch, number, codec.encode(realistic_sample(number)).SerializeToString())
    used = spool._used_pages() * database.PAGE_BYTES
    assert used / 5000 * 604_800 + spool_module._SIDE_FILES_BYTES < 100_000_000


def test_an_unusable_path_is_a_spool_error(tmp_path: Path) -> None:
    """A file in place of the folder is an error with the path and a hint."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SpoolError, match="cannot be opened") as caught:
        Spool(tmp_path / "file" / "spool.sqlite3")
    assert "--data-dir" in caught.value.hint


def test_a_spool_of_another_format_is_not_changed(tmp_path: Path) -> None:
    """A file written by another version is neither read nor salvaged."""
    spool_of(tmp_path, range(1)).close()
    with sqlite3.connect(tmp_path / "spool.sqlite3") as db:
        db.execute("pragma user_version = 9")
    db.close()
    with pytest.raises(SpoolError, match=r"another version .*format 9"):
        Spool(tmp_path / "spool.sqlite3")
    assert not list(tmp_path.glob("*damaged*"))
