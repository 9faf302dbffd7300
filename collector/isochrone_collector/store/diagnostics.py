"""Facts about a database for `doctor`, read over one plain connection that changes nothing."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import psycopg
from psycopg import pq

from isochrone_collector.store.audit import NO_ENTRY, Chain, Head, chain_of
from isochrone_collector.store.job_state import FAILING
from isochrone_collector.store.partitions import day_named
from isochrone_collector.store.postgres import citus, schema
from isochrone_collector.store.postgres.pool import connect, query
from isochrone_collector.store.summaries import Resolution
from isochrone_common.plan_signature import signer


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """Facts about a database. `version` is PostgreSQL's number, 180001 for 18.1; `settings` are by name, as `SHOW`
    writes them; `partitions` are days by their first instant; `clock_offset_us` is its clock minus the collector's,
    within `clock_uncertainty_us`; `plan_version` is 0 before the first plan; `plan_key` is the key that has signed the
    plan in force, empty without a signature, and `None` in an older schema; `summarised_until` is `None` before the
    first summary; `failing_jobs` are the jobs that keep failing, and since when; `workers` are the settings
    of each worker of a Citus cluster, by HOST:PORT and name, `None` for one that does not answer; `local_tables` are
    not distributed although others are; `audit` is `None` in an older schema.
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
    workers: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict)
    local_tables: tuple[str, ...] = ()
    audit: Chain | None = None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def facts(conninfo: str, *, known_entry: Head = NO_ENTRY) -> DatabaseFacts:
    """Read the facts; the audit trail had a known entry. Raises `DatabaseUnreachable` and `SchemaError`."""
    revision, newest = schema.revisions(conninfo)
    with connect(conninfo) as connection:
        connection.read_only = True
        offset_us, uncertainty_us = _clock(connection)
        is_newest = revision == newest
        names = connection.execute(query("partitions")).fetchall() if revision else []
        rows = connection.execute(query("progress")).fetchall() if is_newest else []
        progress = {name: (at - _EPOCH) // timedelta(microseconds=1) for name, at in rows}
        signature = connection.execute(query("newest_plan_signature")).fetchone() if is_newest else None
        return DatabaseFacts(
            version=connection.info.server_version,
            settings=dict(connection.execute(query("server_settings")).fetchall()),
            revision=revision,
            newest_revision=newest,
            partitions=frozenset(day for (name,) in names if (day := day_named(str(name))) is not None),
            has_default_partition=bool(revision) and _yes(connection, "has_default_partition"),
            clock_offset_us=offset_us,
            clock_uncertainty_us=uncertainty_us,
            plan_version=_number(connection, "newest_plan_version") if revision else 0,
            plan_key=signer(signature[0]) or "" if signature else None,
            may_make_partitions=not revision or _yes(connection, "may_make_partitions"),
            summarised_until=progress.get(Resolution.HOUR.job),
            failing_jobs={name.removeprefix(FAILING): at for name, at in progress.items() if name.startswith(FAILING)},
            local_tables=citus.local_tables(connection),
            audit=chain_of(
                connection.execute(query("audit_chain")), known=known_entry, is_owned=_yes(connection, "owns_audit")
            )
            if is_newest
            else None,
            workers=_workers(connection),
        )


def _workers(connection: psycopg.Connection) -> dict[str, Mapping[str, str] | None]:
    if not _yes(connection, "citus_is_there"):
        return {}
    connection.execute(query("citus_ask_quickly"))
    return dict(connection.execute(query("citus_worker_settings")).fetchall())


def driver() -> str:
    """Return psycopg's version and implementation: `binary`, `c` or the slow `python`."""
    return f"psycopg {psycopg.__version__} ({pq.__impl__})"


def _clock(connection: psycopg.Connection) -> tuple[int, int]:
    """Return the database's clock minus ours in microseconds, and its uncertainty: half of the round trip."""
    before_ns = time.time_ns()
    there_us = _number(connection, "clock")
    after_ns = time.time_ns()
    return there_us - (before_ns + after_ns) // 2000, (after_ns - before_ns) // 2000


def _yes(connection: psycopg.Connection, name: str) -> bool:
    return bool(_number(connection, name))


def _number(connection: psycopg.Connection, name: str) -> int:
    row = connection.execute(query(name)).fetchone()
    assert row is not None
    return int(row[0])
