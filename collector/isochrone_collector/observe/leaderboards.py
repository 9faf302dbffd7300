"""The targets as each region sees them, ranked."""

import asyncio

from isochrone_collector.leaderboard import Entry, standings
from isochrone_collector.observe.desk import Desk, Question, look_up
from isochrone_collector.store import readers
from isochrone_collector.store.rows import StandingRow
from isochrone_wire.answers import Leaderboard, Selection


async def leaderboard(desk: Desk, selection: Selection) -> Leaderboard:
    """The targets that have samples, ranked by median TTFT within each region."""
    async with desk.database.connection() as connection:
        question = await look_up(connection, selection)
        rows = await readers.standings(connection, question.scope)
    entries = [_entry(row, question) for row in rows]
    return Leaderboard(window=selection.window, standings=await asyncio.to_thread(standings, entries))


def _entry(row: StandingRow, question: Question) -> Entry:
    target = question.targets[row.target_id]
    return Entry(
        region=row.region,
        target=question.names[row.target_id],
        provider=target.provider,
        model=target.model,
        ttft_us=row.ttft_us or (),
        censored_us=row.censored_us or (),
        tokens_per_second=row.tokens_per_second or (),
        failed=row.failed,
        usd_per_m_output=target.usd_per_m_output,
        newest_at=row.newest_at,
    )
