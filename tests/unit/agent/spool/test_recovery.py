"""A damaged spool is salvaged: no sample twice, no sample altered, every lost sample counted."""

import shutil
import sqlite3
import tempfile
from pathlib import Path
from random import Random

import pytest

from isochrone_agent.spool import database, inspection, recovery
from isochrone_agent.spool.spool import Spool
from isochrone_wire import codec
from isochrone_wire.model import Outcome, Plan, Sample
from isochrone_wire.v1 import sample_pb2

PAGE = database.PAGE_BYTES


def sample(number: int) -> Sample:
    return Sample(
        target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=number, error=Random(number).randbytes(30).hex()
    )


def drained(spool: Spool) -> list[tuple[int, int, list[Sample]]]:
    """(epoch, seq, samples) of every batch."""
    return [
        (one.epoch, one.seq, [codec.decode(Sample, sample_pb2.Sample.FromString(body)) for body in one.bodies])
        for one in iter(spool.lease, None)
    ]


def full_spool(folder: Path) -> tuple[Path, int]:
    """A spool of 30 sealed batches of 40 samples each, two of them stored, and 300 unsealed samples; and its epoch."""
    path = folder / "spool.sqlite3"
    spool = Spool(path)
    for number in range(1500):
        spool.record(sample(number))
        if number % 40 == 39 and number < 1200:
            spool._seal_waiting()
    for _ in range(2):
        batch = spool.lease(seal=False)
        assert batch is not None
        spool.acknowledge(batch)
    spool.save_plan(Plan(version=3, baseline="a"))
    spool.close()
    return path, spool.epoch


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    path, epoch = full_spool(tmp_path_factory.mktemp("whole"))
    return path.read_bytes(), epoch


def damaged_spool(folder: Path) -> Spool:
    """An open spool of three samples, the second of which is damaged."""
    spool = Spool(folder / "spool.sqlite3")
    for number in range(3):
        spool.record(sample(number))
    spool._db.execute("update waiting set body = x'00' where id = 2")
    return spool


def no_room(*_arguments: object, **_named: object) -> None:
    raise OSError(28, "No space left on device")


