"""Health checks of the doctor: from facts to a verdict, a sentence and a hint. Pure; the caller collects the facts.

Instants are microseconds since the Unix epoch, sizes are bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from string import ascii_letters
from typing import NamedTuple

from isochrone_collector.disk_space import DiskLevel, DiskSpace
from isochrone_collector.store.diagnostics import DatabaseFacts
from isochrone_common.cli.health_check import CheckResult, fail, ok, warn
from isochrone_common.credentials import format_fingerprint
from isochrone_wire import durations
from isochrone_wire.fleet import Liveness, VantageList
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, day_of
from isochrone_wire.operations import Access, AccessState
from isochrone_wire.text import first_of

OLDEST_POSTGRES = 15
DAYS_BACK = 1
DAYS_AHEAD = 3

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK_WARN_US = SECOND_US
_CLOCK_FAIL_US = MINUTE_US
_CERTIFICATE_WARN_DAYS = 21
# The collector looks every two seconds.
_SWITCH_LATE_US = MINUTE_US
# An hour is summarised when it is over, so that two hours are usual for a moment.
_SUMMARIES_LATE_US = 3 * 60 * MINUTE_US
_DURABLE = ("fsync", "full_page_writes", "synchronous_commit")
# Of a worker, in kB: what the collector's queries have on one server.
_WORK_MEM_KB = 64 * 1024
_NAMED = 5
_PER_MAJOR = 10_000


def judge_database(facts: DatabaseFacts, *, now_at: int) -> Iterator[CheckResult]:
    """Check a database that answers."""
    yield _version(facts.version)
    yield from _workers(facts.workers)
    if facts.local_tables:
        hint = "restart a collector while every node answers, or run `isochrone-collector migrate --citus`"
        yield warn("tables", f"not distributed: {first_of(facts.local_tables, _NAMED)}", hint)
    yield _durability(facts.settings)
    yield from judge_latency(facts.settings)
    yield _revision(facts.revision, facts.newest_revision)
    if facts.revision is not None:
        yield _partitions(facts, now_at=now_at)
        yield _jobs(facts.failing_jobs, now_at=now_at)
        yield _summaries(facts.summarised_until, now_at=now_at)
        yield _plan(facts.plan_version, facts.plan_key)
    yield from _audit(facts)
    yield _clock(facts.clock_offset_us, facts.clock_uncertainty_us)


def judge_disk(space: DiskSpace, *, where: str) -> CheckResult:
    """Check the free space at `where`."""
    sentence = f"{space} at {where}"
    if space.level >= DiskLevel.NO_BACKLOG:
        refused = "all pushes are" if space.level is DiskLevel.FULL else "backlogs are"
        return fail("disk", sentence, f"make room: {refused} refused, by the default of --disk-low")
    if space.level is DiskLevel.LOW:
        return warn("disk", sentence, "make room before it is used up")
    return ok("disk", sentence)


def judge_mode(mode: int, *, where: str) -> CheckResult:
    """Check that only the owner has access to a data folder with these permission bits."""
    if mode & 0o077:
        return warn("data folder", f"{where} is open to others (mode {mode:04o})", f"chmod 700 {where}")
    return ok("data folder", f"{where} is its owner's alone")


def judge_certificate(not_after_at: int, *, now_at: int) -> CheckResult:
    """Check how long a certificate is still valid."""
    days = (not_after_at - now_at) // DAY_US
    hint = "replace the certificate: `serve` reads the files again when they change"
    if not_after_at <= now_at:
        return fail("certificate", f"it expired {durations.rough(now_at - not_after_at)} ago", hint)
    sentence = f"valid for {days} more days"
    return warn("certificate", sentence, hint) if days < _CERTIFICATE_WARN_DAYS else ok("certificate", sentence)


def judge_rotation(fingerprint: bytes, *, switch_at: int | None, now_at: int) -> CheckResult:
    """Check the next certificate, which is announced. The instant of the switch is not known on other machines."""
    sentence = f"the next certificate, {format_fingerprint(fingerprint)}, is announced"
    if switch_at is None:
        return ok("rotation", sentence)
    if now_at - switch_at > _SWITCH_LATE_US:
        hint = "the log of the collector has certificate.not_switched with the reason"
        return warn("rotation", f"{sentence}; it was due {durations.rough(now_at - switch_at)} ago", hint)
    return ok("rotation", f"{sentence} and presented from {rfc3339(switch_at)}")


def judge_fleet(fleet: VantageList) -> Iterator[CheckResult]:
    """Check that the vantages confirm the collector's clock, accept the plan in force, and are online."""
    if fleet.paused:
        hint = "synchronise the clocks with NTP; the jobs then continue: docs/collector.md, Clock"
        yield fail("clock", f"{fleet.paused}: jobs that delete, summarise, publish or alert are paused", hint)
    refusing = [vantage for vantage in fleet.vantages if vantage.refused_plan_version == fleet.plan_version]
    if refusing:
        named = [f"{vantage.name}: {vantage.refused_plan_reason or 'no reason given'}" for vantage in refusing]
        hint = "they run an earlier plan until they accept this one: docs/agent.md, Policy and Signed plans"
        yield fail("plan", f"{fleet.plan_version} is refused by {first_of(named, _NAMED)}", hint)
    yield _vantages(fleet)


