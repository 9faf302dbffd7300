"""The demo's plan, its events, its network, and its ground truth."""

import json
from dataclasses import replace
from typing import Any

import pytest

from isochrone_client.demo.processes import Network
from isochrone_client.demo.scenario import (
    BASELINE,
    NEVER_WORKED,
    OUTAGES,
    ROUND_TRIPS_MS,
    ROUTES,
    SLOWDOWN,
    SUGGESTIONS,
    VANTAGES,
    Comparison,
    Episode,
    Model,
    Timeline,
    plan_document,
    truth_page,
    truths,
)
from isochrone_client.pages.matrix import Matrix
from isochrone_wire.answers import DifferentialList, Metric, Window
from testdata.client_answers import cell, difference

SLOW = Episode(provider="acme", begins={"eu-central-1": 75}, until_seconds=255, added_ms=400)


def model(name: str, usd: float = 1.0, *, provider: str = "acme", source: str = "published") -> Model:
    """A model whose time to first token is 120 ms shorter from Singapore."""
    return {
        "id": name,
        "provider": provider,
        "usd_per_m_output": usd,
        "differential_us": {"ap-southeast-1": -120_000},
        "offset_source": {"ap-southeast-1": source},
    }


WORLD = (model("dear", 3.0), model("cheap", 0.1), model("guessed", source="assumed"))


def test_the_plan_measures_every_model_and_controls_by_the_cheapest() -> None:
    """Each model of the world is a target; the control target is the cheapest."""
    plan = json.loads(plan_document(WORLD))
    assert [target["model"] for target in plan["targets"]] == ["dear", "cheap", "guessed"]
    assert plan["control"] == "acme/cheap"
    assert plan["baseline"] == BASELINE in VANTAGES


def test_faults_are_of_providers_with_one_model_each() -> None:
    """The simulator gets an option per provider and region; the plan has a target that the world does not have."""
    options = " ".join(word for outage in OUTAGES for word in outage.options)
    assert "--fault-episode stepfun eu-central-1 500 10 25" in options
    assert "--fault-episode stepfun us-east-2 500 25 10" in options
    assert options.count("--fault-episode bytedance") == len(VANTAGES)
    plan = json.loads(plan_document(WORLD, (NEVER_WORKED,)))
    assert plan["targets"][-1] == {"provider": "example", "model": "never-deployed", "workload": "demo"}
    assert plan["providers"]["example"] == plan["providers"]["acme"]
    assert plan["control"] == "acme/cheap", "the control target is none of those that fail"


def test_routes_have_existing_members() -> None:
    """All members are targets; the slowdown affects the first choice of one route only, after a minute."""
    members = {name: members for name, (_, _, members) in ROUTES.items()}
    places = sorted({member.partition("/")[::2] for of in members.values() for member in of})
    plan = json.loads(plan_document([model(name, provider=provider) for provider, name in places]))
    assert [route["name"] for route in plan["routes"]] == list(ROUTES)
    assert json.loads(plan_document(WORLD))["routes"] == []
    of_provider = [name for name, of in members.items() if f"{SLOWDOWN.provider}/" in "".join(of)]
    assert of_provider == ["chat"]
    assert members["chat"][0].startswith(f"{SLOWDOWN.provider}/")
    assert min(SLOWDOWN.begins.values()) > 60
    assert SLOWDOWN.provider not in {"deepseek", "qwen", "zhipu", "moonshot"}
    assert list(SLOWDOWN.options) == ["--episode", "tencent", "eu-central-1", "400", "75", "180"]


def test_every_truth_of_the_world_is_compared() -> None:
    """Each difference of the world has a row, also without a measurement; that to the baseline itself has none."""
    rows = (replace(difference(-119.0), model="dear"), replace(difference(None), model="cheap"))
    found = truths(DifferentialList(window=Window(from_at=0, until_at=1), differentials=rows), WORLD)
    assert [(one.model, one.error_us, one.verdict) for one in found] == [
        ("dear", 1000.0, "found"),
        ("cheap", None, "not measured"),
        ("guessed", None, "not measured"),
    ]
    own = {**WORLD[0], "differential_us": {BASELINE: 0, "ap-southeast-1": -120_000}}
    assert len(truths(DifferentialList(window=Window(from_at=0, until_at=1)), (own,))) == 1


def compared(**more: Any) -> Comparison:
    row = Comparison(model="m", region="sg", true_us=-119_000, measured=difference(-120.0, 1.0, 2.0))
    return replace(row, **more)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (compared(), "found"),
        (compared(true_us=-130_000), "missed"),
        (compared(is_changed=True), "changed"),
        (compared(measured=replace(difference(-120.0), shift_low=None)), "no interval yet"),
        (compared(measured=None), "not measured"),
    ],
)
def test_what_was_not_found_is_named(row: Comparison, verdict: str) -> None:
    """The last table states which true differences were not found, with the reason, and a busy machine."""
    calm, busy = truth_page((row,), load=0.5, cores=2), truth_page((row,), load=7.25, cores=2)
    assert [cells[-1] for table in calm.tables() for cells in table.cells] == [verdict]
    lost = "" if verdict == "found" else f"; not found: m from sg ({verdict})"
    assert calm.notes[0] == f"{int(not lost)} of 1 true differences found{lost}"
    assert any(note.startswith(f"{verdict}: ") for note in calm.notes) is (verdict in ("missed", "changed"))
    assert busy.notes[-1].startswith("this machine was busy: 7.2 processes wanted its 2 processors")


