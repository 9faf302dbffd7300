"""The spool keeps each sample until the collector has stored it, and its account holds at every instant."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isochrone_agent.clock import now_at
from isochrone_agent.errors import SpoolDamaged, SpoolError
from isochrone_agent.settings import Drain
from isochrone_agent.spool import batches, database, inspection
from isochrone_agent.spool import spool as spool_module
from isochrone_agent.spool.database import SealedBatch
from isochrone_agent.spool.spool import Spool
from isochrone_wire import codec
from isochrone_wire.model import DAY_US, Account, BatchRange, Outcome, Plan, Sample, Spend
from isochrone_wire.v1 import sample_pb2
from testdata.samples import realistic_sample


def sample(number: int, **more: Any) -> Sample:
    fields: dict[str, Any] = {"target_id": 1, "round_at": number, "outcome": Outcome.OK, "dispatched_at": number}
    return Sample(**(fields | more))


def spool_of(folder: Path, numbers: range, **more: Any) -> Spool:
    spool = Spool(folder / "spool.sqlite3", **more)
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
    """Samples, account and plan survive reopening; a sealed batch keeps its bytes, and later samples are in others."""
    first = spool_of(tmp_path / "deep", range(3))
    first.save_plan(Plan(version=4, baseline="a"))
    first.close()
    second = Spool(tmp_path / "deep" / "spool.sqlite3")
    assert rounds(second.lease()) == [0, 1, 2]
    assert second.last_plan() == Plan(version=4, baseline="a")
    assert second.stats().account == Account(finished=3, stored=0, spooled=3)
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
    """A sealed batch keeps epoch and number, because it may be stored; it counts under an earlier epoch."""
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
    """A collector that invents reasons cannot make pushes too large; the account holds, also after a redelivery."""
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
    with database.transaction(spool._db):
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
    with database.transaction(spool._db):
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


def test_of_waiting_samples_the_older_half_is_dropped(tmp_path: Path) -> None:
    """Without a batch, the older half of the waiting samples makes room, and the one being recorded stays."""
    spool = spool_of(tmp_path, range(5))
    with database.transaction(spool._db):
        assert spool._drop_oldest("spool_full")
    assert (rounds(leased(spool)), spool.stats().dropped) == ([2, 3, 4], {"spool_full": 2})


def test_a_dropped_batch_is_forgotten(tmp_path: Path) -> None:
    """The set of batches that were ever leased does not grow with dropped batches."""
    spool = spool_of(tmp_path, range(1))
    spool.release(leased(spool))
    with database.transaction(spool._db):
        assert spool._drop_oldest("spool_full")
    assert spool._ever_leased == set()


def test_a_batch_that_may_be_stored_is_dropped_last(tmp_path: Path) -> None:
    """A batch that was never sent is dropped before one whose reply was lost, which may count as stored and dropped."""
    spool = spool_of(tmp_path, range(1))
    spool.release(leased(spool))
    spool.record(sample(1))
    spool._seal_waiting()
    with database.transaction(spool._db):
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


def test_a_round_dated_ahead_ends_no_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that was years ahead for a moment leaves today's spend; the number of rows bounds the table."""
    monkeypatch.setattr(database, "_MAX_SPENDS", 3)
    spool = Spool(tmp_path / "spool.sqlite3")
    days = [20_000 * DAY_US, 30_000 * DAY_US, 1 * DAY_US]
    of = [Spend(provider="deep", day_at=day_at, requests=10) for day_at in days]
    for one in of:
        spool.reserve([one])
    assert [spool.spend(day_at) for day_at in days] == [(one,) for one in of]
    spool.reserve([Spend(provider="deep", day_at=20_001 * DAY_US)])
    assert [spool.spend(day_at) for day_at in days] == [(), (of[1],), (of[2],)]


def test_a_week_at_one_sample_a_second_fits(tmp_path: Path) -> None:
    """604 800 realistic samples take less than 100 MB, extrapolated from 5 000."""
    spool = Spool(tmp_path / "spool.sqlite3")
    with database.transaction(spool._db):
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


def test_a_second_agent_is_refused(tmp_path: Path) -> None:
    """A spool in use is refused with the pid of its agent; after that agent has closed it, it can be opened."""
    first = spool_of(tmp_path, range(1))
    with pytest.raises(SpoolError, match=rf"in use by the agent with pid {os.getpid()}, since 20") as caught:
        Spool(tmp_path / "spool.sqlite3")
    assert "--data-dir" in caught.value.hint
    first.close()
    assert Spool(tmp_path / "spool.sqlite3").stats().account.finished == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
