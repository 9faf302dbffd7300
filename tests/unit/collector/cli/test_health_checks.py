"""The doctor's checks: from facts to verdicts."""

from dataclasses import replace
from typing import Any

import pytest

from isochrone_collector.cli import health_checks
from isochrone_collector.cli.health_checks import judge_latency
from isochrone_collector.disk_space import DiskSpace
from isochrone_collector.store.audit import Chain, Head
from isochrone_collector.store.diagnostics import DatabaseFacts
from isochrone_common.cli.health_check import CheckResult, Verdict, fail, ok, warn, worst
from isochrone_wire.durations import HOUR_US
from isochrone_wire.fleet import Liveness, VantageList, VantageStatus
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.operations import Access, AccessState, Role

DAY_AT = 20_000 * DAY_US
NOW_AT = DAY_AT + 5
WELL = DatabaseFacts(
    version=180_001,
    settings={"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"},
    revision="0002",
    newest_revision="0002",
    partitions=frozenset(DAY_AT + day * DAY_US for day in range(-31, 4)),
    has_default_partition=False,
    clock_offset_us=300,
    clock_uncertainty_us=200,
    plan_version=4,
)
GIB = 1 << 30
WHOLE = Chain(head=Head(id=3, hash=b"3"), broken_id=None, has_known=True, is_owned=True)
WORKER = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "jit": "off", "work_mem": "65536"}
LOST_WORKERS = {"workers": {"db-3:5432": None, "db-1:5432": None, "db-2:5432": WORKER}}
RECOVERY = "citus.recover_2pc_interval"


def workers(**changes: str) -> dict[str, Any]:
    """Facts about a cluster of two workers, one of which has other settings."""
    return {"workers": {"db-2:5432": WORKER, "db-3:5432": {**WORKER, **changes}}}


def test_a_database_that_is_well() -> None:
    """Nothing is said against a database of which nothing can be said."""
    found = {finding.check: finding for finding in health_checks.judge_database(WELL, now_at=NOW_AT)}
    assert {finding.verdict for finding in found.values()} == {Verdict.OK}
    assert found["postgresql"].sentence == "PostgreSQL 18.1"
    assert found["partitions"].sentence == "there from 2024-10-03 to 2024-10-07"
    assert found["clock"].sentence == "the database is +0.3 ms from here, ± 0.2 ms"


