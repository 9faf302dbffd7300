"""The chore that counts the accounts of vantages anew which a collector of the version before did not add to.

While both run on one database, each stores some of the batches of a vantage, and only the newer one adds to its
account. Batches are looked at for a while longer than they are new, because they are not committed in the order in
which they were received.
"""

from collections.abc import Callable

from isochrone_collector.store import job_progress, ledger
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.model import MINUTE_US

EVERY_US = 10 * MINUTE_US
RECOUNTED = "account.recounted"
"""The name under which it is recorded until when batches were looked at."""

# Longer than a push waits for its commit.
_OVERLAP_US = 2 * MINUTE_US


class Recount:
    """Counts what is not right yet whenever it is run; the first time over all of the ledger."""

    def __init__(self, *, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    async def run(self) -> None:
        """Count the accounts anew that batches of an earlier version belong to. Raises `DatabaseUnavailable`."""
        at = self._clock()
        async with self._database.connection() as connection:
            done_until = (await job_progress.read(connection)).get(RECOUNTED, 0)
        await ledger.recount(self._database, received_at=max(0, done_until - _OVERLAP_US))
        async with self._database.connection() as connection:
            await job_progress.advance(connection, RECOUNTED, at)