def test_another_users_spool_is_refused(tmp_path: Path) -> None:
    """An agent that runs as another user than the owner names the owner."""
    Spool(tmp_path / "spool.sqlite3").close()
    os.chown(tmp_path / "spool.sqlite3", 65534, 65534)
    with pytest.raises(SpoolError, match="belongs to nobody, and this agent runs as root"):
        Spool(tmp_path / "spool.sqlite3")


def test_the_reserve_takes_space_until_it_is_released(tmp_path: Path) -> None:
    """The reserve is a file of 2 MB; another agent on the same spool finds it, and a release deletes it."""
    spool = tmp_path / "spool.sqlite3"
    file = tmp_path / "spool.sqlite3.reserve"
    for _ in range(2):
        assert database.DiskReserve(spool).allocate()
        assert file.stat().st_size == database.RESERVE_BYTES
    database.DiskReserve(spool).release()
    assert not file.exists()


def delivered(spool: Spool, numbers: range, **rejected: int) -> list[SealedBatch]:
    sent = []
    for number in numbers:
        spool.record(sample(number))
        sent.append(leased(spool))
        spool.acknowledge(sent[-1], rejected=rejected)
    return sent


def rest(spool: Spool) -> list[SealedBatch]:
    return list(iter(spool.lease, None))


def test_missing_batches_are_delivered_again(tmp_path: Path) -> None:
    """The batches that the collector lacks are sealed again, unchanged, after a restart too; the account holds."""
    path = tmp_path / "spool.sqlite3"
    spool = Spool(path, drain=Drain.OLDEST)
    sent = delivered(spool, range(5))
    assert spool.replay_ranges() == (BatchRange(epoch=spool.epoch, first_seq=1, last_seq=5),)
    spool.close()
    again = Spool(path, drain=Drain.OLDEST)
    assert again.redeliver([BatchRange(epoch=sent[0].epoch, first_seq=3, last_seq=9)]) == 3
    stats = again.stats()
    assert (stats.stored, stats.earlier, stats.waiting, stats.account.holds) == (2, 2, 3, True)
    assert again.replay_ranges() == (BatchRange(epoch=sent[0].epoch, first_seq=1, last_seq=2),)
    resent = rest(again)
    assert resent == sent[2:]
    for batch in resent:
        again.acknowledge(batch)
    assert (again.stats().stored, again.stats().account.holds) == (5, True)
    assert again.redeliver([BatchRange(epoch=1, first_seq=1, last_seq=9)]) == 0


def test_rejected_samples_are_counted_once(tmp_path: Path) -> None:
    """A batch that is delivered again gives back what it had counted as stored and as dropped."""
    spool = Spool(tmp_path / "spool.sqlite3")
    delivered(spool, range(1))
    delivered(spool, range(1, 2), too_long=1)
    assert (dict(spool.stats().dropped), spool.stats().stored) == ({"too_long": 1}, 1)
    assert spool.redeliver(spool.replay_ranges()) == 2
    assert (dict(spool.stats().dropped), spool.stats().stored, spool.stats().account.holds) == ({}, 0, True)


@pytest.mark.parametrize("keep", [0, 2_000])
def test_copies_are_bounded_in_size(tmp_path: Path, keep: int) -> None:
    """The newest copies within the limit are kept; none at all with a limit of 0."""
    spool = Spool(tmp_path / "spool.sqlite3", keep_bytes=keep)
    delivered(spool, range(60))
    size = database.value(spool._db, "select coalesce(sum(length(body)), 0) from replay")
    assert size <= keep
    if keep:
        assert size > keep / 2
        assert spool.replay_ranges()[0].last_seq == 60


