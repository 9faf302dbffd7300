"""Plans: applied once, fetched cheaply, and kept forever."""

import asyncio
import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fixtures.collector import Collector, StartCollector, run_command
from fixtures.inprocess_collector import InProcessCollector
from fixtures.postgres import rows
from isochrone_collector.clock import now_at
from isochrone_collector.plans import document_reader, service
from isochrone_wire.answers import Window
from isochrone_wire.durations import MAX_INSTANT_AT, MINUTE_US
from isochrone_wire.model import Batch, Outcome, Sample, Vantage
from isochrone_wire.plan_document.document import Reading, load
from testdata.preforked import Program
from testdata.waiting import eventually

PLAN = """\
baseline: us-east-2
targets:
  - {model: a, provider: sim, base_url: http://h, price: {usd_per_m_output: 10}}
  - {model: b, provider: sim, base_url: http://h}
"""


def versions(collector: Collector) -> list[tuple[int, str]]:
    return rows(collector.database_url, "SELECT version, applied_by FROM plan ORDER BY version")


def test_apply_then_fetch(start_collector: StartCollector) -> None:
    """An applied plan is fetched with its version; an agent that already has it gets an empty reply, and one with
    another plan under this version, from before the database was restored, the plan. Receipts have the hash. Before
    the first plan an agent gets none, and readers an empty list.
    """
    collector = start_collector()
    assert collector.call.fetch_plan() is None
    assert collector.call.fetch_plan(if_version=0) is None
    assert collector.call.targets().plan_version == 0
    change = collector.call.apply(PLAN)
    assert (change.version, change.changed, change.added) == (1, True, ("sim/a", "sim/b"))
    assert change.requests_per_day == 2 * 1440
    assert change.usd_per_day is not None
    fetched = collector.call.fetch_plan()
    assert fetched is not None
    assert (fetched.version, fetched.baseline) == (1, "us-east-2")
    assert fetched.targets == collector.call.targets().targets
    assert collector.call.fetch_plan(if_version=7, if_content_hash=fetched.content_hash) == fetched
    assert collector.call.fetch_plan(if_version=1, if_content_hash=fetched.content_hash) is None
    assert collector.call.fetch_plan(if_version=1, if_content_hash=b"another") == fetched
    receipt = collector.call.push(Batch(vantage=Vantage(name="us-1", region="us-east-2"), epoch=1, seq=0))
    assert (receipt.plan_version, receipt.plan_hash) == (1, fetched.content_hash)


def test_the_same_meaning_is_not_a_new_version(start_collector: StartCollector) -> None:
    """Another spelling of the plan in force changes nothing; another meaning is a new version."""
    collector = start_collector()
    collector.call.apply(PLAN)
    lines = PLAN.splitlines()
    respelled = "\n".join(["every: 1m", *lines[:2], lines[3], lines[2]])
    assert not collector.call.apply(respelled).changed
    altered = collector.call.apply(PLAN.replace("model: b,", "model: b, every: 30s,"))
    assert (altered.version, altered.altered) == (2, ("sim/b: every 1m → 30s",))
    assert [version for version, _ in versions(collector)] == [1, 2]


def test_a_dry_run_changes_nothing(start_collector: StartCollector) -> None:
    """A dry run returns the changes and applies nothing; a document with problems returns them, and changes nothing."""
    collector = start_collector()
    tried = collector.call.apply(PLAN, dry_run=True)
    assert versions(collector) == []
    assert collector.call.fetch_plan() is None
    assert collector.call.apply(PLAN) == tried
    collector = start_collector()
    collector.call.apply(PLAN)
    change = collector.call.apply("baseline: us-east-2\ntargts: []\n")
    assert change.problems[0].startswith("line 1: 'targets' is missing")
    assert (change.version, change.changed) == (1, False)
    assert len(versions(collector)) == 1


def test_operators_at_the_same_time(start_collector: StartCollector) -> None:
    """Plans that are applied at once get one version each, and the same plan a single one."""
    collector = start_collector()
    with ThreadPoolExecutor(4) as threads:
        same = list(threads.map(lambda _: collector.call.apply(PLAN), range(4)))
        others = list(threads.map(lambda n: collector.call.apply(PLAN.replace("model: b", f"model: m{n}")), range(4)))
    assert sorted(change.changed for change in same) == [False, False, False, True]
    assert sorted(change.version for change in others) == [2, 3, 4, 5]