def test_a_slowdown_changes_the_truth_from_its_beginning() -> None:
    """A provider counts as slower from a region as soon as its slowdown has begun there; one that fails does not."""
    timeline = Timeline((SLOW, *OUTAGES), seconds=None)
    assert [timeline.slowed(elapsed) for elapsed in (74.9, 75, 300)] == [
        set(),
        {("acme", "eu-central-1")},
        {("acme", "eu-central-1")},
    ]


def test_suggestions_call_one_command() -> None:
    """The suggestions can be copied into a shell and fit a terminal."""
    assert all(line.startswith("isochrone ") and len(line) <= 100 for line in SUGGESTIONS)


def test_the_network_takes_its_share_of_the_time_of_the_providers() -> None:
    """With a network, the simulator gets the round trip of each region, and they are shown; without one it gets none,
    and the line states why. None is longer than the quickest answer; Frankfurt's is 25 ms longer than Ohio's, as the
    world assumes.
    """
    real, none = Network(address="10.77.0.1"), Network(absence="not allowed")
    options = " ".join(real.options)
    for region, round_trip_ms in ROUND_TRIPS_MS.items():
        assert f"--round-trip {region} {round_trip_ms}" in options
        assert f"{round_trip_ms} ms from {region}" in str(real)
    assert list(none.options) == []
    assert str(none).endswith("in the providers only: not allowed")
    assert ROUND_TRIPS_MS["eu-central-1"] - ROUND_TRIPS_MS["us-east-2"] == 25
    assert max(ROUND_TRIPS_MS.values()) < 90
    assert ROUND_TRIPS_MS.keys() == VANTAGES.keys()


def board(changed_us: float | None = None, *, error_us: float = 5_000.0) -> Matrix:
    place = ("acme/large", "eu-central-1")
    row = difference(35 + (changed_us or 0) / 1000, error_us / 1000, error_us / 1000)
    cells = {place: cell(500, row, changed=changed_us)}
    return Matrix(metric=Metric.TTFT, baseline="us-east-2", regions=place[1:], targets=place[:1], cells=cells)


@pytest.mark.parametrize(
    ("seconds", "elapsed", "sentence"),
    [
        (10, 0, ""),
        (60, 59, ""),
        (75, 0, ""),
        (100, 5, "in 70 s acme gets 400 ms slower from eu-central-1, until the end"),
        (255, 0, "in 75 s acme gets 400 ms slower from eu-central-1, for 180 s"),
        (None, 74.6, "in 0 s acme gets 400 ms slower from eu-central-1, for 180 s"),
        (None, 75, ""),
    ],
)
def test_only_what_will_happen_is_announced(seconds: float | None, elapsed: float, sentence: str) -> None:
    """A slowdown after the end of the demo is not announced, and one that the end cuts short is announced as such."""
    assert Timeline((SLOW,), seconds=seconds).coming(elapsed) == sentence


def test_each_event_is_noted_once() -> None:
    """The beginning and the end of the slowdown, a measured change and a switch are each noted once, with the time."""
    timeline = Timeline((SLOW,), seconds=None)
    assert timeline.note(74.0, board(), ()) == []
    assert timeline.note(75.4, board(), ()) == ["75 s: acme gets 400 ms slower from eu-central-1, for 180 s"]
    assert timeline.note(90.0, board(250_000.0, error_us=200_000), ()) == []  # its size is not known yet
    assert timeline.note(98.2, board(399_600.0), ["the route chat switches"]) == [
        "98 s: measured: acme/large takes 400 ms longer from eu-central-1 than at the start",
        "98 s: the route chat switches",
    ]
    assert timeline.note(98.6, None, ()) == []  # the screen shows another metric
    assert timeline.note(99.0, board(401_000.0), ()) == []
    assert timeline.note(255.0, board(401_000.0), ()) == ["255 s: acme is as fast as before from eu-central-1"]
    assert timeline.note(290.0, board(), ()) == [
        "290 s: measured: acme/large is as fast as at the start from eu-central-1"
    ]
    assert len(timeline.events) == 5
    [faster] = Timeline((SLOW,), seconds=60).note(30.0, board(-129_000.0), ())
    assert faster == "30 s: measured: acme/large takes 129 ms less from eu-central-1 than at the start"


def test_faults_are_announced_one_after_another() -> None:
    """The next fault is announced until it begins, then the one after it; an end is noted only."""
    timeline = Timeline(OUTAGES, seconds=None)
    assert timeline.coming(0) == "in 10 s stepfun answers with HTTP 500 from eu-central-1, for 25 s"
    assert timeline.note(10.0, board(), ()) == ["10 s: stepfun answers with HTTP 500 from eu-central-1, for 25 s"]
    assert timeline.coming(10.0) == "in 8 s bytedance answers with HTTP 429 from every region, for 22 s"
    assert timeline.note(26.0, board(), ["alert target_failing: a from b"]) == [
        "18 s: bytedance answers with HTTP 429 from every region, for 22 s",
        "25 s: stepfun answers with HTTP 500 from every region, for 10 s",
        "26 s: alert target_failing: a from b",
    ]
    assert timeline.coming(26.0) == ""
    assert timeline.note(60.0, board(), ()) == ["35 s: stepfun answers as before", "40 s: bytedance answers as before"]
