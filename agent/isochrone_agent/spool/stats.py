"""What lies in a spool, counted."""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from isochrone_agent.spool.database import value
from isochrone_wire.accounting import Account


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStats:
    """What lies in the spool, in samples: waiting to be stored, since when (microseconds since the epoch, 0 for none),
    and in quarantine; and its counters. `earlier` of the stored ones were stored under an epoch before this.
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
        """Where all samples are."""
        spooled = self.waiting + self.quarantined
        return Account(finished=self.finished, stored=self.stored, spooled=spooled, dropped=self.dropped)


def read_stats(db: sqlite3.Connection) -> SpoolStats:
    """What the file says of itself, at one instant. Raises `sqlite3.Error`."""
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


def with_unwritten(stats: SpoolStats, unwritten: Counter[str]) -> SpoolStats:
    """The same with the samples that are lost and could not even be counted on disk."""
    dropped = Counter(stats.dropped) + unwritten
    return replace(stats, finished=stats.finished + unwritten.total(), dropped=dict(dropped)) if unwritten else stats