@pytest.mark.parametrize(
    ("changes", "check", "verdict", "sentence"),
    [
        ({"version": 140_011}, "postgresql", "fail", "PostgreSQL 14.11 is too old"),
        ({"version": 150_000}, "postgresql", "ok", "PostgreSQL 15.0"),
        ({"settings": {**WELL.settings, "fsync": "off"}}, "durability", "fail", "fsync off"),
        ({"settings": {}}, "durability", "fail", "fsync and full_page_writes off"),
        (
            {"settings": {**WELL.settings, "synchronous_commit": "off"}},
            "durability",
            "warn",
            "synchronous_commit is off by default",
        ),
        ({"settings": {**WELL.settings, "synchronous_commit": "remote_apply"}}, "durability", "ok", "fsync on"),
        (
            {"audit": replace(WHOLE, is_owned=False)},
            "audit",
            "ok",
            "each of 3 entries follows the one before it",
        ),
        ({"audit": replace(WHOLE, broken_id=2)}, "audit", "fail", "entry 2 does not follow the one before it"),
        ({"audit": replace(WHOLE, has_known=False)}, "audit", "fail", "the newest entry of the last check is gone"),
        ({"failing_jobs": {"rollup": NOW_AT - 3 * HOUR_US}}, "jobs", "fail", "failing: rollup since 3 h"),
        (workers(), "workers", "ok", "all 2 of the Citus cluster answer"),
        (LOST_WORKERS, "workers", "fail", "lost, or hanging: db-1:5432, db-3:5432"),
        (LOST_WORKERS, "settings", "ok", "durability, jit and work_mem are right; answered: db-2:5432"),
        (workers(), "settings", "ok", "durability, jit and work_mem are right; answered: db-2:5432, db-3:5432"),
        ({"settings": {**WELL.settings, RECOVERY: "1min"}}, "latency", "warn", f"{RECOVERY} is 1min"),
        ({"settings": {**WELL.settings, RECOVERY: "-1"}}, "latency", "warn", f"{RECOVERY} is -1"),
        ({"settings": {**WELL.settings, RECOVERY: "5s"}}, "latency", "ok", ""),
        (workers(synchronous_commit="remote_apply"), "settings", "ok", "durability"),
        (workers(fsync="off", jit="on"), "settings", "fail", "fsync off at db-3:5432"),
        (workers(full_page_writes="off"), "settings", "fail", "full_page_writes off at db-3:5432"),
        (workers(synchronous_commit="off"), "settings", "fail", "synchronous_commit off at db-3:5432"),
        (workers(jit="on"), "settings", "warn", "jit on at db-3:5432"),
        ({"local_tables": ("incident",)}, "tables", "warn", "not distributed: incident"),
        (workers(work_mem="65535"), "settings", "warn", "work_mem 65535 kB at db-3:5432"),
        ({"plan_key": None}, "plan", "ok", "4 in force"),
        ({"plan_key": ""}, "plan", "ok", "4 in force, not signed"),
        ({"plan_key": "isochrone-plan-AAEC"}, "plan", "ok", "4 in force, signed with isochrone-plan-AAEC"),
        ({"revision": "0001"}, "schema", "warn", "revision 0001, and this collector's is 0002"),
        ({"revision": None}, "schema", "warn", "the database was never migrated"),
        ({"partitions": frozenset()}, "partitions", "fail", "none for 2024-10-03, 2024-10-04"),
        ({"partitions": WELL.partitions - {DAY_AT + 3 * DAY_US}}, "partitions", "fail", "none for 2024-10-07"),
        ({"partitions": WELL.partitions - {DAY_AT - 2 * DAY_US}}, "partitions", "ok", "there"),
        ({"has_default_partition": True}, "partitions", "fail", "the table sample has a DEFAULT partition"),
        ({"may_make_partitions": False}, "partitions", "fail", "this database user may not create any"),
        ({"summarised_until": NOW_AT - 3 * HOUR_US}, "summaries", "ok", "made until 3 h ago"),
        ({"summarised_until": NOW_AT - 3 * HOUR_US - 1}, "summaries", "warn", "made until 3 h ago"),
        ({"summarised_until": NOW_AT + 1}, "summaries", "ok", "made until now"),
        ({"plan_version": 0}, "plan", "warn", "none has been applied yet"),
        ({"clock_offset_us": -1_100_000, "clock_uncertainty_us": 200_000}, "clock", "ok", "the database is -1100.0"),
        ({"clock_offset_us": -1_300_000, "clock_uncertainty_us": 200_000}, "clock", "warn", "the database is -1300.0"),
        ({"clock_offset_us": 61 * SECOND_US}, "clock", "fail", "the database is +61000.0 ms"),
    ],
)
def test_a_database_that_is_not(changes: dict[str, Any], check: str, verdict: str, sentence: str) -> None:
    """Each thing that is wrong is one finding with a hint, and a clock is only blamed for what it cannot explain."""
    found = {
        finding.check: finding for finding in health_checks.judge_database(replace(WELL, **changes), now_at=NOW_AT)
    }
    assert found[check].verdict == verdict
    assert found[check].sentence.startswith(sentence)
    assert bool(found[check].hint) == (verdict != "ok")


def test_nothing_is_asked_of_an_empty_database() -> None:
    """Where nothing was migrated there are no partitions to miss."""
    found = health_checks.judge_database(replace(WELL, revision=None), now_at=NOW_AT)
    assert {"partitions", "plan"} & {finding.check for finding in found} == set()


