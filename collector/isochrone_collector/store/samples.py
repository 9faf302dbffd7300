"""Single samples: their columns and positions, the newest, one of them, page by page, and those of new batches;
and the rate limits of samples.

The position of a sample in the order of all samples is its key, which has a public form.
"""

import base64
import binascii
import struct
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

from psycopg import sql

from isochrone_collector.store.batches import NewBatch
from isochrone_collector.store.postgres.pool import Connection, fetch_records, query
from isochrone_collector.store.postgres.values import fields_of
from isochrone_collector.store.probe_queries import Scope
from isochrone_wire.durations import MAX_INSTANT_AT
from isochrone_wire.fleet import StoredSample
from isochrone_wire.model import MINUTE_US, Outcome, Quality, RateLimit, Sample, TokenSource

_RATELIMIT = "ratelimit_"
_OWN_COLUMNS = {
    "target_id": "int8",
    "round_at": "timestamptz",
    "vantage_id": "int8",
    "epoch": "int8",
    "seq": "int8",
    "idx": "int4",
    "region": "text",
    "received_at": "timestamptz",
}
_TEXTS = ("outcome", "token_source", "remote_address", "edge", "request_id", "error")
_RATES = ("tokens_per_second", "cost_usd")


def _type_of(column: str) -> str:
    if column in _TEXTS:
        return "text"
    if column in _RATES:
        return "float8"
    if column.endswith("_at"):
        return "timestamptz"
    return "int8" if column.endswith("_us") or column.startswith(_RATELIMIT) else "int4"


_MEASURED = [field.name for field in fields(Sample) if field.name not in {*_OWN_COLUMNS, "ratelimit"}]
_LIMITS = [field.name for field in fields(RateLimit)]
_READ: Mapping[str, str] = {
    **_OWN_COLUMNS,
    **{name: _type_of(name) for name in _MEASURED},
    **{_RATELIMIT + name: _type_of(_RATELIMIT + name) for name in _LIMITS},
}
TEXTS = tuple(name for name in _TEXTS if name != "outcome")
"""The columns of texts of a probe."""
NUMBERS = tuple(name for name in _MEASURED if _type_of(name) in ("float8", "int4", "int8") and name != "quality")
"""The columns of its numbers."""
COLUMNS: Mapping[str, str] = {**_READ, "traits": "int4", "answer_from_us": "int8"}
"""Name and type of every column of `sample`; for the last two, see `ingest.sample_columns.derived`."""


def stored_sample(record: Mapping[str, Any], *, target: str) -> StoredSample:
    """Return a row of the statement `samples` as the value that a reader gets."""
    limits = {name: record[_RATELIMIT + name] for name in _LIMITS}
    source = record["token_source"]
    special: dict[str, Any] = {
        "outcome": Outcome(record["outcome"]),
        "token_source": TokenSource(source) if source else None,
        "quality": Quality(record["quality"]),
        "ratelimit": RateLimit(**limits) if any(limit is not None for limit in limits.values()) else None,
    }
    plain = {name: record[name] for name in ("target_id", "round_at", *_MEASURED) if name not in special}
    return StoredSample(
        target=target,
        vantage=record["vantage"],
        region=record["region"],
        received_at=record["received_at"],
        id=sample_name(record),
        sample=Sample(**plain, **special),
    )


