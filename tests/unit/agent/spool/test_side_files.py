"""The files beside a spool: one agent at a time may open it, and only as the user who owns it."""

import os
from pathlib import Path

import pytest

from isochrone_agent.errors import SpoolError
from isochrone_agent.spool.database import RESERVE_BYTES, DiskReserve
from isochrone_agent.spool.spool import Spool
from isochrone_wire.model import Outcome, Sample


def test_a_second_agent_is_refused(tmp_path: Path) -> None:
    """A spool in use is refused with the pid of its agent; after that agent has closed it, it can be opened."""
    first = Spool(tmp_path / "spool.sqlite3")
    first.record(Sample(target_id=1, round_at=1, outcome=Outcome.OK, dispatched_at=1))
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
        assert DiskReserve(spool).allocate()
        assert file.stat().st_size == RESERVE_BYTES
    DiskReserve(spool).release()
    assert not file.exists()