def judge_credentials(access: Sequence[Access], *, now_at: int) -> CheckResult:
    """Check that no valid credential is about to expire, unless the same name has a newer one."""
    newest = {one.name: one for one in access if one.state is AccessState.ACTIVE}
    expiring = [one for one in newest.values() if one.is_expiring(now_at)]
    if not expiring:
        return ok("credentials", f"{len(newest)} valid, none is about to expire")
    named = [f"{one.name} in {durations.rough((one.expires_at or 0) - now_at)}" for one in expiring]
    hint = (
        "their holders have not renewed them: is the agent running? else `vantage rotate`, or revoke and `access add`"
    )
    return warn("credentials", f"expiring: {first_of(named, _NAMED)}", hint)


def _vantages(fleet: VantageList) -> CheckResult:
    if not fleet.vantages:
        return warn("vantages", "none has sent anything yet", "start an agent: docs/agent.md")
    away = [v for v in fleet.vantages if v.liveness is not Liveness.ONLINE]
    if not away:
        return ok("vantages", f"all {len(fleet.vantages)} are online")
    named = first_of([f"{v.name}: {v.liveness.phrase}" for v in away], _NAMED)
    return warn("vantages", f"{len(away)} of {len(fleet.vantages)} are not online: {named}", "see `isochrone vantages`")


def _version(version: int) -> CheckResult:
    said = f"PostgreSQL {version // _PER_MAJOR}.{version % _PER_MAJOR}"
    if version // _PER_MAJOR < OLDEST_POSTGRES:
        return fail("postgresql", f"{said} is too old", f"use PostgreSQL {OLDEST_POSTGRES} or later")
    return ok("postgresql", said)


def _workers(workers: Mapping[str, Mapping[str, str] | None]) -> Iterator[CheckResult]:
    """Check the workers of a Citus cluster, if the database is one, and the settings of those that answer."""
    answered = {node: settings for node, settings in workers.items() if settings is not None}
    if lost := sorted(workers.keys() - answered):
        hint = "start it, or promote its standby: pushes and most queries fail until then; docs/scale.md"
        yield fail("workers", f"lost, or hanging: {first_of(lost, _NAMED)}", hint)
    elif workers:
        yield ok("workers", f"all {len(workers)} of the Citus cluster answer")
    if answered:
        result = _worker_settings(answered)
        yield replace(result, sentence=f"{result.sentence}; answered: {first_of(sorted(answered), _NAMED)}")


