"""What an agent has spent, by provider and day, in the file of its spool.

Where a budget holds the most of a request is written before it is sent, and corrected with its sample: what an agent
had in flight when it was killed stays charged.
"""

import sqlite3

from isochrone_wire.model import DAY_US, Spend

_KEPT_DAYS = 40


def add(db: sqlite3.Connection, spend: Spend) -> None:
    """Count `spend`, which is negative where a reservation is taken back, in the transaction that is open."""
    # Never below nothing: salvage may have lost the row that is corrected, and sums of floats are not exact.
    db.execute(
        "insert into spend values (?, ?, max(0.0, ?), max(0, ?), max(0, ?)) on conflict (day_at, provider) do update "
        "set usd = max(0.0, usd + ?), tokens = max(0, tokens + ?), requests = max(0, requests + ?)",
        (spend.day_at, spend.provider, *(spend.usd, spend.tokens, spend.requests) * 2),
    )
    db.execute("delete from spend where day_at < ?", (spend.day_at - _KEPT_DAYS * DAY_US,))


def read(db: sqlite3.Connection, day_at: int) -> tuple[Spend, ...]:
    """What the day (UTC) that began at `day_at` has cost so far, by provider, with what is reserved."""
    query = "select provider, usd, tokens, requests from spend where day_at = ? order by provider"
    return tuple(
        Spend(provider=provider, day_at=day_at, usd=usd, tokens=tokens, requests=requests)
        for provider, usd, tokens, requests in db.execute(query, (day_at,)).fetchall()
    )
