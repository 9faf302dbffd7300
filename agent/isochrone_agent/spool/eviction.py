"""Eviction when a spool has no room: copies of delivered batches first, then the quarantine, then batches that the
collector certainly does not have.

All functions run inside a transaction of the caller and count what they drop. They raise `sqlite3.Error`.
"""

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping

import structlog

from isochrone_agent.spool import kept_batches
from isochrone_wire.model import DAY_US

QUARANTINE_FULL = "quarantine_full"
UNKNOWN_TARGET = "unknown_target"
OTHER = "other"
MAX_REASONS = 50
"""The number of reasons from which on samples with another reason are counted as `OTHER`."""
MAX_HELD_US = 7 * DAY_US
"""The age in microseconds from which samples of a target that the collector does not know are dropped."""

_REASON_CHARS = 40
# About the size of a batch, so that a large quarantine is not dropped in a thousand steps.
_QUARANTINED_AT_ONCE = 100

log = structlog.get_logger()


def drop_oldest(db: sqlite3.Connection, reason: str, *, leased: Collection[int], ever_leased: set[int]) -> bool:
    """Drop the oldest copies of delivered batches; else the oldest samples of the quarantine; else the oldest batch
    that is not `leased`, preferably one that is not in `ever_leased`; else the older half of the waiting samples.
    Return whether anything was dropped.

    Removes a dropped batch from `ever_leased`.
    """
    if kept_batches.drop_oldest(db):
        return True
    if samples := _drop_quarantined(db):
        reason = QUARANTINE_FULL
    else:
        samples = _drop_sealed(db, leased, ever_leased) or _drop_waiting(db)
    if samples:
        count_dropped(db, {reason: samples})
        log.warning("samples.dropped", reason=reason, samples=samples)
    return bool(samples)


def count_dropped(db: sqlite3.Connection, reasons: Mapping[str, int]) -> None:
    """Add to the counts of dropped samples, by reason."""
    db.executemany(
        "insert into dropped values (?, ?) on conflict (reason) do update set samples = samples + excluded.samples",
        [(reason, samples) for reason, samples in reasons.items() if samples],
    )


def bounded_reasons(db: sqlite3.Connection, reasons: Mapping[str, int]) -> Counter[str]:
    """Return counts by reason under short names, and under `OTHER` once the spool has `MAX_REASONS` of them: every push
    has these counts, and a hostile collector could make it too large.
    """
    known = {name for (name,) in db.execute("select reason from dropped")} if reasons else set()
    bounded: Counter[str] = Counter()
    for reason, samples in reasons.items():
        name = reason[:_REASON_CHARS]
        if name not in known and len(known) >= MAX_REASONS:
            name = OTHER
        known.add(name)
        bounded[name] += samples
    return bounded


def _drop_quarantined(db: sqlite3.Connection) -> int:
    oldest = "select id from quarantine order by id limit ?"
    return db.execute(f"delete from quarantine where id in ({oldest})", (_QUARANTINED_AT_ONCE,)).rowcount  # noqa: S608  # our own words


def _drop_sealed(db: sqlite3.Connection, leased: Collection[int], ever_leased: set[int]) -> int:
    in_flight, maybe_stored = ",".join(map(str, leased)), ",".join(map(str, ever_leased))
    oldest = f"select id from sealed where id not in ({in_flight}) order by id in ({maybe_stored}), id limit 1"  # noqa: S608  # our own numbers
    rows = db.execute(f"delete from sealed where id = ({oldest}) returning id, samples").fetchall()  # noqa: S608  # as above
    ever_leased.difference_update(number for number, _ in rows)
    return sum(samples for _, samples in rows)


def _drop_waiting(db: sqlite3.Connection) -> int:
    """Drop the older half, but never the newest: it is the one being recorded."""
    rows = db.execute("select id from waiting order by id").fetchall()
    older_half = rows[: len(rows) // 2]
    if older_half:
        db.execute("delete from waiting where id <= ?", older_half[-1])
    return len(older_half)
