"""What an agent has spent, by provider and day, in the file of its spool: written with the sample that cost it."""

import sqlite3

from isochrone_wire.model import DAY_US, Sample, Spend

_KEPT_DAYS = 40


def add(db: sqlite3.Connection, sample: Sample, provider: str) -> None:
    """Count what `sample` cost at `provider`, in the transaction that is open; a skipped round is no request."""
    day_at = sample.dispatched_at - sample.dispatched_at % DAY_US
    tokens = (sample.prompt_tokens or 0) + (sample.output_tokens or 0)
    db.execute(
        "insert into spend values (?, ?, ?, ?, ?) on conflict (day_at, provider) do update set "
        "usd = usd + excluded.usd, tokens = tokens + excluded.tokens, requests = requests + excluded.requests",
        (day_at, provider, sample.cost_usd or 0.0, tokens, 0 if sample.outcome.skipped else 1),
    )
    db.execute("delete from spend where day_at < ?", (day_at - _KEPT_DAYS * DAY_US,))


def read(db: sqlite3.Connection, day_at: int) -> tuple[Spend, ...]:
    """What the day (UTC) that began at `day_at` has cost so far, by provider."""
    query = "select provider, usd, tokens, requests from spend where day_at = ? order by provider"
    return tuple(
        Spend(provider=provider, day_at=day_at, usd=usd, tokens=tokens, requests=requests)
        for provider, usd, tokens, requests in db.execute(query, (day_at,)).fetchall()
    )