def _worker_settings(workers: Mapping[str, Mapping[str, str]]) -> CheckResult:
    """Check the settings of workers, which those of the collector's own sessions do not reach."""
    values = [(name, value, node) for node, found in workers.items() for name, value in found.items()]
    unsafe = [f"{name} off at {node}" for name, value, node in values if name in _DURABLE and value == "off"]
    if unsafe:
        hint = "turn them on there: acknowledged samples must survive a power failure; docs/scale.md"
        return fail("settings", first_of(unsafe, _NAMED), hint)
    slow = [f"jit on at {node}" for name, value, node in values if (name, value) == ("jit", "on")]
    slow += [
        f"work_mem {value} kB at {node}"
        for name, value, node in values
        if name == "work_mem" and int(value) < _WORK_MEM_KB
    ]
    if slow:
        hint = "set jit = off and work_mem = '64MB' for the collector's user, or queries are slow; docs/scale.md"
        return warn("settings", first_of(slow, _NAMED), hint)
    return ok("settings", "durability, jit and work_mem are right")


def _durability(settings: Mapping[str, str]) -> CheckResult:
    """Check the settings of the server; the collector itself turns `synchronous_commit` on."""
    off = [name for name in ("fsync", "full_page_writes") if settings.get(name) != "on"]
    if off:
        hint = "turn them on: acknowledged samples must survive a power failure"
        return fail("durability", f"{' and '.join(off)} off", hint)
    level = settings.get("synchronous_commit", "")
    if level == "off":
        hint = "the collector turns it on for itself; turn it on for the database, too"
        return warn("durability", "synchronous_commit is off by default", hint)
    return ok("durability", f"fsync on, full_page_writes on, synchronous_commit {level}")


def _revision(revision: str | None, newest: str) -> CheckResult:
    if revision == newest:
        return ok("schema", f"revision {revision}, the newest")
    hint = "`serve` migrates when it starts; or isochrone-collector migrate --database-url …"
    if revision is None:
        return warn("schema", "the database was never migrated", hint)
    return warn("schema", f"revision {revision}, and this collector's is {newest}", hint)


def _partitions(facts: DatabaseFacts, *, now_at: int) -> CheckResult:
    today_at = day_of(now_at)
    wanted = [today_at + day * DAY_US for day in range(-DAYS_BACK, DAYS_AHEAD + 1)]
    missing = [_day(at) for at in wanted if at not in facts.partitions]
    if facts.has_default_partition:
        hint = "detach it: it prevents partitions for the days of its rows"
        return fail("partitions", "the table sample has a DEFAULT partition", hint)
    if not facts.may_make_partitions:
        hint = "the database user must own the table sample and may create in its schema, or `serve` does not start"
        return fail("partitions", "this database user may not create any", hint)
    if missing:
        hint = "`serve` makes them every hour; its log says job.failed when it cannot"
        return fail("partitions", f"none for {first_of(missing, _NAMED)}", hint)
    return ok("partitions", f"there from {_day(wanted[0])} to {_day(wanted[-1])}")


def _jobs(failing: Mapping[str, int], *, now_at: int) -> CheckResult:
    if not failing:
        return ok("jobs", "none keeps failing")
    named = [f"{name} since {durations.rough(now_at - since_at)}" for name, since_at in sorted(failing.items())]
    hint = "`isochrone alerts` shows the reason, and the log of the leading collector has job.failed"
    return fail("jobs", f"failing: {first_of(named, _NAMED)}", hint)


def _summaries(until_at: int | None, *, now_at: int) -> CheckResult:
    if until_at is None:
        return ok("summaries", "none yet; `serve` creates them after its start")
    behind_us = now_at - until_at
    sentence = f"made until {durations.rough(behind_us)} ago" if behind_us > 0 else "made until now"
    if behind_us > _SUMMARIES_LATE_US:
        hint = "a collector that just started catches up by itself; else its log says job.failed"
        return warn("summaries", sentence, hint)
    return ok("summaries", sentence)


