"""Queries that rank targets by what each region measured: leaderboards and price tiers."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isochrone_collector.analysis.history import SUCCESS, History, Quantity, above_quantile
from isochrone_collector.analysis.leaderboard import ASKED as TIERED
from isochrone_collector.analysis.leaderboard import QUANTITIES, Entry, asked_for, standings, tier_lines
from isochrone_collector.errors import BadRequest
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, resolve
from isochrone_collector.store import hourly_levels, leaderboards, long_windows
from isochrone_collector.store.leaderboards import SeriesValues
from isochrone_wire.answers import Metric, Order, Selection, Source, Window
from isochrone_wire.insights import Leaderboard, TierList
from isochrone_wire.text import unknown

NEEDED = (*QUANTITIES, "success")
"""The names of the quantities that callers may need."""


async def leaderboard(
    context: QueryContext, selection: Selection, *, order: str = "", needed: Sequence[str] = ()
) -> Leaderboard:
    """Return the targets that have samples, ranked within each region; by median TTFT when `order` is empty. Quantities
    other than the `needed` ones may be missing; none is if that is empty.

    Raises `BadRequest` for an unknown order or quantity.
    """
    by = _order_of(order)
    for name in needed:
        if name not in NEEDED:
            raise BadRequest(unknown("quantity", name, NEEDED))
    asked = asked_for(by, needed)
    window = await _window_entries(context, selection, (*_above(asked), SUCCESS))
    ranked = await asyncio.to_thread(standings, window.entries, by, window.history, asked)
    return Leaderboard(window=window.window, standings=ranked, order=by, source=window.source)


async def price_tiers(context: QueryContext, selection: Selection) -> TierList:
    """Return one line per price tier, region and target that has samples."""
    window = await _window_entries(context, selection, _above(TIERED))
    return TierList(window=window.window, tiers=await asyncio.to_thread(tier_lines, window.entries, window.history))


def _above(asked: Iterable[tuple[Metric, float]]) -> tuple[Quantity, ...]:
    return tuple(above_quantile(metric, share) for metric, share in asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WindowEntries:
    """The entries of a window, whether they come from samples or from summaries, and the history of their levels."""

    window: Window
    entries: tuple[Entry, ...]
    source: Source
    history: History


async def _window_entries(
    context: QueryContext, selection: Selection, quantities: Sequence[Quantity]
) -> _WindowEntries:
    """Read an entry per target and region that has samples, and the levels of some quantities in the past week.

    Long windows, and windows whose samples were deleted, are answered from summaries; such a window may begin later
    than requested.
    """
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        history = await hourly_levels.history_of(connection, resolved.scope, quantities)
        past = await long_windows.summarised(connection, resolved.scope)
        rows = await leaderboards.standings(connection, resolved.scope) if past is None else past.seen
    return _WindowEntries(
        window=selection.window if past is None else past.window,
        entries=tuple(entry_of(row, resolved) for row in rows),
        source=Source.SAMPLES if past is None else Source.SUMMARIES,
        history=history,
    )


def entry_of(row: SeriesValues, resolved: ResolvedSelection) -> Entry:
    """Return the entry of a series."""
    target = resolved.targets[row.target_id]
    return Entry(
        target_id=row.target_id,
        region=row.region,
        target=resolved.names[row.target_id],
        provider=target.provider,
        model=target.model,
        values=row.values,
        outcome_counts=row.outcome_counts,
        usd_per_m_input=target.usd_per_m_input,
        usd_per_m_output=target.usd_per_m_output,
        newest_at=row.newest_at,
        hours=row.hours,
        succeeded=row.succeeded,
    )


def _order_of(name: str) -> Order:
    try:
        return Order(name or Order.TTFT.value)
    except ValueError:
        raise BadRequest(unknown("order", name, [order.value for order in Order])) from None
