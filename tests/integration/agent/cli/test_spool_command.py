"""`isochrone-agent spool` tells what lies in a spool, also while an agent has it open."""

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from isochrone_agent.cli.main import cli
from isochrone_agent.settings import Drain
from isochrone_agent.spool.spool import Spool
from isochrone_wire.model import Outcome, Sample


def spool(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["spool", *words, "--data-dir", str(folder)])


@pytest.fixture
def open_spool(tmp_path: Path) -> Spool:
    """Three samples sealed, of which one is in quarantine, and two unsealed; still open."""
    opened = Spool(tmp_path / "spool.sqlite3")
    for number in range(3):
        opened.record(Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=number))
    for _ in range(2):
        batch = opened.lease()
        assert batch is not None
        opened.split(batch, "INVALID_ARGUMENT: not this one")
    for number in range(3, 5):
        opened.record(Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=number))
    return opened


def test_inspect_tells_what_lies_there(open_spool: Spool, tmp_path: Path) -> None:
    """SpoolStats, epochs, quarantine and account, as text and as JSON, while the spool is open."""
    text = spool(tmp_path, "inspect")
    document = json.loads(spool(tmp_path, "inspect", "--output", "json").stdout)
    assert text.exit_code == 0
    assert "not this one" in text.stdout
    assert "account       holds" in text.stdout
    stats = open_spool.stats()
    assert document["schema"] == "isochrone.spool/1"
    assert (document["depth"]["waiting"], document["unsealed"], document["holds"]) == (stats.waiting, 2, True)
    assert document["sealed"][0]["epoch"] == document["epoch"] == open_spool.epoch


def test_verify_says_what_is_wrong(open_spool: Spool, tmp_path: Path) -> None:
    """A sound spool is exit 0; a garbled sample, a broken account and a torn file are sentences and exit 1."""
    assert spool(tmp_path, "verify").exit_code == 0
    open_spool._db.execute("update waiting set body = x'00' where id = 5")
    open_spool._db.execute("update spool set finished = finished + 1")
    open_spool.close()
    wrong = spool(tmp_path, "verify", "--output", "json")
    problems = "\n".join(json.loads(wrong.stdout)["problems"])
    assert wrong.exit_code == 1
    assert "wrong checksum" in problems
    assert "1 samples are missing" in problems
    with (tmp_path / "spool.sqlite3").open("r+b") as file:
        file.write(os.urandom(100))
    assert spool(tmp_path, "verify").exit_code == 1


def test_quarantine_can_be_looked_at_and_retried(open_spool: Spool, tmp_path: Path) -> None:
    """Quarantine is exported with its reasons, and retried when the agent is stopped; a folder without one stays so."""
    line = json.loads(spool(tmp_path, "quarantine", "export").stdout.splitlines()[0])
    assert (line["reason"], line["sample"]["outcome"]) == ("INVALID_ARGUMENT: not this one", "ok")
    assert "in use by the agent" in spool(tmp_path, "quarantine", "retry").output
    open_spool.close()
    assert "1 samples will be delivered again" in spool(tmp_path, "quarantine", "retry").output
    again = Spool(tmp_path / "spool.sqlite3")
    assert (again.stats().quarantined, again.stats().waiting, again.stats().account.holds) == (0, 5, True)
    result = spool(tmp_path / "nowhere", "inspect")
    assert (result.exit_code, (tmp_path / "nowhere").exists()) == (1, False)
    assert "there is no spool at" in result.output


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A file system of 16 MB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a disk takes root")
    return folder


def test_a_damaged_spool_without_room_for_another_stops_nothing(small_disk: Path) -> None:
    """The damaged file is kept, its samples are counted, and recording goes on, also after a restart."""
    try:
        opened = Spool(small_disk / "spool.sqlite3", drain=Drain.OLDEST)
        recorded = 0
        while (small_disk / "spool.sqlite3").stat().st_size < 7_000_000:
            text = os.urandom(2000).hex()
            opened.record(Sample(target_id=1, round_at=recorded, outcome=Outcome.OK, dispatched_at=1, error=text))
            recorded += 1
        opened._db.execute("update sealed set checksum = checksum + 1 where id = (select min(id) from sealed)")
        with (small_disk / "ballast").open("wb", buffering=0) as file:
            while os.statvfs(small_disk).f_bavail * 4096 > 1_000_000:
                file.write(bytes(4096))
        assert opened.lease() is None
        for number in range(20):
            opened.record(Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=1))
        batch = opened.lease()
        assert batch is not None
        opened.acknowledge(batch)
        opened.close()
        opened = Spool(small_disk / "spool.sqlite3")
        account = opened.stats().account
        opened.close()
        assert (account.finished, account.stored, account.holds) == (recorded + 20, 20, True)
        assert account.dropped == {"spool_damaged": recorded}
        assert len(list(small_disk.glob("*damaged-*"))) >= 1
        assert spool(small_disk, "verify").exit_code == 0
    finally:
        subprocess.run(["umount", "-l", small_disk], check=True)


def test_a_disk_that_fills_up_costs_what_it_must(small_disk: Path) -> None:
    """With no room left recording and delivering go on at the cost of the oldest, counted; no new sample is refused."""
    try:
        opened = Spool(small_disk / "spool.sqlite3")
        for number in range(50):
            opened.record(Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=number))
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        for number in range(50, 4000):
            text = os.urandom(300).hex()
            opened.record(Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=1, error=text))
        newest = opened.lease()
        assert newest is not None
        opened.acknowledge(newest)
        assert (opened.stats().account.stored, opened.stats().account.holds) == (newest.samples, True)
        opened.close()
        opened = Spool(small_disk / "spool.sqlite3")
        ballast.unlink()
        opened.record(Sample(target_id=1, round_at=4000, outcome=Outcome.OK, dispatched_at=1))
        account = opened.stats().account
        opened.close()
        assert (account.finished, account.holds, account.dropped["disk_full"] > 0) == (4001, True, True)
        assert spool(small_disk, "verify").exit_code == 0
    finally:
        subprocess.run(["umount", "-l", small_disk], check=True)
