"""What goes first when a spool has no room: what nobody waits for, then what the collector surely does not have.

Everything here is a part of a transaction of the caller, and counts what it takes. Raises `sqlite3.Error`.
"""

import sqlite3
from collections.abc import Collection, Mapping

import structlog

QUARANTINE_FULL = "quarantine_full"

# About as much as a batch, so that a large quarantine does not go in a thousand steps.
_QUARANTINED_AT_ONCE = 100

log = structlog.get_logger()


def drop_oldest(db: sqlite3.Connection, reason: str, *, leased: Collection[int], tried: set[int]) -> bool:
    """Give up the oldest in quarantine; else the oldest batch that is not on its way, one that was never `tried` if
    there is any; else the older half of what waits. Whether there was any. A batch that goes is no more in `tried`.
    """
    if samples := _drop_quarantined(db):
        reason = QUARANTINE_FULL
    else:
        samples = _drop_sealed(db, leased, tried) or _drop_waiting(db)
    if samples:
        count_dropped(db, {reason: samples})
        log.warning("samples.dropped", reason=reason, samples=samples)
    return bool(samples)


def count_dropped(db: sqlite3.Connection, reasons: Mapping[str, int]) -> None:
    """Add to the counts of samples that were given up, by reason."""
    db.executemany(
        "insert into dropped values (?, ?) on conflict (reason) do update set samples = samples + excluded.samples",
        [(reason, samples) for reason, samples in reasons.items() if samples],
    )


def _drop_quarantined(db: sqlite3.Connection) -> int:
    oldest = "select id from quarantine order by id limit ?"
    return db.execute(f"delete from quarantine where id in ({oldest})", (_QUARANTINED_AT_ONCE,)).rowcount  # noqa: S608  # our own words


def _drop_sealed(db: sqlite3.Connection, leased: Collection[int], tried: set[int]) -> int:
    on_their_way, perhaps_there = ",".join(map(str, leased)), ",".join(map(str, tried))
    oldest = f"select id from sealed where id not in ({on_their_way}) order by id in ({perhaps_there}), id limit 1"  # noqa: S608  # our own numbers
    rows = db.execute(f"delete from sealed where id = ({oldest}) returning id, samples").fetchall()  # noqa: S608  # as above
    tried.difference_update(number for number, _ in rows)
    return sum(samples for _, samples in rows)


def _drop_waiting(db: sqlite3.Connection) -> int:
    """Never the newest: it is what is being recorded."""
    rows = db.execute("select id from waiting order by id").fetchall()
    given_up = rows[: len(rows) // 2]
    if given_up:
        db.execute("delete from waiting where id <= ?", given_up[-1])
    return len(given_up)
