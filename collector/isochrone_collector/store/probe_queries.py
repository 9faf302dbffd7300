"""Probes for queries: SQL selects columns of samples, and tables decide what each probe counts as.

Ingest derives `traits` and `answer_from_us` of each sample (`ingest.sample_columns`), and they are stored with it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from isochrone_collector.analysis.differential.decomposition import Phases
from isochrone_collector.analysis.goodput import Ending, Requests
from isochrone_collector.analysis.probe_records import (
    COMPARABLE,
    FIRST_TOKEN,
    VALID,
    by_outcome,
    comparable,
    has,
    outcomes,
)
from isochrone_collector.analysis.probes import Kind, Probes
from isochrone_collector.analysis.simulation import SentProbes
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals
from isochrone_collector.errors import BadRequest
from isochrone_collector.store import vantages
from isochrone_collector.store.postgres.pool import Connection, fetch, fetch_tuples, query
from isochrone_collector.store.postgres.values import POSTGRES_EPOCH_AT, fields_of
from isochrone_common.probe_metrics import CUT_OFF, STREAMED
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import DAY_US, Outcome, day_of

Column = Callable[[str], NDArray[Any]]
"""Returns a column of `sample` by its name: numbers, NaN if unknown, and instants in microseconds since the epoch."""

_KINDS = {Outcome.OK: Kind.OK, Outcome.THROTTLED: Kind.THROTTLED}
KIND_OF = by_outcome(lambda outcome: _KINDS.get(outcome, Kind.FAILED if outcome.failed else Kind.SKIPPED))
_ENDING_OF = np.array([Ending.ANSWERED, Ending.FAILED, Ending.THROTTLED, Ending.NONE], np.int8)[KIND_OF]
_ANY, _OK, _UNCONNECTED = (frozenset(Outcome), frozenset({Outcome.OK}), frozenset({Outcome.CONNECT_FAILED}))
_IS_STREAMED, _IS_CUT_OFF = by_outcome(STREAMED.__contains__), by_outcome(CUT_OFF.__contains__)


class _Measure:
    """A metric of a probe: the sum of some columns, for these outcomes, or the timeout in place of it for those that it
    `cut_off`; and the columns of its network part. Unless `always`, probes whose values are not those of the model
    have none: most of the prompt came from a cache, or the wall clock stepped.
    """

    def __init__(
        self,
        *columns: str,
        outcomes: frozenset[Outcome],
        cut_off: frozenset[Outcome] = frozenset(),
        network: tuple[str, ...] = (),
        always: bool = False,
    ) -> None:
        self.columns, self.network, self.always = columns, network, always
        self.has_value, self.has_limit = by_outcome(outcomes.__contains__), by_outcome(cut_off.__contains__)
        self.needed = (*columns, *network, *(["timeout_us"] if cut_off else []))


# A broken stream has a first token, but neither an end nor a speed. If the connection failed, the phases that took
# place are not all of it.
_MEASURES = {
    Metric.TTFT: _Measure("ttft_us", outcomes=STREAMED, cut_off=CUT_OFF, network=("rtt_us",)),
    Metric.TTFT_COLD: _Measure(
        "connect_us", "ttft_us", outcomes=STREAMED, cut_off=CUT_OFF, network=("connect_us", "rtt_us")
    ),
    Metric.TTFAT: _Measure("ttfat_us", outcomes=STREAMED, cut_off=CUT_OFF, network=("rtt_us",)),
    Metric.E2E: _Measure("e2e_us", outcomes=_OK, cut_off=CUT_OFF, network=("rtt_us",)),
    Metric.TOKENS_PER_SECOND: _Measure("tokens_per_second", outcomes=_OK),
    Metric.CONNECT: _Measure("connect_us", outcomes=_ANY - _UNCONNECTED, cut_off=_UNCONNECTED, always=True),
    Metric.RTT: _Measure("rtt_us", outcomes=_ANY, always=True),
}


def needed_columns(*metrics: Metric) -> tuple[str, ...]:
    """Return the columns that `values_of` needs for some metrics, besides `traits`."""
    return tuple(dict.fromkeys(chain.from_iterable(_MEASURES[metric].needed for metric in metrics)))


def values_of(metric: Metric, column: Column) -> tuple[Reals, Flags]:
    """Return the value of each probe, NaN if it has none, and whether it is the timeout that cut the probe off."""
    measure, traits = _MEASURES[metric], column("traits")
    has_value = measure.has_value[outcomes(traits)] & (measure.always | has(traits, VALID))
    value = np.where(has_value, reduce(np.add, map(column, measure.columns)), np.nan)
    if not measure.has_limit.any():
        return value, np.zeros(len(value), np.bool_)
    limit = np.where(np.isnan(value), _limits_of(metric, column), np.nan)
    is_limit = ~np.isnan(limit)
    return np.where(is_limit, limit, value), is_limit


def _limits_of(metric: Metric, column: Column) -> Reals:
    """Return how long each probe that a timeout cut off was waited for at least, NaN for the others."""
    measure, traits = _MEASURES[metric], column("traits")
    has_limit = measure.has_limit[outcomes(traits)]
    if "ttft_us" in measure.columns:
        has_limit &= ~has(traits, FIRST_TOKEN)
    return np.where(has_limit, column("timeout_us"), np.nan)


# A maximum of four million, because each takes 50 bytes, and statistics several times as much.
MAX_PROBES = 4_000_000
_PORTION = 500_000
EXPRESSIONS = {
    "connect_us": "CASE WHEN coalesce(dns_us, tcp_us, tls_us) IS NOT NULL"
    " THEN coalesce(dns_us, 0) + coalesce(tcp_us, 0) + coalesce(tls_us, 0) END"
}
_SENDS = {
    "i2": "int2send(({})::smallint)",
    "i8": "int8send({})",
    "f8": "float8send(coalesce(({})::double precision, 'NaN'))",
}


def record_of(fields: np.dtype[np.void], **expressions: str) -> sql.SQL:
    """Return the bytes of one probe: each field is a column of `sample`, unless it has an expression."""
    known = EXPRESSIONS | expressions
    sends = [
        ("timestamptz_send({})" if name.endswith("_at") else _SENDS[fields[name].str[1:]]).format(known.get(name, name))
        for name in fields.names or ()
    ]
    return sql.SQL(" || ".join(sends))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The rows of a query: their rounds, targets and, unless `None`, regions."""

    window: Window
    target_ids: tuple[int, ...]
    regions: tuple[str, ...] | None = None

    def parameters(self) -> dict[str, object]:
        """Return the scope as parameters of the statements."""
        return {**fields_of(self.window), "target_ids": self.target_ids, "regions": self.regions}


