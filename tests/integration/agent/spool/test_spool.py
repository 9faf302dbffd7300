"""`kill -9` of a process that writes a spool, at random moments: no committed sample is lost or changed."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from isochrone_agent.errors import SpoolError
from isochrone_agent.spool import inspection, recovery
from isochrone_agent.spool.database import PAGE_BYTES
from isochrone_agent.spool.spool import AsyncSpool, Spool
from isochrone_wire import codec
from isochrone_wire.model import Outcome, Sample
from isochrone_wire.v1 import sample_pb2

KILLS = 12
# Records, seals, stores and splits as fast as possible, and prints each commit after it was made.
WRITER = """
import sys
from pathlib import Path
from isochrone_agent.spool.spool import Spool
from isochrone_wire.model import Outcome, Sample
spool = Spool(Path(sys.argv[1]))
number = int(sys.argv[2])
def report(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()
while True:
    number += 1
    spool.record(Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=number))
    report("recorded", number)
    if number % 7 == 0:
        batch = spool.lease()
        if number % 3 == 0:
            spool.split(batch, "no")
        else:
            report("storing", batch.samples)
            spool.acknowledge(batch)
            report("stored", batch.samples)
"""


def test_committed_samples_survive_a_kill(tmp_path: Path) -> None:
    """After every kill the spool opens without salvage, the account holds, and it includes every reported sample and at
    most one more, which was being written. A copy of a log with a half-written frame may be kept, because a bad disk
    looks the same.
    """
    path = tmp_path / "spool.sqlite3"
    chance = Random(7)
    recorded = stored = storing = 0
    for _ in range(KILLS):
        words = _until_killed(path, recorded, chance.uniform(0.02, 0.2))
        recorded = max([recorded, *(int(word[1]) for word in words if word[0] == "recorded")])
        stored += sum(int(word[1]) for word in words if word[0] == "stored")
        storing += sum(int(word[1]) for word in words if word[0] == "storing")
        assert inspection.verify_spool(path) == []
        spool = Spool(path)
        account = spool.stats().account
        spool.close()
        assert account.holds
        assert recorded <= account.finished <= recorded + KILLS
        assert stored <= account.stored <= storing
    assert recorded > KILLS
    assert [file.name for file in tmp_path.glob("*damaged*") if not file.name.endswith("-wal")] == []


def _until_killed(path: Path, number: int, seconds: float) -> list[list[str]]:
    command = [sys.executable, "-c", WRITER, str(path), str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(seconds)
        writer.kill()
        # Without the last line, which may be incomplete.
        lines = [first, *writer.stdout.read().split("\n")[:-1]]
    return [line.split() for line in lines if len(line.split()) == 2]


# Stores two batches of three samples, records three more, and exits without closing the spool.
EXITING_WRITER = """
import os, sys
from pathlib import Path
from isochrone_agent.spool.spool import Spool
from isochrone_wire.model import Outcome, Sample
spool = Spool(Path(sys.argv[1]))
for number in range(1, 10):
    spool.record(Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=number))
    if number in (3, 6):
        batch = spool.lease()
        print(batch.epoch, batch.seq, flush=True)
        spool.acknowledge(batch)