@pytest.mark.parametrize(("gib", "verdict"), [(19.0, "ok"), (11.0, "warn"), (7.0, "fail"), (2.0, "fail")])
def test_disks_run_full(gib: float, verdict: str) -> None:
    """A disk with little room is a warning, and one for which pushes are refused a failure."""
    space = DiskSpace(free_bytes=int(gib * GIB), size_bytes=100 * GIB, low_percent=15)
    assert health_checks.judge_disk(space, where="/data").verdict == verdict


@pytest.mark.parametrize(("mode", "verdict"), [(0o700, "ok"), (0o750, "warn"), (0o707, "warn")])
def test_a_folder_is_its_owners(mode: int, verdict: str) -> None:
    """The folder is the embedded server's password."""
    assert health_checks.judge_mode(mode, where="/data").verdict == verdict


@pytest.mark.parametrize(("days", "verdict"), [(3650, "ok"), (21, "ok"), (20, "warn"), (0, "fail"), (-9, "fail")])
def test_certificates_end(days: int, verdict: str) -> None:
    """Three weeks before its end a certificate is worth a look, after it nobody gets in."""
    assert health_checks.judge_certificate(NOW_AT + days * DAY_US, now_at=NOW_AT).verdict == verdict


@pytest.mark.parametrize(
    ("after_us", "verdict", "end"),
    [
        (None, "ok", "is announced"),
        (DAY_US, "ok", "is announced and presented from 2024-10-05T00:00:00.000005Z"),
        (-SECOND_US, "ok", "is announced and presented from 2024-10-03T23:59:59.000005Z"),
        (-600 * SECOND_US, "warn", "is announced; it was due 10 min ago"),
    ],
)
def test_the_next_certificate_is_shown(after_us: int | None, verdict: str, end: str) -> None:
    """It has the instant of the switch, and a warning if that has passed."""
    switch_at = None if after_us is None else NOW_AT + after_us
    found = health_checks.judge_rotation(bytes(32), switch_at=switch_at, now_at=NOW_AT)
    assert (found.verdict, found.sentence.partition(", ")[2].partition(", ")[2]) == (verdict, end)


def vantage(name: str, liveness: Liveness) -> VantageStatus:
    return VantageStatus(name=name, region="us", liveness=liveness, reason="", last_seen_at=0)


@pytest.mark.parametrize(
    ("states", "verdict", "sentence"),
    [
        ([], "warn", "none has sent anything yet"),
        ([Liveness.ONLINE] * 2, "ok", "all 2 are online"),
        ([Liveness.ONLINE, Liveness.LATE], "warn", "1 of 2 are not online: v1: late"),
        ([Liveness.SILENT] * 7, "warn", "7 of 7 are not online: v0: no samples, v1: no samples, v2: no samples"),
    ],
)
def test_who_is_away_is_named(states: list[Liveness], verdict: str, sentence: str) -> None:
    """Vantages that are not online are named, the first few of many."""
    everyone = tuple(vantage(f"v{n}", state) for n, state in enumerate(states))
    (found,) = health_checks.judge_fleet(VantageList(plan_version=1, answered_at=0, vantages=everyone))
    assert (found.verdict, found.sentence[: len(sentence)]) == (verdict, sentence)
    assert ("and 2 more" in found.sentence) == (len(states) == 7)


def test_a_refused_plan_is_a_failure() -> None:
    """It names the vantages that refuse the plan in force, with their reasons; an earlier refusal does not count."""
    unsigned = replace(
        vantage("v1", Liveness.ONLINE), refused_plan_version=4, refused_plan_reason="the plan is not signed"
    )
    earlier = replace(vantage("v2", Liveness.ONLINE), refused_plan_version=3)
    plan, _ = health_checks.judge_fleet(VantageList(plan_version=4, answered_at=0, vantages=(unsigned, earlier)))
    assert (plan.verdict, plan.check) == ("fail", "plan")
    assert plan.sentence == "4 is refused by v1: the plan is not signed"
    (_,) = health_checks.judge_fleet(VantageList(plan_version=4, answered_at=0, vantages=(earlier,)))