def damage_page(content: bytearray, chance: Random) -> None:
    page = chance.randrange(1, len(content) // PAGE)
    at, length = page * PAGE + chance.randrange(PAGE // 2), chance.randrange(16, PAGE // 2)
    content[at : at + length] = chance.randbytes(length)


def damage_header(content: bytearray, chance: Random) -> None:
    content[:PAGE] = chance.randbytes(PAGE)


def truncate_file(content: bytearray, chance: Random) -> None:
    del content[chance.randrange(len(content) // 2, len(content)) :]


def replace_all(content: bytearray, chance: Random) -> None:
    content[:] = chance.randbytes(10_000)


@pytest.mark.parametrize("damage", [damage_page, damage_header, truncate_file, replace_all])
@pytest.mark.parametrize("seed", range(8))
def test_readable_samples_are_salvaged(tmp_path: Path, template: tuple[bytes, int], damage: object, seed: int) -> None:
    """Each salvaged sample is unaltered and occurs once, sealed batches keep their number, and the account holds."""
    content, epoch = bytearray(template[0]), template[1]
    damage(content, Random(seed))  # type: ignore[operator]
    path = tmp_path / "spool.sqlite3"
    path.write_bytes(content)
    spool = Spool(path)
    assert spool.stats().account.holds
    spool.record(sample(9999))
    batches = drained(spool)
    assert spool.stats().account.holds
    rounds = [one.round_at for _, _, samples in batches for one in samples]
    assert all(one == sample(one.round_at) for _, _, samples in batches for one in samples)
    assert len(rounds) == len(set(rounds))
    for old_epoch, seq, samples in batches:
        if old_epoch == epoch:
            assert [one.round_at for one in samples] == list(range(40 * (seq - 1), 40 * seq))
    spool.close()
    assert inspection.verify_spool(path) == []


def test_a_lost_header_loses_no_sample(tmp_path: Path, template: tuple[bytes, int]) -> None:
    """SQLite cannot open the file without its first page, but every sample of it is salvaged."""
    content, epoch = bytearray(template[0]), template[1]
    damage_header(content, Random(1))
    (tmp_path / "spool.sqlite3").write_bytes(content)
    spool = Spool(tmp_path / "spool.sqlite3")
    account = spool.stats().account
    assert (account.finished, account.stored, account.spooled, account.dropped) == (1500, 80, 1420, {})
    assert spool.epoch != epoch
    assert spool.stats().earlier == 80
    assert spool.last_plan() == Plan(version=3, baseline="a")
    assert len(list(tmp_path.glob("spool.sqlite3.damaged-*"))) == 1


def test_unreadable_samples_are_counted(tmp_path: Path, template: tuple[bytes, int]) -> None:
    """A batch on a damaged page is dropped as `spool_damaged`; the other batches remain."""
    content = bytearray(template[0])
    (tmp_path / "spool.sqlite3").write_bytes(content)
    with sqlite3.connect(tmp_path / "spool.sqlite3") as db:
        (body,) = db.execute("select body from sealed where seq = 7").fetchone()
    db.close()
    at = content.index(body[-300:])
    content[at : at + 100] = bytes(100)
    (tmp_path / "spool.sqlite3").write_bytes(content)
    spool = Spool(tmp_path / "spool.sqlite3")
    batches = drained(spool)
    assert (template[1], 7) not in {(epoch, seq) for epoch, seq, _ in batches}
    assert spool.stats().account.dropped == {"spool_damaged": 40}
    assert spool.stats().account.holds


def test_damage_while_running_is_salvaged_too(tmp_path: Path) -> None:
    """A sample damaged under a running agent is detected before its delivery; recording continues in a new file."""
    spool = damaged_spool(tmp_path)
    batch = spool.lease()
    assert batch is not None
    assert (batch.samples, spool.stats().account.dropped) == (2, {"spool_damaged": 1})
    spool.record(sample(3))
    assert spool.stats().account.holds
    spool.close()
    assert inspection.verify_spool(tmp_path / "spool.sqlite3") == []


@pytest.mark.parametrize("done", ["", "-wal", "all"])
def test_an_interrupted_salvage_is_completed(tmp_path: Path, template: tuple[bytes, int], done: str) -> None:
    """A crash after the new file is written and before it replaces the old one loses and repeats no sample."""
    path = tmp_path / "spool.sqlite3"
    content = bytearray(template[0])
    damage_header(content, Random(1))
    path.write_bytes(content)
    recovery.salvage(path, "test", make_room=lambda: None)
    path.rename(tmp_path / "spool.sqlite3.salvaged")
    if done != "all":
        path.write_bytes(content)
    (tmp_path / "spool.sqlite3-wal").write_bytes(b"old log" if done == "" else b"")
    spool = Spool(path)
    assert (spool.stats().account.finished, spool.stats().account.spooled) == (1500, 1420)


def test_damaged_files_do_not_accumulate(tmp_path: Path) -> None:
    """Only the three newest damaged files are kept."""
    path = tmp_path / "spool.sqlite3"
    for number in range(6):
        for file in tmp_path.glob("spool.sqlite3.damaged-*"):
            file.rename(file.with_name(file.name[:-1] + str(number)))
        path.write_bytes(bytes(8192))
        Spool(path).close()
    assert 1 <= len(list(tmp_path.glob("spool.sqlite3.damaged-*"))) <= 3


@pytest.mark.parametrize("is_writable", [True, False])
def test_salvage_without_room_for_a_copy(tmp_path: Path, *, is_writable: bool) -> None:
    """Without room the file is read in place; samples that cannot be written are counted and stay in it."""
    spool = damaged_spool(tmp_path)
    with pytest.MonkeyPatch.context() as disk:
        disk.setattr(shutil, "copyfile", no_room)
        if not is_writable:
            disk.setattr(recovery, "_copy_readable", no_room)
        assert (spool.lease() is not None) == is_writable
    spool.record(sample(3))
    lost = 1 if is_writable else 3
    assert (spool.stats().account.dropped, spool.stats().account.holds) == ({"spool_damaged": lost}, True)
    assert spool.stats().waiting == 4 - lost
    assert len(list(tmp_path.glob("spool.sqlite3.damaged-*"))) >= 1


def test_a_failed_salvage_is_tried_again(tmp_path: Path) -> None:
    """If not even an empty spool can be written, the call fails; the next call that finds room salvages the spool."""
    spool = damaged_spool(tmp_path)
    with pytest.MonkeyPatch.context() as disk:
        disk.setattr(tempfile, "TemporaryDirectory", no_room)
        with pytest.raises(OSError, match="No space"):
            spool.lease()
    spool.record(sample(3))
    batch = spool.lease()
    assert batch is not None
    account = spool.stats().account
    assert (batch.samples, account.dropped, account.holds) == (3, {"spool_damaged": 1}, True)
