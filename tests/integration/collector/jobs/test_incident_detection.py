"""Incidents of pushed rounds: found, stored, raised as alerts, and continued by a new leader."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from isochrone_collector.alerting import service
from isochrone_collector.alerting.service import AlertState, SilenceService
from isochrone_collector.alerts.incidents import IncidentWatch, Transition
from isochrone_collector.jobs.incident_detection import IncidentDetection
from isochrone_collector.jobs.retention import Retention
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.incidents import incidents
from isochrone_collector.settings import RetentionPeriods
from isochrone_collector.store import alerts
from isochrone_collector.store.postgres.values import Instant
from isochrone_wire.answers import Window
from isochrone_wire.insights import Alert, Incident
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Heartbeat, Outcome, Sample, Vantage
from isochrone_wire.operations import incident_name

PLAN = """\
baseline: us
every: 60s
targets:
  - {model: a, provider: alpha, base_url: http://a}
  - {model: b, provider: beta, base_url: http://b}
  - {model: c, provider: gamma, base_url: http://c}
  - {model: new, provider: delta, base_url: http://d}
"""
US, SG = Vantage(name="us-1", region="us"), Vantage(name="sg-1", region="sg")
EVER = Window(from_at=DAY_AT - DAY_US, until_at=DAY_AT + DAY_US)
KEY = "incident refused: no key"

# The outcome of a round: by model, region and number.
Outcomes = Callable[[str, str, int], Outcome]


def outcomes(model: str, region: str, number: int) -> Outcome:
    """`a` fails from Singapore and then from everywhere, `b` is throttled, and `new` never worked."""
    if model == "new":
        return Outcome.HTTP_ERROR
    if model == "b" and 30 <= number < 36:
        return Outcome.THROTTLED
    fails = model == "a" and ((10 <= number < 24 and region == "sg") or (16 <= number < 24))
    return Outcome.TIMED_OUT if fails else Outcome.OK


@dataclass(slots=True)
class Watched:
    """A collector with two vantages whose rounds are pushed by hand, and the detection that reads them."""

    local: InProcessCollector
    detection: IncidentDetection
    targets: dict[str, int]
    more: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def play(self, numbers: range, of: Outcomes = outcomes) -> None:
        """Push rounds as they are completed, with a run of the detection every twenty seconds."""
        for number in numbers:
            self.local.clock.at = DAY_AT + number * MINUTE_US
            for vantage in (US, SG):
                samples = [self.sample(name, vantage.region, number, of) for name in self.targets]
                await self.local.push(vantage, samples, **self.more.get(vantage.name, {}))
            for _ in range(3):
                self.local.clock.at += 15 * SECOND_US
                await self.detection.run()

    def sample(self, name: str, region: str, number: int, of: Outcomes) -> Sample:
        outcome = of(name, region, number)
        status = {Outcome.HTTP_ERROR: 401, Outcome.THROTTLED: 429}.get(outcome)
        at = DAY_AT + number * MINUTE_US
        return Sample(
            target_id=self.targets[name],
            round_at=at,
            dispatched_at=at,
            ttft_us=400_000 if outcome is Outcome.OK else None,
            outcome=outcome,
            http_status=status,
            error=None if outcome is Outcome.OK else f"{KEY} {number}",
        )

    async def raised(self) -> list[Alert]:
        """Return the alerts, oldest first."""
        async with self.local.database.connection() as connection:
            return sorted(await alerts.of_window(connection, EVER), key=lambda alert: (alert.raised_at, alert.subject))

    async def incidents(self, *, past: bool = True) -> tuple[Incident, ...]:
        context = QueryContext(database=self.local.database, plans=self.local.plans, clock=self.local.clock)
        return (await incidents(context, EVER, past=past, id=0)).incidents

    def restart(self) -> None:
        self.detection = self.local.incident_detection()


@pytest.fixture
async def watched(local: InProcessCollector) -> Watched:
    """A collector with the plan of the tests."""
    await local.turn_to(DAY_AT)
    change = await local.plans.apply(PLAN, dry_run=False, applied_by="a test")
    assert change.problems == ()
    assert local.plans.current
    targets = {target.model: target.id for target in local.plans.current.targets}
    return Watched(local, local.incident_detection(), targets)


def shown(raised: list[Alert]) -> list[tuple[float, str, str]]:
    return [((one.raised_at - DAY_AT) / MINUTE_US // 1, one.kind.value, one.subject) for one in raised]


async def test_exactly_the_expected_incidents(watched: Watched) -> None:
    """One target fails from one region, then from all, and recovers, another one is throttled, and one never worked."""
    await watched.play(range(45))
    raised = await watched.raised()
    assert shown(raised) == [
        (0, "target_failing", "delta/new"),
        (12, "target_failing", "alpha/a"),
        (17, "target_failing", "alpha/a"),
        (26, "target_recovered", "alpha/a"),
        (31, "target_throttled", "beta/b"),
        (38, "target_recovered", "beta/b"),
    ]
    assert [one.sentence for one in raised] == [
        "has never worked: from all 2 regions since 2026-11-21 00:00 UTC: 2 http_error 401; incident refused: no key 0",
        "fails from sg since 2026-11-21 00:10 UTC: 3 timed_out; incident refused: no key 12",
        "now fails from all 2 regions since 2026-11-21 00:10 UTC: 10 timed_out; incident refused: no key 17",
        "is answered again; it failed for 13 min from sg, us",
        "is throttled from all 2 regions since 2026-11-21 00:30 UTC: 4 throttled 429; incident refused: no key 31",
        "is answered again; it was throttled for 5 min from sg, us",
    ]
    found = {(one.subject, one.kind.value): one for one in await watched.incidents()}
    failed = found["alpha/a", "target_failing"]
    assert (failed.regions, failed.failing, failed.scope) == (("sg", "us"), (), "all")
    assert failed.classes == {"timed_out": 22}
    assert [one.round_at for one in failed.samples] == [DAY_AT + n * MINUTE_US for n in (23, 23, 22, 22, 21)]
    assert (failed.first_failed_at, failed.last_failed_at) == (DAY_AT + 10 * MINUTE_US, DAY_AT + 23 * MINUTE_US)
    assert found["delta/new", "target_failing"].never_worked
    [still] = await watched.incidents(past=False)
    assert still.subject == "delta/new"


async def test_open_incidents_are_metrics(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each region from which a target fails now has a series; other regions have none; the number is limited."""
    known = AlertState(database=watched.local.database, plans=watched.local.plans, clock=watched.local.clock)
    await watched.play(range(14))
    await known.run()
    assert list(known.incidents) == [
        ("target_failing", "sg", "delta/new", "delta", "new"),
        ("target_failing", "us", "delta/new", "delta", "new"),
        ("target_failing", "sg", "alpha/a", "alpha", "a"),
    ]
    monkeypatch.setattr(service, "MAX_SERIES", 1)
    await watched.play(range(14, 45))
    await known.run()
    assert list(known.incidents) == [("target_failing", "sg", "delta/new", "delta", "new")]
    assert known.left_out == 1


async def test_incidents_that_are_over_are_forgotten(watched: Watched) -> None:
    """An incident is deleted when it has been over for its period of retention; an open one stays."""
    local = watched.local
    await watched.play(range(45))
    ended = {one.subject for one in await watched.incidents() if one.recovered_at is not None}
    assert ended == {"alpha/a", "beta/b"}
    keep_us = 30 * MINUTE_US
    retention = Retention(database=local.database, clock=local.clock, periods=RetentionPeriods(incidents_us=keep_us))
    recovered_at = max(one.recovered_at or 0 for one in await watched.incidents() if one.subject == "alpha/a")
    for at, left in ((recovered_at + keep_us, 3), (recovered_at + keep_us + SECOND_US, 2), (DAY_AT + 2 * DAY_US, 1)):
        local.clock.at = at
        async with local.database.connection() as connection:
            await connection.execute("UPDATE vantage SET newest_sample_at = %s", (Instant(at),))
        await retention.run()
        assert len(await watched.incidents()) == left
    assert [one.subject for one in await watched.incidents()] == ["delta/new"]
    assert shown(await watched.raised()) == [
        (0, "target_failing", "delta/new"),
        (26, "target_recovered", "alpha/a"),
        (38, "target_recovered", "beta/b"),
    ]


async def test_incidents_show_who_is_on_it(watched: Watched) -> None:
    """An open incident has the acknowledgements and silences in force; one that is over has none."""
    local = watched.local
    silencing = SilenceService(database=local.database, alerting=local.alerting, clock=local.clock)
    await watched.play(range(14))
    failing, new = await watched.incidents(past=False)
    made = await silencing.acknowledge(incident_name(failing.id), duration_us=DAY_US, reason="on it")
    everything: dict[str, tuple[str, ...]] = {"targets": (), "regions": (), "kinds": ()}
    quiet = await silencing.add(**everything, providers=("delta",), duration_us=DAY_US, reason="new")
    found = {one.id: one.silences for one in await watched.incidents()}
    assert found == {failing.id: (made,), new.id: (quiet,)}
    await silencing.end(quiet.id)
    await watched.play(range(14, 30))
    assert {one.silences for one in await watched.incidents()} == {()}


async def test_a_new_leader_continues(watched: Watched) -> None:
    """Another collector that leads reads the open incidents, and neither repeats nor forgets one."""
    await watched.play(range(14))
    for number in range(14, 45):
        watched.restart()
        await watched.play(range(number, number + 1))
    assert [(kind, subject) for _, kind, subject in shown(await watched.raised())] == [
        ("target_failing", "delta/new"),
        ("target_failing", "alpha/a"),
        ("target_failing", "alpha/a"),
        ("target_recovered", "alpha/a"),
        ("target_throttled", "beta/b"),
        ("target_recovered", "beta/b"),
    ]


async def test_two_leaders_raise_an_alert_once(watched: Watched) -> None:
    """Two collectors that both believe to lead open one incident, with one alert."""
    other = watched.local.incident_detection()
    for number in range(14):
        await watched.play(range(number, number + 1))
        await other.run()
    assert [one[1:] for one in shown(await watched.raised())] == [
        ("target_failing", "delta/new"),
        ("target_failing", "alpha/a"),
    ]
    assert len(await watched.incidents()) == 2


async def test_a_restored_database_gets_its_incidents_again(watched: Watched) -> None:
    """An incident that the database loses repeatedly is stored again, and no alert is raised twice."""
    await watched.play(range(14))
    for number in range(14, 27):
        async with watched.local.database.connection() as connection:
            await connection.execute("DELETE FROM incident WHERE subject = 'alpha/a'")
        await watched.play(range(number, number + 1))
    found = next(one for one in await watched.incidents() if one.subject == "alpha/a")
    assert (found.scope, found.failing, found.classes) == ("all", (), {"timed_out": 22})
    assert found.escalated_at is not None
    assert found.recovered_at is not None
    assert [one.kind.value for one in await watched.raised() if one.subject == "alpha/a"] == [
        "target_failing",
        "target_failing",
        "target_recovered",
    ]


async def test_incidents_of_a_later_version_stay_as_they_are(watched: Watched) -> None:
    """A collector that leads after one of a later version neither ends nor alters incidents of kinds unknown to it."""
    await watched.play(range(14))
    async with watched.local.database.connection() as connection:
        await connection.execute("UPDATE incident SET kind = 'target_slow', target_id = 7 WHERE subject = 'alpha/a'")
    watched.restart()
    await watched.play(range(14, 15))
    kinds = {one.kind.value for one in await watched.incidents(past=False)}
    assert kinds == {"target_slow", "target_failing"}


async def test_what_worked_long_ago_has_worked(watched: Watched) -> None:
    """A target that was answered before the rounds that are read is not one that never worked."""
    long_ago = -24 * 60
    await watched.local.turn_to(DAY_AT + long_ago * MINUTE_US)
    await watched.local.push(US, [watched.sample("a", "us", long_ago, lambda *_: Outcome.OK)])
    await watched.local.turn_to(DAY_AT)
    await watched.play(range(4), lambda model, *_: Outcome.TIMED_OUT if model == "a" else Outcome.OK)
    [alert] = await watched.raised()
    assert (alert.subject, "never" in alert.sentence) == ("alpha/a", False)


async def test_a_vantage_with_a_wrong_clock_accuses_nobody(watched: Watched) -> None:
    """The rounds of a vantage whose clock is a minute off are not believed."""
    wrong = Heartbeat(clock_offset_us=60 * SECOND_US, clock_uncertainty_us=SECOND_US, epoch=1)
    watched.more["sg-1"] = {"heartbeat": wrong}
    await watched.play(
        range(8), lambda model, region, _: Outcome.TIMED_OUT if (model, region) == ("a", "sg") else Outcome.OK
    )
    assert await watched.raised() == []


async def test_a_paused_target_has_no_incident(watched: Watched) -> None:
    """The incident of a target that leaves the plan, or is paused, ends with an alert that says so."""
    await watched.play(range(2))
    paused = PLAN.replace("http://d}", "http://d, paused: true}")
    await watched.local.plans.apply(paused, dry_run=False, applied_by="a test")
    await watched.detection.run()
    alert = (await watched.raised())[-1]
    assert (alert.kind.value, alert.sentence) == ("target_recovered", "is no longer measured; it failed for 60 s")
    assert await watched.incidents(past=False) == ()


async def test_pushes_do_not_wait_for_the_watch(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop runs while a step of the watch over a large fleet takes its time."""
    loop, is_served = asyncio.get_running_loop(), threading.Event()

    def slow_step(_watch: IncidentWatch, *_fleet: object, **_now_at: object) -> list[Transition]:
        loop.call_soon_threadsafe(is_served.set)
        assert is_served.wait(10), "the event loop waits for the watch"
        return []

    monkeypatch.setattr(IncidentWatch, "step", slow_step)
    await watched.detection.run()
    assert is_served.is_set()
