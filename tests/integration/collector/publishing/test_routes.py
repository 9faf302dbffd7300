"""Route tables from pushed samples to watchers, with a real PostgreSQL and real collectors."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict

import chaos
from fixtures.collector import Collector, StartCollector
from fixtures.postgres import rows
from isochrone_client.client import ReadClient
from isochrone_client.errors import ClientError, RefusedError, UnreachableError
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_wire.answers import Selection, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import MINUTE_US, SECOND_US
from isochrone_wire.routes import ChangeKind, RegionTables, RouteState, RouteTable
from testdata.pushed_rounds import (
    EVERY_US,
    FIRST,
    PLAN,
    SECOND,
    SG,
    THIRD,
    US,
    Fleet,
    rounds_until,
    usual_latencies,
    without,
)
from testdata.waiting import eventually

PATIENCE = 30.0
SWITCHES = {ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD}


def now_at() -> int:
    return time.time_ns() // 1000


def tables(collector: Collector, region: str) -> RegionTables | None:
    with ReadClient(collector.http_address) as client, suppress(RefusedError, UnreachableError):
        return client.get_tables(region)
    return None


def first_choice(collector: Collector, region: str) -> str:
    found = tables(collector, region)
    return found.tables[0].entries[0].target if found and found.tables[0].entries else ""


def wait_for(collector: Collector, region: str, target: str) -> None:
    eventually(PATIENCE, lambda: first_choice(collector, region) == target, f"{target} leads in {region}")


def begun(collector: Collector, *, rounds: int = 60, ago_us: int = 0) -> Fleet:
    collector.call.apply(PLAN)
    fleet = Fleet({target.name: target.id for target in collector.call.targets().targets})
    fleet.push_rounds(collector.call, rounds_until(now_at() - ago_us, rounds))
    for region in (US, SG):
        wait_for(collector, region, FIRST)
    return fleet


def fail(fleet: Fleet, collector: Collector, *dead: str) -> None:
    """Push four current rounds in which some targets fail everywhere."""
    at = now_at()
    fleet.push_rounds(collector.call, [at - place for place in (3, 2, 1, 0)], without(*dead))


def published(database_url: str) -> list[tuple[int, str, str]]:
    """Return the generation, region and kind of every published table."""
    return rows(database_url, "SELECT generation, client_region, change FROM route_table ORDER BY generation")


def assert_all_replay(collector: Collector) -> None:
    """Assert that a replay of every stored generation gives the same bytes."""
    stored = rows(collector.database_url, "SELECT client_region, route, generation FROM route_table")
    assert stored
    with ReadClient(collector.http_address) as client:
        for region, route, generation in stored:
            told = client.explain_route(region, route, generation=generation)
            assert (told.table.generation, told.replays) == (generation, True), told.table.sentence
            assert told.steps


class Watcher:
    """A consumer that watches all tables at an address, and resumes after the last one whenever it is disconnected."""

    def __init__(self, address: str) -> None:
        self.seen: list[RouteTable] = []
        self._client = ReadClient(address)
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def generations(self) -> list[int]:
        return [table.generation for table in self.seen]

    def stop(self) -> None:
        self._is_over = True
        self._client.close()
        self._thread.join(20)

    def _watch(self) -> None:
        while not self._is_over:
            with suppress(ClientError, ValueError):
                for table in self._client.watch_tables(after=self.seen[-1].generation if self.seen else 0):
                    if table is not None:
                        self.seen.append(table)
            time.sleep(0.1)


@contextmanager
def watching(address: str) -> Iterator[Watcher]:
    watcher = Watcher(address)
    try:
        yield watcher
    finally:
        watcher.stop()


def test_a_dead_provider_is_left_everywhere(start_collector: StartCollector) -> None:
    """Failures at several vantages change the first choice of every region at once; each decision can be replayed."""
    collector = start_collector()
    fleet = begun(collector)
    first = tables(collector, US)
    assert first is not None
    assert first.tables[0].state is RouteState.OK
    assert [entry.target for entry in first.tables[0].entries] == [FIRST, SECOND, THIRD]
    assert first.tables[0].entries[0].weight == 1.0
    fail(fleet, collector, FIRST)
    for region in (US, SG):
        wait_for(collector, region, SECOND)
        found = tables(collector, region)
        assert found is not None
        assert found.stale_since_at is None
        assert found.etag == found.tables[0].etag
    changes = [(region, change) for _, region, change in published(collector.database_url) if change in SWITCHES]
    assert sorted(changes) == [(SG, "hard"), (US, "hard")]
    assert_all_replay(collector)


def test_a_slowdown_of_one_region_stays_there(start_collector: StartCollector) -> None:
    """If a provider becomes slow in one region, only the table of that region changes, and so do the events."""
    collector = start_collector()
    fleet = begun(collector, rounds=50, ago_us=10 * EVERY_US)

    def slow_there(target: str, region: str) -> int | None:
        return 1_500_000 if (target, region) == (FIRST, SG) else usual_latencies(target, region)

    fleet.push_rounds(collector.call, rounds_until(now_at(), 10), slow_there)
    eventually(PATIENCE, lambda: first_choice(collector, SG) in (SECOND, THIRD), f"{FIRST} is left in {SG}")
    assert first_choice(collector, US) == FIRST
    window = Window(from_at=now_at() - 60 * EVERY_US, until_at=now_at() + EVERY_US)
    with ReadClient(collector.http_address) as client:
        events = client.list_route_events(Selection(window=window)).events
    moved = {(event.client_region, event.change) for event in events if event.change in SWITCHES}
    assert moved == {(SG, ChangeKind.FAST)}
    assert all(event.weights.keys() <= {FIRST, SECOND, THIRD} for event in events)
    switch = next(event for event in events if event.change in SWITCHES)
    assert sum(switch.weights.values()) == pytest.approx(1)
    assert switch.weights[FIRST] < 1
    assert all(
        change in ("first", "plan", "evidence")
        for _, region, change in published(collector.database_url)
        if region == US
    )
    assert_all_replay(collector)


def test_a_watcher_survives_the_collector(start_collector: StartCollector) -> None:
    """Across SIGKILL and restart a watcher gets every generation once and in order."""
    collector = start_collector()
    fleet = begun(collector)
    with watching(collector.http_address) as watcher:
        # Of the tables in force; one that was replaced while the watch began is not sent.
        eventually(PATIENCE, lambda: len(watcher.seen) > 1, "the watcher sees the tables of both regions")
        at_first = watcher.generations()[1]
        fail(fleet, collector, FIRST)
        collector.kill()
        collector = start_collector(port=collector.port, http_port=collector.http_port)
        eventually(
            PATIENCE, lambda: first_choice(collector, US) == SECOND, "the failures are acted on after the restart"
        )
        fail(fleet, collector, SECOND)
        eventually(PATIENCE, lambda: first_choice(collector, SG) != SECOND, "the next failures are as well")
        stored = [number for number, _, _ in published(collector.database_url)]
        eventually(PATIENCE, lambda: watcher.generations()[-1:] >= stored[-1:], "the watcher has seen the newest")
        seen = watcher.generations()
        stored = [number for number, _, _ in published(collector.database_url)]
    assert seen[0] in stored[: stored.index(at_first)]
    assert seen[1:] == stored[stored.index(at_first) :][: len(seen) - 1]
    assert_all_replay(collector)


def test_followers_serve_the_same_and_take_over(start_collector: StartCollector) -> None:
    """Two collectors serve the same generation and etag; when the leader is killed, no generation is used twice."""
    leader = start_collector()
    follower = start_collector()
    fleet = begun(leader)
    fail(fleet, follower, FIRST)
    eventually(PATIENCE, lambda: first_choice(leader, US) == SECOND, "samples pushed to the follower count")

    def is_same() -> bool:
        mine, theirs = tables(leader, US), tables(follower, US)
        return (
            mine is not None and theirs is not None and (mine.generation, mine.etag) == (theirs.generation, theirs.etag)
        )

    eventually(PATIENCE, is_same, "both serve the same generation")
    leader.kill()
    fail(fleet, follower, SECOND)
    eventually(PATIENCE, lambda: first_choice(follower, US) not in ("", SECOND), "the follower has taken over")
    numbers = [number for number, _, _ in published(follower.database_url)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert_all_replay(follower)


@pytest.mark.parametrize("ahead_s", [-240, 240])
def test_clocks_of_collectors_may_differ(
    start_collector: StartCollector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    """A leader four minutes off decides by another's samples; both serve fresh tables, and the alerts are raised."""
    (tmp_path / "ahead").write_text(str(ahead_s))
    monkeypatch.setenv("TEST_CLOCK_FILE", str(tmp_path / "ahead"))
    leader = start_collector(script=Path(chaos.__path__[0]) / "collector_with_clock.py")
    eventually(PATIENCE, lambda: "leadership.taken" in leader.log(), "it leads")
    right = start_collector()
    fleet = begun(right)
    fail(fleet, right, FIRST)
    for collector in (right, leader):
        wait_for(collector, US, SECOND)
        found = tables(collector, US)
        assert found is not None
        assert abs(found.answered_at - now_at()) < MINUTE_US
        assert found.tables[0].built_at <= found.answered_at + SECOND_US
        assert found.tables[0].fresh_until_at > found.answered_at
    window = Window(from_at=now_at() - HOUR_US, until_at=now_at() + HOUR_US)
    kinds = {AlertKind.TARGET_FAILING, AlertKind.ROUTE_SWITCHED}
    eventually(PATIENCE, lambda: kinds <= {one.kind for one in right.call.alerts(window).alerts}, "the alerts")
    assert all(abs(alert.raised_at - now_at()) < MINUTE_US for alert in right.call.alerts(window).alerts)