os._exit(9)
"""


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[tuple[int, int]]]:
    """The folder of a spool with a write-ahead log, and the batch numbers that a collector has stored."""
    folder = tmp_path_factory.mktemp("left")
    command = [sys.executable, "-c", EXITING_WRITER, str(folder / "spool.sqlite3")]
    output = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False).stdout
    lines = [line.split() for line in output.splitlines()]
    return folder, {(int(line[0]), int(line[1])) for line in lines if len(line) == 2}


def _copied(left_behind: Path, folder: Path) -> tuple[Path, bytearray]:
    for name in ("spool.sqlite3", "spool.sqlite3-wal"):
        shutil.copyfile(left_behind / name, folder / name)
    return folder / "spool.sqlite3", bytearray((left_behind / "spool.sqlite3-wal").read_bytes())


def _rounds(spool: Spool, seen: set[tuple[int, int]]) -> list[int]:
    """Deliver all batches to a collector that has stored the batches `seen`; return their rounds."""
    found = list[int]()
    while (batch := spool.lease()) is not None:
        assert (batch.epoch, batch.seq) not in seen
        found += [codec.decode(Sample, sample_pb2.Sample.FromString(body)).round_at for body in batch.bodies]
        spool.acknowledge(batch)
    return found


@pytest.mark.parametrize("place", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, "header"])
def test_a_damaged_log_causes_no_silent_loss(
    left_behind: tuple[Path, set[tuple[int, int]]], tmp_path: Path, place: float | str
) -> None:
    """An invalid frame loses at most its own content, counted; later samples get numbers that are new."""
    folder, seen = left_behind
    path, log = _copied(folder, tmp_path)
    frame_bytes = recovery.FRAME_HEADER_BYTES + PAGE_BYTES
    frames = (len(log) - recovery.HEADER_BYTES) // frame_bytes
    at = 10 if isinstance(place, str) else recovery.HEADER_BYTES + int(frames * place) * frame_bytes + 2000
    log[at] ^= 0xFF
    Path(f"{path}-wal").write_bytes(log)
    spool = Spool(path)
    account = spool.stats().account
    assert (account.finished, account.holds) == (9, True)
    [log_copy] = tmp_path.glob("spool.sqlite3.damaged-*-wal")
    assert inspection.inspect_spool(path).damaged_files == ((str(log_copy).removesuffix("-wal")),)
    for number in (101, 102):
        spool.record(Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=number))
    rounds = _rounds(spool, seen)
    assert set(rounds) >= {101, 102}
    assert len(rounds) == len(set(rounds)) == account.spooled + 2
    assert not set(rounds) & set(range(1, 7))
    spool.close()
    assert inspection.verify_spool(path) == []


def test_a_truncated_log_is_not_damage(left_behind: tuple[Path, set[tuple[int, int]]], tmp_path: Path) -> None:
    """After a crash that truncates the log at a random byte, the spool opens with what was committed before."""
    chance = Random(3)
    for turn in range(12):
        (tmp_path / str(turn)).mkdir()
        path, log = _copied(left_behind[0], tmp_path / str(turn))
        Path(f"{path}-wal").write_bytes(log[: chance.randrange(len(log))])
        spool = Spool(path)
        assert spool.stats().account.holds
        spool.close()
        assert not list(path.parent.glob("*damaged*"))


def test_a_damaged_last_transaction_is_dropped(left_behind: tuple[Path, set[tuple[int, int]]], tmp_path: Path) -> None:
    """A crash may have cut it off, so the spool is not salvaged; only a copy of the log is kept."""
    path, log = _copied(left_behind[0], tmp_path)
    log[-100] ^= 0xFF
    Path(f"{path}-wal").write_bytes(log)
    spool = Spool(path)
    assert (spool.stats().account.finished, spool.stats().account.holds) == (8, True)
    assert [file.name.endswith("-wal") for file in tmp_path.glob("*damaged*")] == [True]
    assert inspection.inspect_spool(path).damaged_files == ()


def test_the_log_is_read_as_sqlite_reads_it(left_behind: tuple[Path, set[tuple[int, int]]], tmp_path: Path) -> None:
    """After any flipped byte SQLite reads as many frames as `valid_frames`."""
    chance = Random(5)
    for turn in range(20):
        (tmp_path / str(turn)).mkdir()
        path, log = _copied(left_behind[0], tmp_path / str(turn))
        log[chance.randrange(len(log))] ^= 0xFF
        Path(f"{path}-wal").write_bytes(log)
        valid = recovery.read_log(bytes(log), PAGE_BYTES).valid_frames
        with sqlite3.connect(path) as db:
            _, _, moved = db.execute("pragma wal_checkpoint(passive)").fetchone()
        db.close()
        assert moved == valid


SAMPLE = Sample(target_id=1, round_at=1, outcome=Outcome.OK, dispatched_at=1)


async def test_a_failing_disk_is_a_spool_error(tmp_path: Path) -> None:
    """A disk that fails during the run is an error with a hint, for reads and for writes."""
    async with AsyncSpool(tmp_path / "spool.sqlite3") as spool:
        await spool.record(SAMPLE)
        spool._spool._db.execute("drop table waiting")
        with pytest.raises(SpoolError, match="spool") as caught:
            await spool.lease()
        assert "disk" in caught.value.hint
        with pytest.raises(SpoolError):
            await spool.record(SAMPLE)


async def test_a_sample_ends_the_wait(tmp_path: Path) -> None:
    """A recorded sample ends `wait_for_more`; without one it ends after its timeout."""
    async with AsyncSpool(tmp_path / "spool.sqlite3") as spool:
        await spool.record(SAMPLE)
        await spool.wait_for_more(60)
        await spool.wait_for_more(0.01)
        batch = await spool.lease()
        assert batch is not None
        assert batch.samples == 1
