"""Probes for queries: SQL selects them by scope and metric; Python estimates."""

from collections.abc import AsyncIterator, Sequence, Sized
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
from psycopg import sql

from isochrone_collector.analysis.differential.decomposition import Phases
from isochrone_collector.analysis.probes import Integers, Kind, Probes, Reals
from isochrone_collector.errors import BadRequest
from isochrone_collector.store import vantages
from isochrone_collector.store.postgres import columns
from isochrone_collector.store.postgres.instants import POSTGRES_EPOCH_AT, Instant
from isochrone_collector.store.postgres.pool import Connection, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.rows import RecordedRow
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import DAY_US, day_of

Lot = TypeVar("Lot", bound=Sized)

_CONNECT = """CASE WHEN coalesce(dns_us, tcp_us, tls_us) IS NOT NULL
    THEN coalesce(dns_us, 0) + coalesce(tcp_us, 0) + coalesce(tls_us, 0) END"""
_STREAMED = "outcome IN ('ok', 'timed_out', 'stalled', 'truncated')"
# A probe that was cut off by a timeout took at least that long.
_CEILING = "CASE WHEN outcome IN ('timed_out', 'stalled') THEN timeout_us END"
_NO_CEILING = "NULL"

# The network part of a value: one round trip. Metrics other than latencies have none.
_ROAD = "rtt_us"
_NO_ROAD = "NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    """A metric in one row of `sample`: its value, the `ceiling` in place of it if a timeout cut the probe off, and its
    `network` part.
    """

    value: str
    ceiling: str = _NO_CEILING
    network: str = _NO_ROAD

    @property
    def parts(self) -> dict[str, sql.SQL]:
        """Return the expressions for the braces of the statements."""
        return {"value": sql.SQL(self.value), "ceiling": sql.SQL(self.ceiling), "network": sql.SQL(self.network)}


# A truncated stream has a first token, but neither an end nor a speed.
_METRICS: dict[Metric, _Measure] = {
    Metric.TTFT: _Measure(value=f"CASE WHEN {_STREAMED} THEN ttft_us END", ceiling=_CEILING, network=_ROAD),
    Metric.TTFT_COLD: _Measure(
        value=f"CASE WHEN {_STREAMED} THEN {_CONNECT} + ttft_us END",
        ceiling=f"CASE WHEN ttft_us IS NULL THEN {_CEILING} END",
        network=f"{_CONNECT} + rtt_us",
    ),
    Metric.TTFAT: _Measure(value=f"CASE WHEN {_STREAMED} THEN ttfat_us END", ceiling=_CEILING, network=_ROAD),
    Metric.E2E: _Measure(value="CASE WHEN outcome = 'ok' THEN e2e_us END", ceiling=_CEILING, network=_ROAD),
    Metric.TOKENS_PER_SECOND: _Measure(value="CASE WHEN outcome = 'ok' THEN tokens_per_second END"),
    Metric.CONNECT: _Measure(value=_CONNECT),
    Metric.RTT: _Measure(value="rtt_us"),
}
_KINDS = {
    "ok": sql.Literal(Kind.OK.value),
    "failed": sql.Literal(Kind.FAILED.value),
    "throttled": sql.Literal(Kind.THROTTLED.value),
    "skipped": sql.Literal(Kind.SKIPPED.value),
}
# One probe of the statement `probes`, in the server's byte order, and the bits of its `traits`.
_PROBE = np.dtype([("traits", ">i4"), ("vantage_id", ">i8"), ("round_at", ">i8"), ("value", ">f8"), ("network", ">f8")])
_CENSORED, _KIND_BIT, _PLACE_BIT = 1, 1, 3

MAX_PROBES = 4_000_000
"""Maximum number of probes of one query; each takes 50 bytes, and statistics several times as much."""
_PORTION = 500_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TargetRow:
    """The probes of one target, each a `_PROBE`."""

    target_id: int
    probes: bytes

    def __len__(self) -> int:
        return len(self.probes) // _PROBE.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The rows of a query: their rounds, targets and, unless `None`, regions."""

    window: Window
    target_ids: tuple[int, ...]
    regions: tuple[str, ...] | None = None

    def parameters(self) -> dict[str, object]:
        """Return the scope as parameters of the statements."""
        return {
            "from_at": Instant(self.window.from_at),
            "until_at": Instant(self.window.until_at),
            "target_ids": list(self.target_ids),
            "regions": None if self.regions is None else list(self.regions),
        }


