"""Queries that rank targets by what each region measured: leaderboards and price tiers."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from isochrone_collector.analysis.goodput import Requests, by_series
from isochrone_collector.analysis.history import SUCCESS, History, Quantity, above_quantile
from isochrone_collector.analysis.latency_targets import USES, MeasuredRequests, Use, assess, quantities
from isochrone_collector.analysis.leaderboard import ASKED as TIERED
from isochrone_collector.analysis.leaderboard import QUANTITIES, Entry, asked_for, standings, tier_lines
from isochrone_collector.errors import BadRequest, UnknownName
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, resolve
from isochrone_collector.store import hourly_levels, leaderboards, summaries
from isochrone_collector.store.leaderboards import SeriesValues
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.postgres.values import fields_of
from isochrone_collector.store.probe_queries import Scope, requests
from isochrone_wire.answers import Metric, Order, Selection, Source, Window
from isochrone_wire.insights import LatencyBudgetList, Leaderboard, TierList
from isochrone_wire.model import SECOND_US

NEEDED = (*QUANTITIES, "success")
"""The names of the quantities that callers may need."""


async def leaderboard(
    context: QueryContext, selection: Selection, *, order: Order = Order.TTFT, needed: Sequence[str] = ()
) -> Leaderboard:
    """Return the targets that have samples, ranked within each region. Quantities other than the `needed` ones may be
    missing; none is if that is empty.
    """
    asked = asked_for(order, needed)
    window = await _window_entries(context, selection, (*_above(asked), SUCCESS))
    ranked = await asyncio.to_thread(standings, window.entries, order, window.history, asked)
    return Leaderboard(window=window.window, standings=ranked, order=order, source=window.source)


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
        past = await leaderboards.summarised(connection, resolved.scope)
        window, rows = past or (selection.window, await leaderboards.standings(connection, resolved.scope))
    return _WindowEntries(
        window=window,
        entries=tuple(entry_of(row, resolved) for row in rows),
        source=Source.SAMPLES if past is None else Source.SUMMARIES,
        history=history,
    )


def entry_of(row: SeriesValues, resolved: ResolvedSelection) -> Entry:
    """Return the entry of a series."""
    target = resolved.targets[row.target_id]
    return Entry(
        target=resolved.names[row.target_id],
        provider=target.provider,
        model=target.model,
        usd_per_m_input=target.usd_per_m_input,
        usd_per_m_output=target.usd_per_m_output,
        **fields_of(row),
    )


MAX_TOKENS = 1_000_000
"""Maximum length of an answer whose duration is limited."""


async def latency_targets(
    context: QueryContext,
    selection: Selection,
    *,
    uses: Sequence[str],
    by: str | None = None,
    answer_tokens: int = 0,
    limit_us: int = 0,
    min_tokens_per_second: float = 0.0,
) -> LatencyBudgetList:
    """Return one line per use, region and target that has samples; all uses when `uses` is empty. `by` "hour" gives one
    for each hour of the day. The whole answer is one of `answer_tokens`, if that is not 0; a `limit_us` takes the place
    of the uses, and requests below `min_tokens_per_second` are too slow.

    Raises `UnknownName` for an unknown use, and `BadRequest`.
    """
    wanted = _uses_of(uses, answer_tokens=answer_tokens, limit_us=limit_us, min_speed=min_tokens_per_second)
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        history = await hourly_levels.history_of(connection, resolved.scope, quantities(wanted))
        if by or answer_tokens or min_tokens_per_second:
            await _require_samples(connection, resolved.scope)
        elif past := await leaderboards.summarised(connection, resolved.scope):
            window, seen = past
            entries = [entry_of(row, resolved) for row in seen]
            lines = await asyncio.to_thread(assess, entries, wanted, history)
            return LatencyBudgetList(window=window, budgets=lines)
        found = await requests(connection, resolved.scope, answer_tokens=answer_tokens)
    lines = await asyncio.to_thread(lambda: assess(_measured(found, resolved, by_hour=bool(by)), wanted, history))
    return LatencyBudgetList(window=selection.window, budgets=lines)


async def _require_samples(connection: Connection, scope: Scope) -> None:
    """Raise `BadRequest` if samples of a scope were deleted: summaries have no single requests."""
    kept_at = await leaderboards.kept_since(connection)
    before = Window(from_at=scope.window.from_at, until_at=min(scope.window.until_at, kept_at))
    if before.from_at < before.until_at and await summaries.outcomes(connection, replace(scope, window=before)):
        kept = datetime.fromtimestamp(kept_at / SECOND_US, UTC).date()
        raise BadRequest(
            "hours of the day, answers of another length and speeds need the samples, and those before "
            f"{kept} were deleted: choose a window from {kept} on"
        )


def _measured(found: Requests, resolved: ResolvedSelection, *, by_hour: bool) -> Iterator[MeasuredRequests]:
    for (target_id, region, hour), own in by_series(found, by_hour=by_hour):
        yield MeasuredRequests(
            target_id=target_id,
            region=region,
            target=resolved.names[target_id],
            requests=own,
            usd_per_m_output=resolved.targets[target_id].usd_per_m_output,
            hour=hour,
        )


def _uses_of(names: Sequence[str], *, answer_tokens: int, limit_us: int, min_speed: float) -> tuple[Use, ...]:
    if limit_us and names:
        raise BadRequest("a limit takes the place of the uses: name either")
    metric, known = Metric.E2E if answer_tokens else Metric.TTFT, {use.name: use for use in USES}
    own = Use(name="limit", meaning="the limit asked for", metric=metric, limit_us=limit_us)
    for name in names:
        if name not in known:
            raise UnknownName.among("use", name, known)
    chosen = [own] if limit_us else [use for use in USES if not names or use.name in names]
    return tuple(replace(use, answer_tokens=answer_tokens or None, min_speed=min_speed or None) for use in chosen)
