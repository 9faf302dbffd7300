"""What answers that weigh targets against each other start from: an entry per target and region that has samples."""

from collections.abc import Sequence
from dataclasses import dataclass

from isochrone_collector.analysis.ranking.leaderboard import Entry
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, look_up
from isochrone_collector.store import leaderboards, long_windows
from isochrone_collector.store.leaderboards import Seen
from isochrone_wire.answers import Selection, Source, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """The entries of a window, and what they were made from."""

    window: Window
    entries: tuple[Entry, ...]
    source: Source


async def field(desk: QueryContext, selection: Selection) -> Field:
    """Every target of the selection as each of its regions sees it. Long windows, and those whose samples are gone, are
    answered from summaries; then the window may begin later than the one asked for.
    """
    async with desk.database.connection() as connection:
        question = await look_up(connection, selection)
        past = await long_windows.retrospect(connection, question.scope)
        if past is not None:
            return _field(past.window, past.seen, question, source=Source.SUMMARIES)
        rows = await leaderboards.standings(connection, question.scope)
    return _field(selection.window, rows, question, source=Source.SAMPLES)


def _field(window: Window, rows: Sequence[Seen], question: ResolvedSelection, *, source: Source) -> Field:
    return Field(window=window, entries=tuple(_entry(row, question) for row in rows), source=source)


def _entry(row: Seen, question: ResolvedSelection) -> Entry:
    target = question.targets[row.target_id]
    return Entry(
        region=row.region,
        target=question.names[row.target_id],
        provider=target.provider,
        model=target.model,
        values=row.values,
        endings=row.endings,
        usd_per_m_input=target.usd_per_m_input,
        usd_per_m_output=target.usd_per_m_output,
        newest_at=row.newest_at,
    )
