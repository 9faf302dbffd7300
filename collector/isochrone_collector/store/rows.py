"""Rows of the tables as frozen values; instants are integer microseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from isochrone_collector.store.sample_position import sample_name
from isochrone_wire.fleet import StoredSample
from isochrone_wire.model import Outcome, Quality, RateLimit, Sample, TokenSource

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRow:
    """One name: of a region, of a partition."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRow:
    """One id: of a target, of a credential."""

    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class YesRow:
    """A truth value."""

    yes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageRow:
    """A vantage, with the instants of its first and last push."""

    id: int
    name: str
    region: str
    first_seen_at: int
    last_seen_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageStateRow:
    """A vantage with its newest heartbeat. `ledgered` is the number of samples in the delivery ledger of the epoch that
    the heartbeat counts.
    """

    name: str
    region: str
    first_seen_at: int
    last_seen_at: int
    newest_sample_at: int | None
    next_heartbeat_at: int | None
    agent_version: str
    plan_version: int
    refused_plan_version: int | None
    refused_plan_reason: str | None
    spool_depth: int
    spool_oldest_at: int | None
    quarantined: int
    dropped: dict[str, int]
    clock_offset_us: int | None
    clock_uncertainty_us: int | None
    loop_lag_us: int | None
    finished: int
    ledgered: int
    rounds_missed: int
    missing_keys: str | None
    refused_targets: str | None
    rival_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpenderRow:
    """A vantage and the spend that its agent reported."""

    name: str
    region: str
    spend: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHistoryRow:
    """The origin of a plan: the user and instant of `apply`, and the version it restored, if any."""

    version: int
    applied_at: int
    applied_by: str
    restores: int | None
    signature: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpanRow:
    """A plan in force from `applied_at` to `until_at`, which is `None` for the newest."""

    version: int
    applied_at: int
    until_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """The plan in force: its document, the instant of `apply`, and its encoded signature, if it is signed."""

    version: int
    document: str
    applied_at: int
    signature: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """A target that is or was planned. Prices are in US dollars per million tokens."""

    id: int
    name: str
    provider: str
    model: str
    usd_per_m_input: float | None
    usd_per_m_output: float | None
    last_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """The result of a batch: the numbers of samples received and stored, (index, reason) of each rejected one, and the
    hash of its content, which batches of earlier collectors lack.
    """

    samples: int
    stored: int
    rejections: list[tuple[int, str]] | None
    content_hash: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BatchKey:
    """The key of a batch in the ledger."""

    vantage_id: int
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRow:
    """A row of the ledger with its key."""

    vantage_id: int
    epoch: int
    seq: int
    samples: int
    stored: int
    rejections: list[tuple[int, str]] | None
    content_hash: bytes | None

    @property
    def key(self) -> BatchKey:
        """Return the key of the batch."""
        return BatchKey(vantage_id=self.vantage_id, epoch=self.epoch, seq=self.seq)

    @property
    def ledger(self) -> LedgerRow:
        """Return the result of the batch."""
        return LedgerRow(
            samples=self.samples, stored=self.stored, rejections=self.rejections, content_hash=self.content_hash
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """Facts about a database. `version` is PostgreSQL's number, 180001 for 18.1; `settings` are by name, as `SHOW`
    writes them; `partitions` are days by their first instant; `clock_offset_us` is its clock minus the collector's,
    within `clock_uncertainty_us`; `plan_version` is 0 before the first plan; `plan_key` is the key that has signed the
    plan in force, empty without a signature, and `None` in an older schema; `summarised_until` is `None` before the
    first summary; `failing_jobs` are the jobs that keep failing, and since when; `lost_workers` are the workers of a
    Citus cluster that do not answer, as HOST:PORT, and `None` where the database is no cluster; `worker_settings` are
    those of the workers that answer, by HOST:PORT and name; `local_tables` are not distributed although others are.
    """

    version: int
    settings: Mapping[str, str]
    revision: str | None
    newest_revision: str
    partitions: frozenset[int]
    has_default_partition: bool
    clock_offset_us: int
    clock_uncertainty_us: int
    plan_version: int
    plan_key: str | None = None
    may_make_partitions: bool = True
    summarised_until: int | None = None
    failing_jobs: Mapping[str, int] = field(default_factory=dict)
    lost_workers: tuple[str, ...] | None = None
    worker_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    local_tables: tuple[str, ...] = ()


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

COLUMNS: Mapping[str, str] = {
    **_OWN_COLUMNS,
    **{name: _type_of(name) for name in _MEASURED},
    **{_RATELIMIT + name: _type_of(_RATELIMIT + name) for name in _LIMITS},
}
"""Name and type of every column of `sample`, in the order of `sample_row`."""

_measured = attrgetter(*_MEASURED)
_limits = attrgetter(*_LIMITS)
_NO_LIMITS = (None,) * len(_LIMITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of the samples of one batch, and the instant at which it was received."""

    vantage_id: int
    region: str
    epoch: int
    seq: int
    received_at: int


def sample_row(sample: Sample, idx: int, origin: Origin) -> Row:
    """Return a sample as a row of `sample`, in the order of `COLUMNS`. `idx` is its index in the batch."""
    limits = _limits(sample.ratelimit) if sample.ratelimit else _NO_LIMITS
    return (
        sample.target_id,
        sample.round_at,
        origin.vantage_id,
        origin.epoch,
        origin.seq,
        idx,
        origin.region,
        origin.received_at,
        *_measured(sample),
        *limits,
    )


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