@dataclass(frozen=True, slots=True, eq=False)
class ProbeColumns:
    """Probes as records; `target` has the place of the target of each, and their column `place` that of the region."""

    target_ids: tuple[int, ...]
    regions: tuple[str, ...]
    target: Integers
    records: NDArray[np.void]

    @property
    def target_id(self) -> Integers:
        """Return the target of each probe."""
        return np.array(self.target_ids, np.int64)[self.target]

    def column(self, name: str) -> NDArray[Any]:
        """Return a column, as `Column`."""
        column = self.records[name]
        found = column.astype(column.dtype.newbyteorder("="))
        return found + POSTGRES_EPOCH_AT if name.endswith("_at") else found

    def by_series(self) -> "tuple[list[tuple[int, str]], Integers, ProbeColumns]":
        """Return each target id and region with probes, their numbers, and the probes by series and round."""
        key = self.target * len(self.regions) + self.column("place")
        order = np.argsort(self.column("round_at"), kind="stable")
        # Numbers of two bytes are sorted in a tenth of the time.
        narrow = key[order].astype(np.uint16 if len(self.target_ids) * len(self.regions) <= 1 << 16 else np.int64)
        order = order[np.argsort(narrow, kind="stable")]
        lengths = np.bincount(key)
        (present,) = np.nonzero(lengths)
        series = [divmod(one, len(self.regions)) for one in present.tolist()]
        # As blocks, because numpy moves the fields of a structure one by one.
        block = np.dtype((np.void, self.records.itemsize))
        records = self.records.view(block)[order].view(self.records.dtype)
        named = [(self.target_ids[target], self.regions[place]) for target, place in series]
        return named, lengths[present], replace(self, target=self.target[order], records=records)


