"""Copies of acknowledged batches are bounded, and are delivered again under their numbers when they are missing."""

from pathlib import Path

import pytest

from isochrone_agent.clock import now_at
from isochrone_agent.settings import Drain
from isochrone_agent.spool import batches, database
from isochrone_agent.spool import spool as spool_module
from isochrone_agent.spool.database import SealedBatch
from isochrone_agent.spool.spool import Spool
from isochrone_wire.model import BatchRange, Outcome, Sample
from testdata.samples import realistic_sample


def sample(number: int, target: int = 1) -> Sample:
    return Sample(target_id=target, round_at=number, outcome=Outcome.OK, dispatched_at=number)


def delivered(spool: Spool, numbers: range, **rejected: int) -> list[SealedBatch]:
    """Record samples and acknowledge each in a batch of its own."""
    batches = []
    for number in numbers:
        spool.record(sample(number))
        batch = spool.lease()
        assert batch is not None
        spool.acknowledge(batch, rejected=rejected)
        batches.append(batch)
    return batches


def rest(spool: Spool) -> list[SealedBatch]:
    """Lease everything that is sealed."""
    batches = []
    while (batch := spool.lease()) is not None:
        batches.append(batch)
    return batches


def test_missing_batches_are_delivered_again(tmp_path: Path) -> None:
    """The batches that the collector lacks are sealed again, unchanged, after a restart too; the account holds."""
    path = tmp_path / "spool.sqlite3"
    spool = Spool(path, drain=Drain.OLDEST)
    batches = delivered(spool, range(5))
    assert spool.replay_ranges() == (BatchRange(epoch=spool.epoch, first_seq=1, last_seq=5),)
    spool.close()
    again = Spool(path, drain=Drain.OLDEST)
    assert again.redeliver([BatchRange(epoch=batches[0].epoch, first_seq=3, last_seq=9)]) == 3
    stats = again.stats()
    assert (stats.stored, stats.earlier, stats.waiting, stats.account.holds) == (2, 2, 3, True)
    assert again.replay_ranges() == (BatchRange(epoch=batches[0].epoch, first_seq=1, last_seq=2),)
    resent = rest(again)
    assert resent == batches[2:]
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
        batch = spool.lease()
        assert batch is not None
        spool.acknowledge(batch)
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
        spool.record(sample(number, target=number % 2))
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
        spool.record(sample(number, target=number % 2))
    [batch] = rest(spool)
    later_at = now_at() + batches.MAX_PARKED_US + 1
    monkeypatch.setattr(spool_module, "now_at", lambda: later_at)
    assert spool.park(batch, {1})
    stats = spool.stats()
    assert (dict(stats.dropped), stats.waiting, stats.account.holds) == ({"unknown_target": 2}, 2, True)