def test_tables_outlive_the_database(start_collector: StartCollector, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without its database a collector serves the old tables and the start of the outage; then it continues."""
    # In a folder with a long path, each start would make another socket, which the collector does not know.
    postgres = EmbeddedPostgres(tmp_path_factory.mktemp("pg"))
    postgres.start()
    try:
        parts = {key: value for key, value in conninfo_to_dict(postgres.conninfo).items() if value}
        collector = start_collector(database_url=f"postgresql:///?{urlencode(parts)}")
        fleet = begun(collector)
        before = tables(collector, US)
        assert before is not None
        postgres.stop()

        def is_stale() -> bool:
            found = tables(collector, US)
            return found is not None and found.stale_since_at is not None

        eventually(PATIENCE, is_stale, "the collector says that its tables are stale")
        stale = tables(collector, US)
        assert stale is not None
        assert stale.tables[0].built_at <= before.tables[0].built_at + EVERY_US
        assert stale.tables[0].entries[0].target == FIRST
        postgres.start()
        eventually(PATIENCE, lambda: not is_stale(), "the database is back")
        fail(fleet, collector, FIRST)
        eventually(PATIENCE, lambda: first_choice(collector, US) == SECOND, "tables are built again")
        collector.stop()
    finally:
        postgres.stop()


def test_unknown_names_are_refused_with_the_known(start_collector: StartCollector) -> None:
    """An unknown region or route is NOT_FOUND, with the known ones; also for a watch and for `explain`."""
    collector = start_collector()
    begun(collector, rounds=10)
    with ReadClient(collector.http_address) as client:
        for ask in (
            lambda: client.get_tables("mars-1"),
            lambda: next(client.watch_tables("mars-1")),
            lambda: client.explain_route("mars-1", "chat"),
        ):
            with pytest.raises(RefusedError, match=f"unknown client region 'mars-1'; known: {SG}, {US}"):
                ask()
        for ask in (
            lambda: client.get_tables(US, "chatt"),
            lambda: next(client.watch_tables(US, "chatt")),
            lambda: client.explain_route(US, "chatt"),
        ):
            with pytest.raises(RefusedError, match=r"unknown route 'chatt'; did you mean 'chat'\? known: chat"):
                ask()
        with pytest.raises(RefusedError, match="there is no generation 999"):
            client.explain_route(US, "chat", generation=999)


def test_plans_are_acted_on(start_collector: StartCollector) -> None:
    """A route that a plan adds, changes or removes is updated in the tables within seconds, without new samples."""
    collector = start_collector()
    begun(collector)
    collector.call.apply(f"{PLAN}  - {{name: backup, members: [{SECOND}, {THIRD}], slo: {{ttft_p95_ms: 900}}}}\n")

    def routes() -> list[str]:
        found = tables(collector, US)
        return [table.route for table in found.tables] if found else []

    eventually(PATIENCE, lambda: routes() == ["backup", "chat"], "the new route has a table")
    collector.call.apply(PLAN.replace(f"[{FIRST}, {SECOND}", f"[{SECOND}"))
    eventually(PATIENCE, lambda: first_choice(collector, US) == SECOND, "a member that is gone is left")
    assert routes() == ["chat"]
    assert_all_replay(collector)


def test_a_stop_ends_watchers_politely(start_collector: StartCollector) -> None:
    """A collector that is stopped ends its watches itself, with the end of the body."""
    collector = start_collector()
    begun(collector, rounds=10)
    with httpx.stream("GET", f"{collector.http}/v1/routes/watch", timeout=PATIENCE) as watch:
        lines = watch.iter_lines()
        assert next(line for line in lines if line.startswith("data: "))
        assert collector.stop(signal.SIGTERM) == 0
        assert not [line for line in lines if line.startswith("event: ") and line != "event: table"]
