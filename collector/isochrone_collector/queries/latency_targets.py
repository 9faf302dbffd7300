"""The query for latency targets: goodput under a limit, per target and region."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from isochrone_collector.analysis.goodput import Requests, by_series
from isochrone_collector.analysis.latency_targets import (
    USES,
    MeasuredRequests,
    SummarisedRequests,
    Use,
    assess,
    quantities,
)
from isochrone_collector.errors import BadRequest, UnknownName
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, resolve
from isochrone_collector.queries.ranking import entry_of
from isochrone_collector.store import hourly_levels, long_windows, summaries
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.requests import requests
from isochrone_wire.answers import Metric, Selection, Window
from isochrone_wire.insights import LatencyBudgetList
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.text import unknown

MAX_TOKENS = 1_000_000
"""Maximum length of an answer whose duration is limited."""

_MAX_SPEED = 1e6
_BY = ("", "hour")


async def latency_targets(
    context: QueryContext,
    selection: Selection,
    *,
    uses: Sequence[str],
    by: str = "",
    answer_tokens: int = 0,
    limit_us: int = 0,
    min_tokens_per_second: float = 0.0,
) -> LatencyBudgetList:
    """Return one line per use, region and target that has samples; all uses when `uses` is empty. `by` "hour" gives one
    for each hour of the day. The whole answer is one of `answer_tokens`, if that is not 0; a `limit_us` takes the place
    of the uses, and requests below `min_tokens_per_second` are too slow.

    Raises `UnknownName` for an unknown use, and `BadRequest`.
    """
    if by not in _BY:
        raise BadRequest(unknown("division", by, _BY[1:]))
    wanted = _uses_of(uses, answer_tokens=answer_tokens, limit_us=limit_us, min_speed=min_tokens_per_second)
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        history = await hourly_levels.history_of(connection, resolved.scope, quantities(wanted))
        if by or answer_tokens or min_tokens_per_second:
            await _require_samples(connection, resolved.scope)
        elif past := await long_windows.summarised(connection, resolved.scope):
            entries = [SummarisedRequests(entry_of(row, resolved)) for row in past.seen]
            lines = await asyncio.to_thread(assess, entries, wanted, history)
            return LatencyBudgetList(window=past.window, budgets=lines)
        found = await requests(connection, resolved.scope, answer_tokens=answer_tokens)
    lines = await asyncio.to_thread(lambda: assess(_measured(found, resolved, by_hour=bool(by)), wanted, history))
    return LatencyBudgetList(window=selection.window, budgets=lines)


async def _require_samples(connection: Connection, scope: Scope) -> None:
    """Raise `BadRequest` if samples of a scope were deleted: summaries have no single requests."""
    kept_at = await long_windows.kept_since(connection)
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
    """Return the uses of these names, or a single one for a limit."""
    if not 0 <= answer_tokens <= MAX_TOKENS:
        raise BadRequest(f"answer_tokens is {answer_tokens}: it must be 0 to {MAX_TOKENS}")
    if not 0 <= min_speed <= _MAX_SPEED:
        raise BadRequest(f"min_tokens_per_second is {min_speed:g}: it must be 0 to {_MAX_SPEED:g}")
    if not 0 <= limit_us <= DAY_US:
        raise BadRequest(f"limit_us is {limit_us}: it must be 0 to {DAY_US}")
    if limit_us and names:
        raise BadRequest("a limit takes the place of the uses: name either")
    chosen = (_own_use(answer_tokens, limit_us),) if limit_us else _named(names)
    return tuple(replace(use, answer_tokens=answer_tokens or None, min_speed=min_speed or None) for use in chosen)


def _own_use(answer_tokens: int, limit_us: int) -> Use:
    metric = Metric.E2E if answer_tokens else Metric.TTFT
    return Use(name="limit", meaning="the limit asked for", metric=metric, limit_us=limit_us)


def _named(names: Sequence[str]) -> tuple[Use, ...]:
    known = {use.name: use for use in USES}
    for name in names:
        if name not in known:
            raise UnknownName.among("use", name, known)
    return tuple(use for use in USES if not names or use.name in names)