def test_copies_are_bounded_in_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of batches that were acknowledged two days ago are deleted."""
    spool = Spool(tmp_path / "spool.sqlite3")
    delivered(spool, range(3))
    later_at = now_at() + batches.MAX_AGE_US + 1
    monkeypatch.setattr(spool_module, "now_at", lambda: later_at)
    delivered(spool, range(3, 4))
    assert [(one.first_seq, one.last_seq) for one in spool.replay_ranges()] == [(4, 4)]


def test_copies_are_the_first_to_go(tmp_path: Path) -> None:
    """A full spool deletes copies before it drops samples, and counts none."""
    spool = Spool(tmp_path / "spool.sqlite3", limit_bytes=1_000_000)
    for number in range(400):
        spool.record(realistic_sample(number))
        spool.acknowledge(leased(spool))
    assert spool.replay_ranges()
    number = 1000
    while not (dropped := spool.stats().dropped):
        spool.record(realistic_sample(number))
        number += 1
    assert (set(dropped), spool.replay_ranges()) == ({spool_module.SPOOL_FULL}, ())


def test_samples_of_unknown_targets_are_held(tmp_path: Path) -> None:
    """They are sealed apart, and not leased before they are released; the others are delivered."""
    spool = Spool(tmp_path / "spool.sqlite3")
    for number in range(6):
        spool.record(sample(number, target_id=number % 2))
    [batch] = rest(spool)
    assert spool.park(batch, {1})
    [others] = rest(spool)
    assert (others.samples, others.seq > batch.seq, spool.stats().waiting) == (3, True, 6)
    spool.acknowledge(others)
    assert spool.lease() is None
    spool.unpark()
    [held] = rest(spool)
    assert (held.samples, len({batch.seq, others.seq, held.seq})) == (3, 3)
    assert not spool.park(held, {0, 1})
    assert spool.stats().account.holds


def test_samples_of_unknown_targets_are_dropped_after_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only these, counted by reason."""
    spool = Spool(tmp_path / "spool.sqlite3")
    for number in range(4):
        spool.record(sample(number, target_id=number % 2))
    [batch] = rest(spool)
    later_at = now_at() + batches.MAX_PARKED_US + 1
    monkeypatch.setattr(spool_module, "now_at", lambda: later_at)
    assert spool.park(batch, {1})
    stats = spool.stats()
    assert (dict(stats.dropped), stats.waiting, stats.account.holds) == ({"unknown_target": 2}, 2, True)


class _Scenario:
    """A spool, its leased batches, and the batches that a collector has stored, by (epoch, seq)."""

    def __init__(self, path: Path, drain: Drain) -> None:
        self.path = path
        self.drain = drain
        self.spool = self._open()
        self.leased: list[SealedBatch] = []
        self.stored: dict[tuple[int, int], SealedBatch] = {}
        self.recorded = 0
        self.random = Random(1)

    def _open(self) -> Spool:
        return Spool(self.path, limit_bytes=120_000, drain=self.drain)

    def record(self) -> None:
        for _ in range(self.random.choice([1, 3, 60])):
            self.recorded += 1
            text = self.random.randbytes(100).hex()
            self.spool.record(sample(self.recorded, error=text), [Spend(provider="p", day_at=0, requests=1)])

    def lease(self) -> None:
        batch = self.spool.lease(seal=self.random.random() < 0.5)
        if batch is not None:
            self.leased.append(batch)

    def _pop_leased(self) -> SealedBatch | None:
        return self.leased.pop(self.random.randrange(len(self.leased))) if self.leased else None

    def store(self) -> None:
        if (batch := self._pop_leased()) is not None:
            assert self.stored.setdefault((batch.epoch, batch.seq), batch) == batch
            rejected = {"absurd_time": 1} if self.random.random() < 0.2 else {}
            self.spool.acknowledge(batch, rejected=rejected)

    def lose_reply(self) -> None:
        if (batch := self._pop_leased()) is not None:
            assert self.stored.setdefault((batch.epoch, batch.seq), batch) == batch
            self.spool.release(batch)

    def refuse(self) -> None:
        if (batch := self._pop_leased()) is not None:
            if (batch.epoch, batch.seq) in self.stored:
                self.spool.release(batch)
            else:
                self.spool.split(batch, "no")

    def reopen(self) -> None:
        self.spool.close()
        self.leased.clear()
        self.spool = self._open()

    def retry_quarantine(self) -> None:
        self.spool.retry_quarantine()


STEPS: list[Callable[[_Scenario], None]] = [
    _Scenario.record,
    _Scenario.record,
    _Scenario.lease,
    _Scenario.lease,
    _Scenario.store,
    _Scenario.lose_reply,
    _Scenario.refuse,
    _Scenario.reopen,
    _Scenario.retry_quarantine,
]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(STEPS), max_size=60), st.sampled_from(Drain))
def test_the_account_holds_at_every_instant(steps: list[Callable[[_Scenario], None]], drain: Drain) -> None:
    """After any operations finished = stored + spooled + dropped, no number has two batches, and nothing is damaged."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = _Scenario(Path(folder, "spool.sqlite3"), drain)
        for step in steps:
            step(scenario)
            account = scenario.spool.stats().account
            assert account.holds, account
            assert account.finished == scenario.recorded
        scenario.spool.close()
        assert inspection.verify_spool(scenario.path) == []
