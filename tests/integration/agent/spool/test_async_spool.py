"""The spool under a running loop: what goes wrong on disk is told as what it is."""

from pathlib import Path

import pytest

from isochrone_agent.errors import SpoolError
from isochrone_agent.spool.async_spool import AsyncSpool
from isochrone_wire.model import Outcome, Sample

SAMPLE = Sample(target_id=1, round_at=1, outcome=Outcome.OK, dispatched_at=1)


async def test_a_spool_that_fails_later_is_a_spool_error(tmp_path: Path) -> None:
    """A disk that refuses in the middle of the run is an error with a hint, for reading and for writing alike."""
    async with AsyncSpool(tmp_path / "spool.sqlite3") as spool:
        await spool.record(SAMPLE)
        spool._spool._db.execute("drop table waiting")
        with pytest.raises(SpoolError, match="spool") as caught:
            await spool.lease()
        assert "disk" in caught.value.hint
        with pytest.raises(SpoolError):
            await spool.record(SAMPLE)


async def test_whoever_waits_is_woken(tmp_path: Path) -> None:
    """A recorded sample ends the wait for more; without one the wait ends by itself."""
    async with AsyncSpool(tmp_path / "spool.sqlite3") as spool:
        await spool.record(SAMPLE)
        await spool.wait_for_more(60)
        await spool.wait_for_more(0.01)
        batch = await spool.lease()
        assert batch is not None
        assert batch.samples == 1
