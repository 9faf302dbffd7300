"""What the readers' questions select. SQL selects, pairs and bounds; Python estimates."""

from dataclasses import dataclass
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from isochrone_collector.store.instants import Instant
from isochrone_collector.store.pool import Connection, fetch
from isochrone_collector.store.queries import query
from isochrone_collector.store.rows import COLUMNS, NameRow, RecordedRow, SeriesRow, StandingRow
from isochrone_wire.answers import Metric, Window

_CONNECT = """CASE WHEN coalesce(dns_us, tcp_us, tls_us) IS NOT NULL
    THEN coalesce(dns_us, 0) + coalesce(tcp_us, 0) + coalesce(tls_us, 0) END"""
_STREAMED = "outcome IN ('ok', 'timed_out', 'stalled', 'truncated')"
# A probe that ran into a limit took at least that long.
_CEILING = "CASE WHEN outcome IN ('timed_out', 'stalled') THEN timeout_us END"
_NO_CEILING = "NULL"

# Metric → its value in one row of `sample`, and what stands in for it when a timeout cut the probe off. A cut stream
# has a first token but neither an end nor a speed.
_METRICS: dict[Metric, tuple[str, str]] = {
    Metric.TTFT: (f"CASE WHEN {_STREAMED} THEN ttft_us END", _CEILING),
    Metric.TTFT_COLD: (
        f"CASE WHEN {_STREAMED} THEN {_CONNECT} + ttft_us END",
        f"CASE WHEN ttft_us IS NULL THEN {_CEILING} END",
    ),
    Metric.TTFAT: (f"CASE WHEN {_STREAMED} THEN ttfat_us END", _CEILING),
    Metric.E2E: ("CASE WHEN outcome = 'ok' THEN e2e_us END", _CEILING),
    Metric.TOKENS_PER_SECOND: ("CASE WHEN outcome = 'ok' THEN tokens_per_second END", _NO_CEILING),
    Metric.CONNECT: (_CONNECT, _NO_CEILING),
    Metric.RTT: ("rtt_us", _NO_CEILING),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which rows a question is about: rounds, targets and, unless `None`, regions."""

    window: Window
    target_ids: tuple[int, ...]
    regions: tuple[str, ...] | None = None

    def parameters(self) -> dict[str, object]:
        """The scope as the placeholders of the statements."""
        return {
            "from_at": Instant(self.window.from_at),
            "until_at": Instant(self.window.until_at),
            "target_ids": list(self.target_ids),
            "regions": None if self.regions is None else list(self.regions),
        }


async def samples(connection: Connection, scope: Scope, *, limit: int) -> list[dict[str, Any]]:
    """The newest samples of a scope, newest first, as records for `rows.stored_sample`."""
    columns = sql.SQL(", ").join(sql.Identifier("sample", name) for name in COLUMNS)
    async with connection.cursor(binary=True, row_factory=dict_row) as cursor:
        await cursor.execute(query("samples").format(columns=columns), {**scope.parameters(), "limit": limit})
        return await cursor.fetchall()


async def series(connection: Connection, scope: Scope, metric: Metric) -> list[SeriesRow]:
    """One metric of a scope that names its regions, round by round: microseconds, or tokens per second."""
    value, ceiling = (sql.SQL(part) for part in _METRICS[metric])
    statement = query("series").format(value=value, ceiling=ceiling)
    return await fetch(connection, statement, SeriesRow, **scope.parameters())


async def standings(connection: Connection, scope: Scope) -> list[StandingRow]:
    """The values a leaderboard ranks."""
    return await fetch(connection, query("standings"), StandingRow, **scope.parameters())


async def recorded(connection: Connection, scope: Scope) -> list[RecordedRow]:
    """Which rounds each vantage recorded of each target; the regions of the scope are not looked at."""
    return await fetch(connection, query("recorded"), RecordedRow, **scope.parameters())


async def regions_with_samples(connection: Connection, scope: Scope) -> list[str]:
    """The regions that have any sample of a scope; its own regions are not looked at."""
    found = await fetch(connection, query("regions_with_samples"), NameRow, **scope.parameters())
    return [row.name for row in found]