_PREFIX = "sample_"
_KEY = struct.Struct(">qqqqqi")
_PADDING = "="


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position of a sample, oldest round first; the default is the start of a round."""

    round_at: int
    target_id: int = 0
    vantage_id: int = 0
    epoch: int = 0
    seq: int = 0
    idx: int = 0


NAMES = tuple(part.name for part in fields(Position))


def position_of(record: Mapping[str, Any]) -> Position:
    """Return the position of a record."""
    return Position(**{name: record[name] for name in NAMES})


def sample_name(record: Mapping[str, Any]) -> str:
    """Return the public form of the key of a record."""
    key = _KEY.pack(*(record[name] for name in NAMES))
    return _PREFIX + base64.urlsafe_b64encode(key).decode().rstrip(_PADDING)


def parse_sample_name(text: str) -> Position | None:
    """Return the position with this public form; `None` if it is not one of a round in the calendar."""
    encoded = text.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(encoded + _PADDING * (-len(encoded) % 4), altchars=b"-_", validate=True)
        found = Position(**dict(zip(NAMES, _KEY.unpack(key), strict=True)))
    except (binascii.Error, struct.error, ValueError):
        return None
    is_name = text == sample_name(dict(zip(NAMES, astuple(found), strict=True)))
    return found if is_name and 0 <= found.round_at <= MAX_INSTANT_AT else None


Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SampleFilter:
    """A condition on the rows of `sample` and `vantage`, with its parameters."""

    condition: sql.Composable
    parameters: Mapping[str, object]


EVERY_SAMPLE = SampleFilter(sql.SQL("true"), {})
"""No sample is left out."""


async def newest(connection: Connection, scope: Scope, *, limit: int, of: SampleFilter = EVERY_SAMPLE) -> list[Record]:
    """Return the newest samples, newest first, searched in growing steps: no index has all rounds in order."""
    window, span_us = scope.window, MINUTE_US
    while True:
        from_at = max(window.from_at, window.until_at - span_us)
        part = replace(scope, window=replace(window, from_at=from_at))
        records = await _records(connection, "samples", {**part.parameters(), "limit": limit}, of)
        if len(records) == limit or from_at == window.from_at:
            return records
        span_us *= 8


async def after(
    connection: Connection, scope: Scope, position: Position, *, limit: int, of: SampleFilter = EVERY_SAMPLE
) -> list[Record]:
    """Return the samples of a scope after a position, in order."""
    bounds = {f"after_{name}": getattr(position, name) for name in NAMES}
    return await _records(connection, "samples_after", {**scope.parameters(), **bounds, "limit": limit}, of)


async def at(connection: Connection, position: Position) -> list[Record]:
    """Return the sample at a position, if there is one."""
    return await _records(connection, "sample_at", fields_of(position))


async def of_batches(
    connection: Connection, scope: Scope, batches: Sequence[NewBatch], of: SampleFilter = EVERY_SAMPLE
) -> list[Record]:
    """Return the samples of some batches, in the order of their receipt; the window of the scope is ignored."""
    vantage_ids, epochs, seqs = zip(*(batch.key for batch in batches), strict=True)
    oldest_at, newest_at = [row.oldest_round_at for row in batches], [row.newest_round_at for row in batches]
    parameters: Record = {
        **scope.parameters(),
        "from_at": min(oldest_at),
        "until_at": max(newest_at),
        "vantage_ids": vantage_ids,
        "epochs": epochs,
        "seqs": seqs,
        "oldest_at": oldest_at,
        "newest_at": newest_at,
    }
    return await _records(connection, "samples_of_batches", parameters, of)


async def rate_limit_history(connection: Connection, scope: Scope, *, bucket_us: int, limit: int) -> list[Record]:
    """Return at most `limit` buckets, oldest first by target, region and vantage: the lowest remaining amounts in the
    bucket that begins at `at`, and the number of probes that stated them.
    """
    parameters = {**scope.parameters(), "bucket": f"{bucket_us} microseconds", "limit": limit}
    return await fetch_records(connection, "rate_limit_history", **parameters)


async def rate_limit_readings(connection: Connection, scope: Scope, *, newest: int) -> list[Record]:
    """Return the `newest` rate limits of each target and vantage, oldest first; `at` is when the probe began."""
    return await fetch_records(connection, "rate_limit_readings", **scope.parameters(), readings=newest)


async def _records(
    connection: Connection, name: str, parameters: Record, of: SampleFilter = EVERY_SAMPLE
) -> list[Record]:
    columns = sql.SQL(", ").join(sql.Identifier("sample", column) for column in _READ)
    statement = query(name).format(columns=columns, condition=of.condition)
    return await fetch_records(connection, statement, **parameters, **of.parameters)
