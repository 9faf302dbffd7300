"""Probes and requests for queries: SQL selects them by scope and metric; Python estimates."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from isochrone_collector.analysis.differential.decomposition import Phases
from isochrone_collector.analysis.goodput import Ending, Requests
from isochrone_collector.analysis.probes import Kind, Probes
from isochrone_collector.analysis.simulation import SentProbes
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_collector.errors import BadRequest
from isochrone_collector.store import vantages
from isochrone_collector.store.postgres.pool import Connection, fetch, fetch_columns, query
from isochrone_collector.store.postgres.values import POSTGRES_EPOCH_AT
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import DAY_US, SECOND_US, Quality, day_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRow:
    """The rounds that one vantage recorded of one target, and the number of probes by outcome."""

    vantage_id: int
    target_id: int
    recorded: int
    oldest_at: int
    newest_at: int
    outcomes: dict[str, int]


_CONNECT = """CASE WHEN coalesce(dns_us, tcp_us, tls_us) IS NOT NULL
    THEN coalesce(dns_us, 0) + coalesce(tcp_us, 0) + coalesce(tls_us, 0) END"""
# Otherwise the durations are not those of the model: most of the prompt came from a cache, or the wall clock stepped
# while the timestamps of the kernel were converted. Such a probe is a success without values.
VALID = (
    f"(quality & {Quality.CLOCK_STEPPED:d} = 0"
    f" AND (quality & {Quality.CACHED:d} = 0 OR 2::bigint * coalesce(cached_tokens, 0) < coalesce(prompt_tokens, 0)))"
)
MAX_LATE_US = 6 * SECOND_US
"""A probe that began later after its planned start, because it waited for a slot, is not compared with its round. The
grace for a round whose previous probe is about to end is 5 s.
"""

PUNCTUAL = f"late_us <= {MAX_LATE_US}"
_STREAMED = f"outcome IN ('ok', 'timed_out', 'stalled', 'truncated') AND {VALID}"
_ANSWERED = f"outcome = 'ok' AND {VALID}"
# A division by a lower one may overflow.
HAS_ANSWER_TIME = f"{_ANSWERED} AND tokens_per_second >= 1e-5"
# The chunk at which the measurement of the speed began. That is the first one, or the first of the answer if the
# reasoning was only summarised: then the tokens of the answer, at the speed, take from there to the end.
_ANSWER_TOKENS = "(output_tokens::bigint - coalesce(reasoning_tokens, 0) - first_chunk_tokens)"
ANSWER_FROM = (
    f"CASE WHEN abs(e2e_us - ttfat_us - {_ANSWER_TOKENS} / tokens_per_second * 1e6) < 1000"
    " THEN ttfat_us ELSE ttft_us END"
)
# A probe that was cut off by a timeout took at least that long; one that timed out while it connected, too.
_CEILING = "CASE WHEN outcome IN ('timed_out', 'stalled', 'connect_failed') THEN timeout_us END"
_FIRST_TOKEN_CEILING = f"CASE WHEN ttft_us IS NULL THEN {_CEILING} END"
_CONNECT_CEILING = "CASE WHEN outcome = 'connect_failed' THEN timeout_us END"
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
    Metric.TTFT: _Measure(value=f"CASE WHEN {_STREAMED} THEN ttft_us END", ceiling=_FIRST_TOKEN_CEILING, network=_ROAD),
    Metric.TTFT_COLD: _Measure(
        value=f"CASE WHEN {_STREAMED} THEN {_CONNECT} + ttft_us END",
        ceiling=_FIRST_TOKEN_CEILING,
        network=f"{_CONNECT} + rtt_us",
    ),
    Metric.TTFAT: _Measure(value=f"CASE WHEN {_STREAMED} THEN ttfat_us END", ceiling=_CEILING, network=_ROAD),
    Metric.E2E: _Measure(value=f"CASE WHEN {_ANSWERED} THEN e2e_us END", ceiling=_CEILING, network=_ROAD),
    Metric.TOKENS_PER_SECOND: _Measure(value=f"CASE WHEN {_ANSWERED} THEN tokens_per_second END"),
    # If the connection failed, the phases that took place are not all of it.
    Metric.CONNECT: _Measure(
        value=f"CASE WHEN outcome <> 'connect_failed' THEN {_CONNECT} END", ceiling=_CONNECT_CEILING
    ),
    Metric.RTT: _Measure(value="rtt_us"),
}
KINDS = {
    "ok": sql.Literal(Kind.OK.value),
    "failed": sql.Literal(Kind.FAILED.value),
    "throttled": sql.Literal(Kind.THROTTLED.value),
    "skipped": sql.Literal(Kind.SKIPPED.value),
}
"""The number of each kind of outcome, for the braces of the statements."""

# One probe of the statement `probes`, in the server's byte order, and the bits of its `traits`.
_PROBE = np.dtype([("traits", ">i4"), ("vantage_id", ">i8"), ("round_at", ">i8"), ("value", ">f8"), ("network", ">f8")])
_CENSORED, _KIND_BIT, _PLACE_BIT = 1, 1, 3

MAX_PROBES = 4_000_000
"""Maximum number of probes of one query; each takes 50 bytes, and statistics several times as much."""
_PORTION = 500_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedProbes:
    """Probes of one target, or of one target from one region, as records in the server's byte order."""

    target_id: int
    probes: bytes
    region: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The rows of a query: their rounds, targets and, unless `None`, regions."""

    window: Window
    target_ids: tuple[int, ...]
    regions: tuple[str, ...] | None = None

    def parameters(self) -> dict[str, object]:
        """Return the scope as parameters of the statements."""
        return {
            "from_at": self.window.from_at,
            "until_at": self.window.until_at,
            "target_ids": list(self.target_ids),
            "regions": None if self.regions is None else list(self.regions),
        }


def measure(metric: Metric) -> dict[str, sql.SQL]:
    """Return the expressions of a metric in one row of `sample`: its `value`, its `ceiling` and its `network` part."""
    return _METRICS[metric].parts


def answer_us(tokens: int) -> sql.SQL:
    """Return the expression of the time to the last token of an answer of so many tokens, in microseconds: that of its
    first chunk, and the rest at the speed of this probe.
    """
    rest_us = f"greatest({tokens:d} - first_chunk_tokens, 0) / tokens_per_second * 1e6"
    return sql.SQL(f"CASE WHEN {HAS_ANSWER_TIME} THEN {ANSWER_FROM} + {rest_us} END")


async def region_names(connection: Connection, scope: Scope) -> tuple[str, ...]:
    """Return the regions of a scope, each once: one that is named twice would return every probe twice."""
    return tuple(dict.fromkeys(await vantages.regions(connection) if scope.regions is None else scope.regions))


async def probes(connection: Connection, scope: Scope, metric: Metric, *, by_round: bool = False) -> Probes:
    """Return every probe of a scope with its value of one metric; `by_round` without values of probes that began too
    late to be compared with others of their round. Raises `BadRequest` if there are too many.
    """
    regions = await region_names(connection, scope)
    counts = sql.SQL(PUNCTUAL if by_round else "true")
    statement = query("probes").format(**_METRICS[metric].parts, **KINDS, counts=counts)
    return _probes(await fetch_limited(connection, statement, replace(scope, regions=regions), _PROBE), regions)


async def fetch_limited(
    connection: Connection, statement: sql.Composed, scope: Scope, probe: np.dtype[np.void]
) -> list[PackedProbes]:
    """Return the probes that a statement selects in a scope, records of the type `probe`. A series has one row for each
    part of the window. Raises `BadRequest` if there are too many probes.
    """
    found: list[PackedProbes] = []
    many = 0
    from_at, days = scope.window.from_at, 1
    # The server holds the columns of a target in memory before it sends them, which a whole month would exceed. So the
    # window is read day by day, or several days at once if a day has few rows.
    while from_at < scope.window.until_at:
        until_at = min(day_of(from_at) + days * DAY_US, scope.window.until_at)
        part = replace(scope, window=Window(from_at=from_at, until_at=until_at))
        rows = await fetch(connection, statement, PackedProbes, **part.parameters())
        count = sum(len(row.probes) for row in rows) // probe.itemsize
        days = max(1, min(2 * days, days * _PORTION // (1 + count)))
        from_at = until_at
        found += rows
        many += count
        if many > MAX_PROBES:
            raise BadRequest(
                f"more than {MAX_PROBES:_} probes: choose a shorter window, fewer targets or fewer regions"
            )
    return found


def _unpacked(rows: Sequence[PackedProbes], probe: np.dtype[np.void]) -> tuple[NDArray[np.void], Integers, Integers]:
    """Return the records of all rows, and their targets and rounds."""
    records = np.frombuffer(b"".join([row.probes for row in rows]), probe)
    sizes = [len(row.probes) // probe.itemsize for row in rows]
    target_id = np.repeat(np.array([row.target_id for row in rows], np.int64), sizes)
    return records, target_id, records["round_at"].astype(np.int64) + POSTGRES_EPOCH_AT


def _probes(rows: Sequence[PackedProbes], regions: tuple[str, ...]) -> Probes:
    records, target_id, round_at = _unpacked(rows, _PROBE)
    traits = records["traits"].astype(np.int64)
    return Probes(
        regions=regions,
        target_id=target_id,
        region=traits >> _PLACE_BIT,
        vantage_id=records["vantage_id"].astype(np.int64),
        round_at=round_at,
        kind=(traits >> _KIND_BIT & max(Kind)).astype(np.int8),
        value=records["value"].astype(np.float64),
        censored=(traits & _CENSORED).astype(np.bool_),
        network=records["network"].astype(np.float64),
    )


async def recorded(connection: Connection, scope: Scope) -> list[RecordedRow]:
    """Return the rounds that each vantage recorded of each target; the regions of the scope are ignored."""
    return await fetch(connection, "recorded", RecordedRow, **scope.parameters())


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
    """Return the phases of every probe of a scope that has a valid first token and began in time."""
    statement = query("phases").format(valid=sql.SQL(VALID), punctual=sql.SQL(PUNCTUAL))
    rows = await fetch_columns(connection, statement, _PhasesRow, **scope.parameters())
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


# One request of the statement `requests`, in the server's byte order, and the bits of its `traits`.
_REQUEST = np.dtype(
    [("traits", ">i4"), ("round_at", ">i8"), *((name, ">f8") for name in ("ttft", "e2e", "ceiling", "speed"))]
)
_REQUEST_PLACE_BIT = 2
_ENDINGS = {ending.name.lower(): sql.Literal(ending.value) for ending in Ending}


async def requests(connection: Connection, scope: Scope, *, answer_tokens: int = 0) -> Requests:
    """Return every round of a scope. With `answer_tokens`, the time to the last token is that of an answer of so many
    tokens. Raises `BadRequest` if there are too many.
    """
    regions = await region_names(connection, scope)
    limited = measure(Metric.E2E)
    e2e = answer_us(answer_tokens) if answer_tokens else limited["value"]
    statement = query("requests").format(
        ttft=measure(Metric.TTFT)["value"], e2e=e2e, ceiling=limited["ceiling"], valid=sql.SQL(VALID), **_ENDINGS
    )
    rows = await fetch_limited(connection, statement, replace(scope, regions=regions), _REQUEST)
    return _requests(rows, regions)


def _requests(rows: Sequence[PackedProbes], regions: tuple[str, ...]) -> Requests:
    records, target_id, round_at = _unpacked(rows, _REQUEST)
    traits = records["traits"].astype(np.int64)
    return Requests(
        regions=regions,
        target_id=target_id,
        region=traits >> _REQUEST_PLACE_BIT,
        round_at=round_at,
        ending=(traits & max(Ending)).astype(np.int8),
        ttft_us=records["ttft"].astype(np.float64),
        e2e_us=records["e2e"].astype(np.float64),
        ceiling_us=records["ceiling"].astype(np.float64),
        tokens_per_second=records["speed"].astype(np.float64),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _SentRow:
    """The probes of one target, as columns."""

    target_id: int
    vantage_id: Integers
    round_at: Integers
    dispatched_at: Integers
    throttled: NDArray[np.int32]
    ttft_us: Reals
    limit_us: Reals
    cost_usd: Reals


@dataclass(frozen=True, slots=True, kw_only=True)
class _VantageRegionRow:
    id: int
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _IntervalRow:
    id: int
    every_us: int


_MEASURED = ("ttft_us", "limit_us", "cost_usd")


async def sent_probes(connection: Connection, scope: Scope, *, limit: int) -> SentProbes:
    """Return at most `limit` probes of a scope that were sent."""
    statement = query("probes_asked").format(valid=sql.SQL(VALID))
    rows = await fetch_columns(connection, statement, _SentRow, **scope.parameters(), limit=limit)
    several = {
        part.name: np.concatenate([np.empty(0, _dtype(part.name)), *(getattr(row, part.name) for row in rows)])
        for part in fields(_SentRow)
        if part.name != "target_id"
    }
    several["throttled"] = several["throttled"].astype(np.bool_)
    counts = [len(row.round_at) for row in rows]
    target_id = np.repeat(np.array([row.target_id for row in rows], np.int64), counts)
    return SentProbes(target_id=target_id, **several)


async def vantage_regions(connection: Connection) -> dict[int, str]:
    """Return the region of every vantage, by its id."""
    return {row.id: row.region for row in await fetch(connection, "vantage_regions", _VantageRegionRow)}


async def intervals(connection: Connection, target_ids: tuple[int, ...]) -> dict[int, int]:
    """Return the interval of each target in microseconds, by its id."""
    rows = await fetch(connection, "target_intervals", _IntervalRow, target_ids=list(target_ids))
    return {row.id: row.every_us for row in rows}


def _dtype(name: str) -> type[np.generic]:
    return np.float64 if name in _MEASURED else np.int64