def record_type(*names: str) -> np.dtype[np.void]:
    """Return the type of a record with these columns, after the place of the region and the traits."""
    wholes = {"place": ">i2", "traits": ">i2", "vantage_id": ">i8", "round_at": ">i8", "dispatched_at": ">i8"}
    return np.dtype([(name, wholes.get(name, ">f8")) for name in dict.fromkeys(("place", "traits", *names))])


async def read(connection: Connection, scope: Scope, *names: str, most: float | None = None) -> ProbeColumns:
    """Return some columns, and the traits, of the probes of a scope. Raises `BadRequest` if there are too many."""
    regions, fields = await region_names(connection, scope), record_type(*names)
    statement = query("probe_columns").format(record=record_of(fields))
    most = MAX_PROBES if most is None else most
    rows: list[tuple[int, bytes]] = []
    from_at, days, many = scope.window.from_at, 1, 0
    # The server holds the columns of a target in memory before it sends them, which a whole month would exceed. So the
    # window is read day by day, or several days at once if a day has few rows.
    while from_at < scope.window.until_at:
        until_at = min(day_of(from_at) + days * DAY_US, scope.window.until_at)
        part = replace(scope, window=Window(from_at=from_at, until_at=until_at), regions=regions)
        found: list[Any] = await fetch_tuples(connection, statement, **part.parameters())
        count = sum(len(probes) for _, probes in found) // fields.itemsize
        rows, many, from_at = rows + found, many + count, until_at
        days = max(1, min(2 * days, days * _PORTION // (1 + count)))
        if many > most:
            raise BadRequest(f"more than {most:_} probes: choose a shorter window, fewer targets or fewer regions")
    target_ids = tuple({target_id: None for target_id, _ in rows})
    target = np.array([target_ids.index(target_id) for target_id, _ in rows], np.int64)
    sizes = [len(probes) // fields.itemsize for _, probes in rows]
    records = np.frombuffer(b"".join(probes for _, probes in rows), fields)
    return ProbeColumns(target_ids, regions, np.repeat(target, sizes), records)


async def region_names(connection: Connection, scope: Scope) -> tuple[str, ...]:
    """Return the regions of a scope, each once."""
    return tuple(dict.fromkeys(await vantages.regions(connection) if scope.regions is None else scope.regions))


async def probes(connection: Connection, scope: Scope, metric: Metric, *, by_round: bool = False) -> Probes:
    """Return every probe with its value of a metric; `by_round` of those that can be compared. Raises `BadRequest`."""
    found = await read(connection, scope, "vantage_id", "round_at", *needed_columns(metric))
    return await asyncio.to_thread(_probes, found, metric, by_round=by_round)


def _probes(found: ProbeColumns, metric: Metric, *, by_round: bool) -> Probes:
    traits, vantage_id, round_at = (found.column(name) for name in ("traits", "vantage_id", "round_at"))
    value, censored = values_of(metric, found.column)
    kind = KIND_OF[outcomes(traits)].astype(np.int8)
    is_comparable = comparable(traits, vantage_id, round_at) if by_round else np.ones(len(value), np.bool_)
    region = found.column("place").astype(np.int64)
    # Where nothing else is left, they are shown, and nothing is decided (`Participation.busy_problem`).
    series = found.target * len(found.regions) + region
    is_counted = is_comparable | ~np.isin(series, series[is_comparable & ~np.isnan(value)])
    network = _MEASURES[metric].network
    return Probes(
        regions=found.regions,
        target_id=found.target_id,
        region=region,
        vantage_id=vantage_id,
        round_at=round_at,
        kind=kind,
        value=np.where(is_counted, value, np.nan),
        censored=censored & is_counted,
        left_out=~is_comparable & (kind == Kind.OK),
        network=reduce(np.add, map(found.column, network)) if network else np.full(len(value), np.nan),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRow:
    """The rounds that one vantage recorded of one target, and the number of probes by outcome."""

    vantage_id: int
    target_id: int
    recorded: int
    oldest_at: int
    newest_at: int
    outcomes: dict[str, int]


async def recorded(connection: Connection, scope: Scope) -> list[RecordedRow]:
    """Return the rounds that each vantage recorded of each target; the regions of the scope are ignored."""
    return await fetch(connection, "recorded", RecordedRow, **scope.parameters())


async def left_out(connection: Connection, scope: Scope) -> dict[int, float]:
    """Return the share of probes that cannot be compared, by vantage id; the regions of the scope are ignored."""
    return dict(await fetch_tuples(connection, "left_out", **scope.parameters()))


_PHASES = ("dns_us", "tcp_us", "tls_us", "rtt_us", "ttft_us", "provider_us")


async def phases(connection: Connection, scope: Scope) -> Phases:
    """Return the phases of every probe of a scope that has a valid first token and can be compared."""
    found = await read(connection, scope, "round_at", *_PHASES)
    traits = found.column("traits")
    chosen = _IS_STREAMED[outcomes(traits)] & (
        traits & (VALID | COMPARABLE | FIRST_TOKEN) == VALID | COMPARABLE | FIRST_TOKEN
    )
    return Phases(
        regions=found.regions,
        target_id=found.target_id[chosen],
        region=found.column("place").astype(np.int64)[chosen],
        round_at=found.column("round_at")[chosen],
        **{name.removesuffix("_us"): found.column(name)[chosen] for name in _PHASES},
    )


async def requests(connection: Connection, scope: Scope, *, answer_tokens: int = 0) -> Requests:
    """Return every round of a scope. With `answer_tokens`, the time to the last token is that of an answer of so many
    tokens: that of its first chunk, and the rest at the speed of this probe. Raises `BadRequest` if there are too many.
    """
    of_answer = ("answer_from_us", "first_chunk_tokens") if answer_tokens else ()
    names = (*needed_columns(Metric.TTFT, Metric.E2E, Metric.TOKENS_PER_SECOND), *of_answer)
    found = await read(connection, scope, "round_at", *names)
    traits, speed = found.column("traits"), values_of(Metric.TOKENS_PER_SECOND, found.column)[0]
    (ttft_us, no_token), (e2e_us, no_end) = (values_of(one, found.column) for one in (Metric.TTFT, Metric.E2E))
    if answer_tokens:
        rest_us = np.fmax(answer_tokens - found.column("first_chunk_tokens"), 0) / speed * 1e6
        e2e_us, no_end = found.column("answer_from_us") + rest_us, np.zeros(len(traits), np.bool_)
    return Requests(
        regions=found.regions,
        target_id=found.target_id,
        region=found.column("place").astype(np.int64),
        round_at=found.column("round_at"),
        ending=_ENDING_OF[outcomes(traits)],
        ttft_us=np.where(no_token, np.nan, ttft_us),
        e2e_us=np.where(no_end, np.nan, e2e_us),
        ceiling_us=_limits_of(Metric.E2E, found.column),
        tokens_per_second=speed,
    )


async def sent_probes(connection: Connection, scope: Scope, *, most: int) -> SentProbes:
    """Return the probes that were sent and are valid, or failed. Raises `BadRequest` if there are more than `most`."""
    names = ("vantage_id", "round_at", "dispatched_at", "ttft_us", "timeout_us", "cost_usd")
    found = await read(connection, scope, *names, most=most)
    traits = found.column("traits")
    outcome = outcomes(traits)
    kind = KIND_OF[outcome]
    columns = {
        "target_id": found.target_id,
        **{name: found.column(name) for name in ("vantage_id", "round_at", "dispatched_at", "cost_usd")},
        "throttled": kind == Kind.THROTTLED,
        "ttft_us": np.where(_IS_STREAMED[outcome], found.column("ttft_us"), np.nan),
        "limit_us": np.nan_to_num(np.where(_IS_CUT_OFF[outcome], found.column("timeout_us"), 0.0)),
    }
    chosen = (kind != Kind.SKIPPED) & ((kind != Kind.OK) | has(traits, VALID))
    return SentProbes(**{name: column[chosen] for name, column in columns.items()})
