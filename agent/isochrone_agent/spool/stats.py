"""Statistics of a spool: the samples it holds and its counters."""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from isochrone_agent.spool.database import value
from isochrone_wire.accounting import Account


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStats:
    """Numbers of samples: waiting for delivery, in quarantine, finished (ever recorded), stored by the collector,
    `earlier` (of the stored ones, those stored under an earlier epoch), and dropped by reason. `oldest_at` is when the
    oldest waiting sample was recorded, in microseconds since the epoch; 0 if none waits.
    """

    waiting: int
    oldest_at: int
    quarantined: int
    finished: int
    stored: int
    earlier: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def account(self) -> Account:
        """The account of all samples."""
        spooled = self.waiting + self.quarantined
        return Account(finished=self.finished, stored=self.stored, spooled=spooled, dropped=self.dropped)


def read_stats(db: sqlite3.Connection) -> SpoolStats:
    """Read the statistics at one instant. Raises `sqlite3.Error`."""
    db.execute("begin")
    try:
        waiting, waiting_at = db.execute("select count(*), min(recorded_at) from waiting").fetchone()
        sealed, sealed_at = db.execute("select coalesce(sum(samples), 0), min(oldest_at) from sealed").fetchone()
        finished, stored, earlier = db.execute("select finished, stored, earlier from spool").fetchone()
        quarantined = value(db, "select count(*) from quarantine")
        dropped = dict(db.execute("select reason, samples from dropped order by reason").fetchall())
    finally:
        db.execute("rollback")
    return SpoolStats(
        waiting=waiting + sealed,
        oldest_at=min((at for at in (waiting_at, sealed_at) if at is not None), default=0),
        quarantined=quarantined,
        finished=finished,
        stored=stored,
        earlier=earlier,
        dropped=dropped,
    )


def with_uncounted(stats: SpoolStats, uncounted: Counter[str]) -> SpoolStats:
    """`stats` plus the lost samples that could not be counted on disk yet, by reason."""
    dropped = Counter(stats.dropped) + uncounted
    return replace(stats, finished=stats.finished + uncounted.total(), dropped=dict(dropped)) if uncounted else stats