def measure(metric: Metric) -> dict[str, sql.SQL]:
    """Return the expressions of a metric in one row of `sample`: its `value`, its `ceiling` and its `network` part."""
    return _METRICS[metric].parts


async def probes(connection: Connection, scope: Scope, metric: Metric) -> Probes:
    """Return every probe of a scope with its value of one metric. Raises `BadRequest` if there are too many."""
    # A region that is named twice would return every probe twice.
    regions = tuple(dict.fromkeys(await vantages.regions(connection) if scope.regions is None else scope.regions))
    statement = query("probes").format(**_METRICS[metric].parts, **_KINDS)
    return _probes(await within_reach(connection, statement, replace(scope, regions=regions), _TargetRow), regions)


async def within_reach(connection: Connection, statement: sql.Composed, scope: Scope, row: type[Lot]) -> list[Lot]:
    """Return the rows that a statement selects in a scope; the length of a row is its number of probes. A series has
    one row for each part of the window. Raises `BadRequest` if there are too many probes.
    """
    found: list[Lot] = []
    many = 0
    async for rows in _by_days(connection, statement, scope, row):
        found += rows
        many += sum(map(len, rows))
        if many > MAX_PROBES:
            raise BadRequest(
                f"more than {MAX_PROBES:_} probes: choose a shorter window, fewer targets or fewer regions"
            )
    return found


async def _by_days(
    connection: Connection, statement: sql.Composed, scope: Scope, row: type[Lot]
) -> AsyncIterator[list[Lot]]:
    """Yield the rows that a statement selects in a scope, day by day, or several days at once if a day has few rows.

    The server holds the columns of a target in memory before it sends them, which a whole month would exceed.
    """
    from_at, days = scope.window.from_at, 1
    while from_at < scope.window.until_at:
        until_at = min(day_of(from_at) + days * DAY_US, scope.window.until_at)
        part = replace(scope, window=Window(from_at=from_at, until_at=until_at))
        rows = await columns.fetch(connection, statement, row, **part.parameters())
        days = max(1, min(2 * days, days * _PORTION // (1 + sum(map(len, rows)))))
        from_at = until_at
        yield rows


def _probes(rows: Sequence[_TargetRow], regions: tuple[str, ...]) -> Probes:
    records = np.frombuffer(b"".join([row.probes for row in rows]), _PROBE)
    traits = records["traits"].astype(np.int64)
    return Probes(
        regions=regions,
        target_id=np.repeat(np.array([row.target_id for row in rows], np.int64), [len(row) for row in rows]),
        region=traits >> _PLACE_BIT,
        vantage_id=records["vantage_id"].astype(np.int64),
        round_at=records["round_at"].astype(np.int64) + POSTGRES_EPOCH_AT,
        kind=(traits >> _KIND_BIT & max(Kind)).astype(np.int8),
        value=records["value"].astype(np.float64),
        censored=(traits & _CENSORED).astype(np.bool_),
        network=records["network"].astype(np.float64),
    )


async def recorded(connection: Connection, scope: Scope) -> list[RecordedRow]:
    """Return the rounds that each vantage recorded of each target; the regions of the scope are ignored."""
    return await fetch(connection, query("recorded"), RecordedRow, **scope.parameters())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _PhasesRow:
    """Columns of one target from one region, in microseconds."""

    target_id: int
    region: str
    round_at: Integers
    dns: Reals
    tcp: Reals
    tls: Reals
    rtt: Reals
    ttft: Reals
    provider: Reals


async def phases(connection: Connection, scope: Scope) -> Phases:
    """Return the phases of every probe of a scope that has a first token."""
    rows = await columns.fetch(connection, query("phases"), _PhasesRow, **scope.parameters())
    regions = tuple(sorted({row.region for row in rows}))
    sizes = [len(row.round_at) for row in rows]
    return Phases(
        regions=regions,
        target_id=np.repeat(np.array([row.target_id for row in rows], np.int64), sizes),
        region=np.repeat(np.array([regions.index(row.region) for row in rows], np.int64), sizes),
        round_at=np.concatenate([np.empty(0, np.int64), *(row.round_at for row in rows)]),
        **{name: _column(rows, name) for name in _PHASE_COLUMNS},
    )


_PHASE_COLUMNS = [field.name for field in fields(_PhasesRow) if field.type is Reals]


def _column(rows: Sequence[_PhasesRow], name: str) -> Reals:
    return np.concatenate([np.empty(0), *(getattr(row, name) for row in rows)])
