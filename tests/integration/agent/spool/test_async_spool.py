"""The spool under asyncio: disk errors become `SpoolError`, and new samples end the wait for more."""

from pathlib import Path

import pytest

from isochrone_agent.errors import SpoolError
from isochrone_agent.spool.async_spool import AsyncSpool
from isochrone_wire.model import Outcome, Sample

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