def test_an_expiring_credential_is_a_warning_unless_there_is_a_newer_one() -> None:
    """It names the holders that have not renewed in the first half of the time for that."""

    def credential(name: str, *, created_at: int, renew_at: int | None) -> Access:
        return Access(
            id=created_at,
            name=name,
            role=Role.VANTAGE,
            state=AccessState.ACTIVE,
            created_at=created_at,
            renew_at=renew_at,
            expires_at=90,
        )

    access = [
        credential("a", created_at=0, renew_at=60),
        credential("b", created_at=0, renew_at=60),
        credential("b", created_at=70, renew_at=None),
    ]
    assert health_checks.judge_credentials(access, now_at=74).verdict == "ok"
    found = health_checks.judge_credentials(access, now_at=75)
    assert (found.verdict, "a in" in found.sentence, "b in" in found.sentence) == ("warn", True, False)


def test_paused_jobs_are_a_failure() -> None:
    """The reason is stated before the vantages."""
    paused = "the clock is 36 d ahead of 2 vantages"
    clock, _ = health_checks.judge_fleet(VantageList(plan_version=1, answered_at=0, paused=paused))
    assert (clock.verdict, clock.check, clock.sentence.startswith(paused)) == ("fail", "clock", True)


@pytest.mark.parametrize(
    ("results", "verdict"), [([], "ok"), ([ok("a", "b")], "ok"), ([ok("a", "b"), warn("a", "b", "c")], "warn")]
)
def test_the_gravest_decides(results: list[CheckResult], verdict: str) -> None:
    """One failure is a failure, whatever else is well."""
    assert worst(results) == verdict
    assert worst([fail("x", "y", "z"), *results]) is Verdict.FAIL


WELL_TUNED = {
    "wal_compression": "off",
    "max_wal_size": "4GB",
    "backend_flush_after": "1MB",
    "autovacuum_vacuum_cost_delay": "20ms",
}


@pytest.mark.parametrize(
    "settings",
    [
        WELL_TUNED,
        WELL_TUNED | {"wal_compression": "lz4"},
        WELL_TUNED | {"wal_compression": "zstd", "max_wal_size": "1TB", "backend_flush_after": "2MB"},
        WELL_TUNED | {"max_wal_size": "4096MB", "backend_flush_after": "1024kB", "autovacuum_vacuum_cost_delay": "1s"},
    ],
)
def test_enough_is_right(settings: dict[str, str]) -> None:
    """Larger sizes are as good, in any unit, and so are faster methods of compression."""
    (found,) = judge_latency(settings)
    assert found.verdict is Verdict.OK
    assert f"max_wal_size {settings['max_wal_size']}" in found.sentence


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("wal_compression", "pglz", "off"),
        ("wal_compression", "on", "off"),
        ("max_wal_size", "1GB", "4GB"),
        ("max_wal_size", "4095MB", "4GB"),
        ("backend_flush_after", "0", "1MB"),
        ("backend_flush_after", "512kB", "1MB"),
        ("autovacuum_vacuum_cost_delay", "2ms", "20ms"),
        ("autovacuum_vacuum_cost_delay", "500us", "20ms"),
        ("autovacuum_vacuum_cost_delay", "-1", "20ms"),
    ],
)
def test_a_slow_setting_is_reported_with_the_value_to_set_and_its_gain(setting: str, value: str, wanted: str) -> None:
    """The hint is a statement that can be copied, and what was gained by it when it was measured."""
    (found,) = judge_latency(WELL_TUNED | {setting: value})
    assert found.verdict is Verdict.WARN
    assert found.sentence == f"{setting} is {value}"
    assert f"ALTER SYSTEM SET {setting} = '{wanted}'" in found.hint
    assert "pg_reload_conf(): measured, " in found.hint


def test_a_setting_that_a_server_does_not_have_is_not_checked() -> None:
    """A relative of PostgreSQL may lack all of them."""
    assert not list(judge_latency({}))