def _plan(version: int, key: str | None) -> CheckResult:
    if not version:
        return warn("plan", "none has been applied yet", "isochrone-collector apply plan.yaml")
    signature = {None: "", "": ", not signed"}.get(key, f", signed with {key}")
    return ok("plan", f"{version} in force{signature}")


def _audit(facts: DatabaseFacts) -> Iterator[CheckResult]:
    chain = facts.audit
    if chain is None:
        return
    hint = "compare it with a backup; after a restore remove audit.head in the data folder: docs/security.md"
    if chain.broken_id is not None:
        yield fail("audit", f"entry {chain.broken_id} does not follow the one before it: entries were changed", hint)
    elif not chain.has_known:
        yield fail("audit", "the newest entry of the last check is gone or another one: entries were removed", hint)
    else:
        owner = "this user owns the table" if chain.is_owned else "another user owns the table"
        yield ok("audit", f"each of {chain.head.id} entries follows the one before it; {owner}")


def _clock(offset_us: int, uncertainty_us: int) -> CheckResult:
    off = max(0, abs(offset_us) - uncertainty_us)
    sentence = f"the database is {offset_us / 1000:+z.1f} ms from here, ± {uncertainty_us / 1000:.1f} ms"
    hint = "synchronise both clocks with NTP"
    if off > _CLOCK_FAIL_US:
        return fail("clock", sentence, hint)
    return warn("clock", sentence, hint) if off > _CLOCK_WARN_US else ok("clock", sentence)


def _day(at: int) -> str:
    return f"{_EPOCH + timedelta(microseconds=at):%F}"


CHECK = "latency"

# Bytes, and microseconds.
_UNITS = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_UNITS |= {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000}


class _Advice(NamedTuple):
    """A setting, the value to give it, whether another value is as good, and what it gained when measured."""

    setting: str
    value: str
    is_met: Callable[[str], bool]
    gain: str


def _at_least(least: str) -> Callable[[str], bool]:
    return lambda value: _amount(value) >= _amount(least)


def _amount(value: str) -> int:
    """Return the bytes or microseconds of a value as PostgreSQL shows it, such as `16MB`, `20ms` or `0`."""
    digits = value.rstrip(ascii_letters)
    return int(digits) * _UNITS[value[len(digits) :] or "B"]


_ADVICE = (
    # `on` is pglz.
    _Advice(
        "wal_compression",
        "off",
        lambda value: value in ("off", "lz4", "zstd"),
        "a page in the log took 0.3 ms less than with pglz",
    ),
    _Advice(
        "max_wal_size",
        "4GB",
        _at_least("4GB"),
        "at half load the p99 of replies was 66 ms in place of 80 to 170 ms with 2 GB",
    ),
    _Advice(
        "backend_flush_after",
        "1MB",
        _at_least("1MB"),
        "commits no longer waited 0.2 to 0.4 s for the kernel to write half a minute of rows",
    ),
    _Advice(
        "autovacuum_vacuum_cost_delay",
        "20ms",
        _at_least("20ms"),
        "at half load the p99 of replies was 77 and 229 ms in two runs, in place of 206 to 326 ms in three",
    ),
    # Only Citus has it.
    _Advice(
        "citus.recover_2pc_interval",
        "3s",
        lambda value: _amount("2s") <= _amount(value) <= _amount("5s"),
        "what met a commit interrupted by a crash of the coordinator waited 3.9 s, in place of 60 s",
    ),
)


def judge_latency(settings: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check the settings of a server, by name, as `SHOW` writes them; one that is missing is not checked."""
    known = [(one, settings[one.setting]) for one in _ADVICE if one.setting in settings]
    slow = [(one, value) for one, value in known if not one.is_met(value)]
    for one, value in slow:
        change = f"ALTER SYSTEM SET {one.setting} = '{one.value}'; SELECT pg_reload_conf()"
        hint = f"{change}: measured, {one.gain}"
        yield warn(CHECK, f"{one.setting} is {value}", hint)
    if known and not slow:
        yield ok(CHECK, ", ".join(f"{one.setting} {value}" for one, value in known))