async def test_documents_are_read_singly(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """While slow documents are read, one at a time in one thread, every connection is free for pushes."""
    may_read, reading = threading.Event(), []

    def slow(text: str, *, version: int) -> Reading:
        reading.append(text)
        assert may_read.wait(20)
        return load(text, version=version)

    monkeypatch.setattr(document_reader, "load", slow)
    applied = [asyncio.create_task(local.plans.apply(PLAN, dry_run=True, applied_by="a test")) for _ in range(8)]
    try:
        async with AsyncExitStack() as stack, asyncio.timeout(10):
            for _ in range(8):
                await stack.enter_async_context(local.database.connection())
        assert len(reading) == 1
    finally:
        may_read.set()
    changes = await asyncio.gather(*applied)
    assert {change.added for change in changes} == {("sim/a", "sim/b")}


async def test_a_plan_loads_beside_the_event_loop(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop works on, and no connection is held, while the plan in force is parsed."""
    await local.plans.apply(PLAN, dry_run=False, applied_by="a test")
    may_read = threading.Event()

    def slow(text: str, *, version: int, stored: bool) -> Reading:
        assert may_read.wait(20)
        return load(text, version=version, stored=stored)

    monkeypatch.setattr(service, "load", slow)
    service._plan_of.cache_clear()
    loading = [asyncio.create_task(local.plans.refresh()), asyncio.create_task(local.plans.history(0))]
    try:
        async with AsyncExitStack() as stack, asyncio.timeout(10):
            for _ in range(8):
                await stack.enter_async_context(local.database.connection())
        assert not any(task.done() for task in loading)
    finally:
        may_read.set()
    await asyncio.gather(*loading)
    assert local.plans.version == 1


async def test_a_past_plan_is_parsed_once(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """The history and every window with a plan need a few facts of it; its document is read and parsed once for all."""
    await local.plans.apply(PLAN, dry_run=False, applied_by="a test")
    await local.plans.apply(PLAN.replace("model: b", "model: c"), dry_run=False, applied_by="a test")
    parsed: list[int] = []

    def noted(text: str, *, version: int, stored: bool) -> Reading:
        parsed.append(version)
        return load(text, version=version, stored=stored)

    monkeypatch.setattr(service, "load", noted)
    window = Window(from_at=0, until_at=MAX_INSTANT_AT)
    for _ in range(2):
        assert [plan.targets for plan in (await local.plans.history(0)).plans] == [2, 2]
        async with local.database.connection() as connection:
            assert [len(span.every_us) for span in await local.plans.spans(connection, window)] == [2, 2]
    assert sorted(parsed) == [1, 2]


def test_a_restart_remembers(start_collector: StartCollector) -> None:
    """A restarted collector serves the same plan, and targets of former plans keep their names."""
    first = start_collector()
    first.call.apply(PLAN)
    first.call.apply(PLAN.replace("model: b", "model: c"))
    plan = first.call.fetch_plan()
    assert first.stop() == 0
    second = start_collector()
    assert second.call.fetch_plan() == plan
    found = rows(second.database_url, "SELECT name, first_version, last_version FROM target ORDER BY name")
    assert found == [("sim/a", 1, 2), ("sim/b", 1, 1), ("sim/c", 2, 2)]


def test_another_collector_notices(start_collector: StartCollector) -> None:
    """A plan applied at one collector is in force at the others within seconds."""
    one, other = start_collector(), start_collector()
    one.call.apply(PLAN)
    eventually(20, lambda: other.call.targets().plan_version == 1, "the other collector has the plan")


def test_the_command_asks_and_applies(start_collector: StartCollector, tmp_path: Path) -> None:
    """It shows changes and cost, as a table or JSON, records the user, and without --yes or a terminal gives a hint."""
    collector = start_collector()
    file = tmp_path / "asked.yaml"
    file.write_text(PLAN)
    done = run_command("apply", str(file), "--collector", collector.address)
    assert (done.returncode, "+ sim/a" in done.stderr, "hint: pass --yes" in done.stderr) == (2, True, True)
    assert run_command("apply", str(file), "--collector", collector.address, "--dry-run").returncode == 0
    assert versions(collector) == []
    shown = collector.apply(PLAN, tmp_path).stdout
    assert ("+ sim/a" in shown, "2880 requests" in shown) == (True, True)
    [(version, applied_by)] = versions(collector)
    assert (version, "@" in applied_by) == (1, True)
    assert '"changed": false' in collector.apply(PLAN, tmp_path, "--output", "json").stdout


def test_the_command_reports_all_problems(start_collector: StartCollector, tmp_path: Path) -> None:
    """All problems are listed with their lines and exit code 2; a file that is not text is an error as well."""
    collector = start_collector()
    file = tmp_path / "plan.yaml"
    file.write_text("baselin: us\ntargets:\n  - {model: a}\n")
    done = run_command("apply", str(file), "--collector", collector.address, "--yes")
    assert done.returncode == 2
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["line 1", "line 1", "line 3"]
    file.write_bytes(b"\xff\xfe\x00")
    assert run_command("apply", str(file), "--collector", collector.address, "--yes").returncode == 2


def test_the_command_without_a_collector(tmp_path: Path) -> None:
    """An unreachable collector is exit code 3, an invalid address exit code 2; there is never a traceback."""
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    absent = run_command("apply", str(file), "--collector", "127.0.0.1:1", "--yes", "--wait", "0")
    assert (absent.returncode, "Traceback" in absent.stderr) == (3, False)
    wrong = run_command("apply", str(file), "--collector", "nowhere:x", "--yes")
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)


def test_the_command_waits_for_a_collector_that_starts(start_collector: StartCollector, tmp_path: Path) -> None:
    """A plan that is applied before its collector answers is in force once it does; the wait is announced."""
    collector = start_collector()
    collector.kill()
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    where = ("--collector", collector.address, "--wait", "120")
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with Program[str]("isochrone_collector", "apply", str(file), "--yes", *where, **pipes, text=True) as process:
        assert process.stderr is not None
        assert "yet; waiting up to 120 s" in process.stderr.readline()
        start_collector(port=collector.port, http_port=collector.http_port, database_url=collector.database_url)
        stdout, _ = process.communicate(timeout=120)
    assert (process.returncode, "plan 1" in stdout) == (0, True)


def test_the_command_applies_nothing_that_no_vantage_can_measure(
    start_collector: StartCollector, tmp_path: Path
) -> None:
    """A baseline without a vantage, a host that none reaches and a key that none has are named before they take effect;
    --force applies them all the same, and what the plan already had is not judged.
    """
    collector = start_collector()
    first = PLAN.replace("base_url: http://h}", "base_url: http://k, credential: keyless}")
    collector.apply(first, tmp_path)
    targets = collector.call.targets().targets
    outcomes = {"sim/a": Outcome.CONNECT_FAILED, "sim/b": Outcome.SKIPPED_NOT_READY}
    at = now_at() - 5 * MINUTE_US
    samples = tuple(
        Sample(target_id=one.id, round_at=at, outcome=outcomes[one.name], dispatched_at=at) for one in targets
    )
    collector.call.push(Batch(vantage=Vantage(name="de-1", region="eu-central-1"), epoch=1, seq=1, samples=samples))
    other = (
        "{model: c, provider: sim, base_url: http://h}",
        "{model: d, provider: x, base_url: http://n, credential: keyless}",
    )
    second = first.replace("us-east-2", "eu-west-9") + "".join(f"  - {one}\n" for one in other)
    file = tmp_path / "second.yaml"
    file.write_text(second)
    done = run_command("apply", str(file), "--collector", collector.address, "--yes")
    assert done.returncode == 1
    for sentence in (
        "baseline eu-west-9 has no vantage, so that nothing can be compared: there are vantages in eu-central-1",
        "no vantage can use credential keyless",
        "no vantage can reach h: all its probes of the last hour are connect_failed",
    ):
        assert sentence in done.stderr
    assert [version for version, _ in versions(collector)] == [1]
    shown = run_command("apply", str(file), "--collector", collector.address, "--dry-run").stdout
    assert "  ! baseline eu-west-9" in shown
    collector.apply(second, tmp_path, "--force")
    collector.apply(second.replace("model: c", "model: c, paused: true"), tmp_path)
    assert [version for version, _ in versions(collector)] == [1, 2, 3]


def test_an_earlier_plan_is_restored_as_a_new_one(start_collector: StartCollector, tmp_path: Path) -> None:
    """A rollback lists its changes, puts the old document into force as a new version, and is in the history."""
    collector = start_collector()
    where = ("--collector", collector.address)
    collector.apply(PLAN, tmp_path)
    collector.apply(PLAN.replace("model: b", "model: c, paused: true"), tmp_path)
    tried = run_command("plan", "rollback", "1", *where, "--dry-run")
    assert ("+ sim/b" in tried.stdout, "- sim/c" in tried.stdout) == (True, True)
    assert [version for version, _ in versions(collector)] == [1, 2]
    unasked = run_command("plan", "rollback", "1", *where)
    assert (unasked.returncode, "hint: pass --yes" in unasked.stderr) == (2, True)
    assert run_command("plan", "rollback", "1", *where, "--yes").stdout == tried.stdout
    fetched = collector.call.fetch_plan()
    assert fetched is not None
    assert (fetched.version, [target.name for target in fetched.targets]) == (3, ["sim/a", "sim/b"])
    told = json.loads(run_command("plan", "history", *where, "--output", "json").stdout)["plans"]
    assert [(plan["version"], plan["restores"], plan["targets"]) for plan in told] == [
        (3, 1, 2),
        (2, None, 2),
        (1, None, 2),
    ]
    assert "restoring 1" in run_command("plan", "history", *where, "--limit", "1").stdout.splitlines()[1]


def test_a_plan_is_shown_as_it_was_written(start_collector: StartCollector, tmp_path: Path) -> None:
    """The original document of each version is returned, including comments; without a number, the one in force."""
    collector = start_collector()
    where = ("--collector", collector.address)
    first, second = f"# café, as written\n{PLAN}", PLAN.replace("model: b", "model: c").rstrip("\n")
    nothing = run_command("plan", "show", *where)
    assert (nothing.returncode, "no plan has been applied yet" in nothing.stderr) == (1, True)
    collector.apply(first, tmp_path)
    collector.apply(second, tmp_path)
    assert run_command("plan", "show", "1", *where).stdout == first
    assert run_command("plan", "show", *where).stdout == second
    collector.call.roll_back(1)
    told = json.loads(run_command("plan", "show", *where, "--output", "json").stdout)
    assert (told["version"], told["restores"], told["applied_by"]) == (3, 1, "a test")
    assert told["document"] == first
    assert told["applied_at"].endswith("Z")
    gone = run_command("plan", "show", "7", *where)
    assert (gone.returncode, "there is no plan 7" in gone.stderr, gone.stdout) == (1, True, "")


def test_there_is_no_way_back_to_a_plan_that_never_was(start_collector: StartCollector) -> None:
    """The error for an unknown version contains a hint; restoring the plan in force changes nothing."""
    collector = start_collector()
    where = ("--collector", collector.address)
    assert "no plan has been applied yet" in run_command("plan", "history", *where).stderr
    collector.call.apply(PLAN)
    gone = run_command("plan", "rollback", "7", *where, "--yes")
    assert (gone.returncode, "there is no plan 7" in gone.stderr) == (1, True)
    assert run_command("plan", "rollback", "1", *where, "--yes").stdout.startswith("unchanged: plan 1")
    assert [version for version, _ in versions(collector)] == [1]


def test_the_fleet_has_its_cost(start_collector: StartCollector) -> None:
    """The forecast contains the daily cost of all known vantages, and the budgets that will be exhausted."""
    collector = start_collector()
    for name in ("sg-1", "us-1"):
        collector.call.push(Batch(vantage=Vantage(name=name, region="r"), epoch=1, seq=0))
    change = collector.call.apply(PLAN + "budgets:\n  sim: {requests_per_day: 288}\n", dry_run=True)
    assert change.altered == (
        "budget of sim: 288 requests a day",
        "per day: 5760 requests, at most 5.76 USD for 2 known vantages",
        "per day: sim: at most 2880 requests planned, budget 288 requests: about 90% of rounds may be skipped_budget",
    )


def test_a_plan_of_a_newer_collector_is_told(start_collector: StartCollector, database_url: str) -> None:
    """A stored plan that this version cannot read prevents the start, with a message instead of a traceback."""
    start_collector().stop()
    rows(
        database_url,
        "INSERT INTO plan VALUES (1, %s, now(), 'a test')",
        [PLAN.replace("model: b", "modality: text, model: b")],
    )
    done = run_command("serve", "--listen", "127.0.0.1:0", "--database-url", database_url)
    assert done.returncode == 1
    assert "plan 1 was applied by a newer collector: line 4: unknown key 'modality'" in done.stderr
    assert "Traceback" not in done.stderr
