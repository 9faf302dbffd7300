"""Incidents of targets: what opens them, what does not, and their messages."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from isochrone_collector.alerts.failure_evidence import Fleet, RoundKind, round_results
from isochrone_collector.alerts.incidents import (
    IncidentTarget,
    IncidentWatch,
    Scope,
    Step,
    TargetIncident,
    Transition,
    of_transition,
)
from isochrone_collector.alerts.message import AlertMessage
from isochrone_collector.analysis.probe_records import BLOCKED, OUTCOME_BIT, RECORD
from isochrone_common.probe_metrics import OUTCOMES
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import MINUTE_US, SECOND_US, Outcome
from testdata.simulated_rounds import (
    EVERY_US,
    FAILED,
    HELD,
    OK,
    START_AT,
    THROTTLED,
    Happened,
    Results,
    SimulatedFleet,
    answered,
    fails,
)

FAILING, LIMITED = "target_failing", "target_throttled"


def shown(happened: list[Happened]) -> list[tuple[int, str, str, str, tuple[str, ...]]]:
    return [(one.round, one.step, one.kind, one.target, one.regions) for one in happened]


def test_one_region_then_everywhere_then_recovered() -> None:
    """A target that fails from one region, then from all, then not: three steps, the first with the third failure."""
    results = fails("a", range(20, 40), then=fails("a", range(10, 20), "sg-1"))
    happened = SimulatedFleet().play(60, results)
    assert shown(happened) == [
        (12, "opened", FAILING, "a", ("sg",)),
        (21, "escalated", FAILING, "a", ("fra", "sg", "us")),
        (42, "recovered", FAILING, "a", ()),
    ]
    incident = happened[-1].transition.incident
    assert (incident.first_failed_at, incident.last_failed_at) == (
        START_AT + 10 * EVERY_US,
        START_AT + 39 * EVERY_US,
    )
    assert incident.scope is Scope.ALL
    assert len({one.transition.incident.id for one in happened}) == 1


def test_several_regions_are_an_escalation_too() -> None:
    """From one region to several to all are two escalations; a region less is none."""
    results = fails("a", range(10, 60), "sg-1", then=fails("a", range(20, 50), "fra-1"))
    results = fails("a", range(30, 40), then=results)
    assert [(one[0], one[1], one[4]) for one in shown(SimulatedFleet().play(70, results))] == [
        (12, "opened", ("sg",)),
        (21, "escalated", ("fra", "sg")),
        (31, "escalated", ("fra", "sg", "us")),
        (62, "recovered", ()),
    ]


def test_two_failures_count_if_two_vantages_have_them() -> None:
    """Two failures in a row count if two vantages have them, one never; an answered vantage clears its region."""
    for results in (
        fails("a", range(10, 11), "sg-1"),
        fails("a", range(10, 11)),
        fails("a", range(10, 12), "sg-1"),
        fails("a", range(10, 50), "us-1"),
    ):
        assert SimulatedFleet().play(60, results) == []
    [opened, recovered] = SimulatedFleet().play(30, fails("a", range(10, 12), "us-1", "us-2"))
    assert shown([opened, recovered]) == [(11, "opened", FAILING, "a", ("us",)), (14, "recovered", FAILING, "a", ())]


def test_a_vantage_that_fails_at_everything_accuses_nobody() -> None:
    """A vantage whose network is gone, even alone, or whose clock is wrong opens nothing; other regions still do."""
    gone: Results = lambda _target, vantage, number: FAILED if vantage == "sg-1" and number in range(10, 40) else OK  # noqa: E731
    assert SimulatedFleet().play(60, gone) == []
    assert SimulatedFleet(vantages=["sg-1"]).play(60, gone) == []
    wrong_clock = SimulatedFleet(distrusted=["sg-1"])
    assert wrong_clock.play(60, fails("a", range(10, 40), "sg-1")) == []
    happened = SimulatedFleet().play(60, fails("a", range(20, 30), then=gone))
    assert [one.step for one in happened] == ["opened", "recovered"]
    assert happened[0].regions == ("fra", "us")


def test_providers_that_fail_everywhere_are_accused() -> None:
    """Two of three providers that fail from all regions are two incidents, also without a control target."""
    results = fails("a", range(10, 40), then=fails("b", range(10, 40)))
    happened = SimulatedFleet(targets="abc").play(60, results)
    everywhere = ("fra", "sg", "us")
    assert shown(happened) == [
        *((11, "opened", FAILING, name, everywhere) for name in "ab"),
        *((42, "recovered", FAILING, name, ()) for name in "ab"),
    ]
    assert [one.transition.at_once for one in happened] == [2, 2, 0, 0]
    assert [one.transition.measured for one in happened][:2] == [3, 3]


def test_what_one_region_has_alone_is_its_own() -> None:
    """Vantages of one region that fail at everything accuse no target, also while a target fails everywhere."""
    region: Results = lambda _target, vantage, number: (  # noqa: E731
        FAILED if vantage.startswith("us") and number in range(10, 40) else OK
    )
    vantages = ["us-1", "us-2", "us-3", "sg-1"]
    assert SimulatedFleet(vantages=vantages).play(60, region) == []
    happened = SimulatedFleet(vantages=vantages).play(60, fails("a", range(10, 40), then=region))
    assert [(one.step, one.target, one.regions) for one in happened] == [
        ("opened", "a", ("sg",)),
        ("recovered", "a", ()),
    ]


def test_an_outage_of_everything_is_reported_as_one() -> None:
    """When all targets fail from all vantages, each has an incident that states how many there are."""
    happened = SimulatedFleet().play(30, lambda _target, _vantage, number: FAILED if number in range(10, 20) else OK)
    opened = [one for one in happened if one.step == "opened"]
    assert [(one.target, one.transition.at_once) for one in opened] == [(name, 4) for name in "abcd"]
    assert SimulatedFleet(control="a").play(30, fails("a", range(10, 20)))[0].transition.at_once == 0


def test_a_change_waits_only_for_vantages_that_have_not_reported() -> None:
    """A change waits only for vantages that may have the failure and did not report the round: then it has to hold."""
    from_one = fails("a", range(10, 40), "sg-1")
    from_two = fails("a", range(11, 40), "fra-1", then=from_one)

    def opened_after_s(results: Results, *missing: int) -> float:
        late: Results = lambda target, vantage, number: (  # noqa: E731
            None if (target, vantage) == ("a", "fra-1") and number in missing else results(target, vantage, number)
        )
        opened = SimulatedFleet(steps_per_round=11).play(20, late)[0].transition.incident.opened_at
        return (opened - START_AT - 12 * EVERY_US) / SECOND_US

    assert opened_after_s(from_one) == opened_after_s(from_one, 12) == opened_after_s(from_two) == 5
    assert opened_after_s(from_two, 12) == opened_after_s(from_one, 11, 12) == 15


@pytest.mark.parametrize("phase", range(4))
def test_targets_with_later_rounds_are_asked_first(phase: int) -> None:
    """When a network breaks between the rounds of two targets, the target probed first is not accused."""
    broken: Results = lambda target, vantage, number: (  # noqa: E731
        FAILED if vantage == "sg-1" and number >= 10 + ("abcd".index(target) >= phase) else OK
    )
    assert SimulatedFleet().play(40, broken) == []


def test_a_failing_control_target_explains() -> None:
    """What fails together with the control target is not accused, unless that had failed for an hour."""
    together = fails("b", range(10, 40), "sg-1", then=fails("a", range(10, 40), "sg-1"))
    names = [one.target for one in SimulatedFleet(targets="abcdefgh", control="a").play(60, together)]
    assert names == ["a", "a"], "only the control target itself"
    most: Results = lambda target, _vantage, number: FAILED if target in "bcd" and number in range(10, 40) else OK  # noqa: E731
    happened = SimulatedFleet(control="a").play(60, most)
    assert sorted(one.target for one in happened) == sorted("bcd" * 2)
    results = fails("a", range(10, 200), then=fails("b", range(100, 150)))
    happened = SimulatedFleet(targets="abcdef", control="a").play(200, results)
    assert [(one.round, one.step, one.target) for one in happened if one.target == "b"] == [
        (101, "opened", "b"),
        (152, "recovered", "b"),
    ]


def test_a_target_that_never_worked_is_reported_at_once() -> None:
    """Two failures of a target that never worked are enough: of two vantages in its first round, or of one in two."""
    never = fails("a", range(1000))
    [opened] = SimulatedFleet(never_worked="a").play(20, never)
    assert (opened.round, opened.step, opened.regions) == (0, "opened", ("fra", "sg", "us"))
    assert opened.transition.incident.never_worked
    [alone] = SimulatedFleet(never_worked="a", vantages=["us-1"]).play(20, never)
    assert (alone.round, alone.step) == (1, "opened")


def test_targets_that_never_worked_hide_nothing() -> None:
    """Targets that never worked count neither for nor against a vantage, even if all targets are such."""
    never: Results = lambda target, _vantage, number: FAILED if target in "abc" else answered(target, "", number)  # noqa: E731
    happened = SimulatedFleet(never_worked="abc", vantages=["us-1"]).play(60, fails("d", range(20, 40), then=never))
    assert sorted((one.round, one.target) for one in happened if one.step == "opened") == [
        (1, "a"),
        (1, "b"),
        (1, "c"),
        (22, "d"),
    ]
    everything = SimulatedFleet(never_worked="abcd", vantages=["us-1"]).play(20, lambda *_: FAILED)
    assert sorted(one.target for one in everything) == list("abcd")


def test_throttling_is_its_own_kind() -> None:
    """Refusals for the rate open an incident of their own kind, also if most rounds are held back meanwhile."""
    happened = SimulatedFleet().play(60, fails("a", range(10, 40), kind=THROTTLED))
    assert shown(happened) == [
        (11, "opened", LIMITED, "a", ("fra", "sg", "us")),
        (42, "recovered", LIMITED, "a", ()),
    ]
    backing_off: Results = lambda target, vantage, number: (  # noqa: E731
        OK if target != "a" or vantage != "sg-1" or number < 10 else THROTTLED if number % 3 == 0 else HELD
    )
    assert shown(SimulatedFleet().play(60, backing_off)) == [(15, "opened", LIMITED, "a", ("sg",))]
    once: Results = lambda target, vantage, number: (  # noqa: E731
        THROTTLED if (target, vantage, number) == ("a", "sg-1", 10) else HELD if number in range(11, 30) else OK
    )
    assert SimulatedFleet().play(60, once) == [], "a single refusal, with a long wait"
    alone = SimulatedFleet(vantages=["sg-1"]).play(60, once)
    assert shown(alone) == [
        (12, "opened", LIMITED, "a", ("sg",)),
        (32, "recovered", LIMITED, "a", ()),
    ], "the only vantage"


def test_flapping_becomes_one_long_incident() -> None:
    """A target that fails and is answered in turn opens a few incidents, each of them longer, and not one per turn."""
    results: Results = lambda target, _vantage, number: FAILED if target == "a" and number // 4 % 2 else OK  # noqa: E731
    happened = SimulatedFleet().play(400, results)
    assert len([one for one in happened if one.step == "opened"]) <= 2


def test_silence_changes_nothing() -> None:
    """An incident stays while nobody reports; a silent region ends after an hour, a target not planned at once."""
    silent: Results = lambda _target, _vantage, number: None if number >= 30 else OK  # noqa: E731
    happened = SimulatedFleet().play(300, fails("a", range(10, 30), then=silent))
    assert [one.step for one in happened] == ["opened"]
    away: Results = lambda _target, vantage, number: None if vantage == "sg-1" and number >= 30 else OK  # noqa: E731
    happened = SimulatedFleet().play(200, fails("a", range(10, 30), "sg-1", then=away))
    assert [(one.round, one.step) for one in happened] == [(12, "opened"), (89, "recovered")]
    world = SimulatedFleet()
    [opened] = world.play(20, fails("d", range(10, 20)))
    world.targets = ("a", "b", "c")
    [ended] = world.play(1)
    assert (opened.step, ended.step, ended.target) == ("opened", "withdrawn", "gone")


def test_a_new_leader_continues() -> None:
    """After a restart the watch knows the open incidents, reads the newest rounds, and repeats nothing."""
    results = fails("a", range(10, 40))
    world = SimulatedFleet()
    [opened] = world.play(20, results)
    after = replace(world, watch=IncidentWatch([opened.transition.incident]))
    assert [(one.round, one.step) for one in after.play(40, results)] == [(42, "recovered")]
    early = SimulatedFleet(watch=IncidentWatch([opened.transition.incident]), number=41)
    assert [(one.round, one.step) for one in early.play(5, results)] == [(43, "recovered")]


def noisy(seed: int, *, single: float, bursts: float) -> Results:
    """Return independent failures, and bursts of two at a vantage; shares of the rounds, which drift slowly."""
    rng = Random(seed)
    burst_until: dict[tuple[str, str], int] = {}

    def results(target: str, vantage: str, number: int) -> RoundKind | None:
        drift = 1 + 0.5 * (number % 720) / 720
        key = (target, vantage)
        if number < burst_until.get(key, 0):
            return FAILED
        if rng.random() < bursts * drift:
            burst_until[key] = number + 2
            return FAILED
        return FAILED if rng.random() < single * drift else OK

    return results


@pytest.mark.parametrize(("single", "bursts"), [(0.01, 0.0), (0.0, 0.002), (0.005, 0.001)])
def test_quiet_hours_raise_nothing(single: float, bursts: float) -> None:
    """Half a day of one-minute rounds with usual noise raises nothing: 1 % failures, bursts of two, slow drift."""
    assert SimulatedFleet().play(700, noisy(17, single=single, bursts=bursts)) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_fifth_of_the_requests_is_found_without_runs(seed: int) -> None:
    """A target of which every fifth request fails, never three in a row, is an incident, which ends afterwards."""
    rng = Random(seed)
    phase = {name: rng.randrange(5) for name in ("us-1", "sg-1")}
    fifth: Results = lambda target, vantage, number: (  # noqa: E731
        FAILED if target == "a" and number in range(100, 200) and (number + phase[vantage]) % 5 == 0 else OK
    )
    opened, *others, recovered = SimulatedFleet(vantages=list(phase)).play(300, fifth)
    assert (opened.step, opened.target, recovered.step) == ("opened", "a", "recovered")
    assert opened.round < 150
    assert opened.transition.incident.first_failed_at >= START_AT + 100 * EVERY_US
    assert all(one.step == "escalated" for one in others)
    assert 200 < recovered.round <= 230


def test_a_vantage_that_loses_requests_accuses_nobody() -> None:
    """A vantage at which a fifth of the requests to all targets fail is at fault; another vantage still accuses."""
    lossy: Results = lambda target, vantage, number: (  # noqa: E731
        FAILED if vantage == "sg-1" and (number + ord(target)) % 5 == 0 else OK
    )
    vantages = ["sg-1", "us-1", "us-2"]
    assert SimulatedFleet(vantages=vantages).play(200, lossy) == []
    fifth: Results = lambda target, vantage, number: (  # noqa: E731
        FAILED if target == "b" and vantage != "sg-1" and number % 5 == 0 else lossy(target, vantage, number)
    )
    happened = SimulatedFleet(vantages=vantages).play(200, fifth)
    assert [(one.step, one.target, one.regions) for one in happened] == [("opened", "b", ("us",))]


def test_one_answer_that_asks_to_wait_is_no_incident() -> None:
    """Rounds that wait after a failure, or were not sent, are held: neither failures nor silence."""
    waits: Results = lambda target, _vantage, number: (  # noqa: E731
        (FAILED if number == 10 else HELD) if target == "a" and number in range(10, 15) else OK
    )
    assert SimulatedFleet().play(30, waits) == []
    longer: Results = lambda target, _vantage, number: (  # noqa: E731
        (FAILED if number % 5 == 0 else HELD) if target == "a" and number in range(10, 40) else OK
    )
    assert [(one.round, one.step) for one in SimulatedFleet().play(60, longer)] == [(15, "opened"), (42, "recovered")]
    records = np.zeros(4, RECORD)
    places = [OUTCOMES.index(one) for one in (Outcome.HTTP_ERROR, Outcome.HTTP_ERROR, Outcome.SKIPPED_OVERLAP)]
    records["traits"][:3] = np.array(places) << OUTCOME_BIT
    records["traits"][1:3] |= BLOCKED
    records["round_at"] = range(4)
    assert [one.kind for one in round_results(records, {0: "us"})] == [FAILED, HELD, OK]


def test_the_first_message_comes_within_three_rounds() -> None:
    """Wherever a target begins to fail, also after a noisy day, it is reported by the third round after the first."""
    for seed in range(5):
        world = SimulatedFleet(steps_per_round=2)
        noise = noisy(seed, single=0.005, bursts=0.001)
        world.play(400, noise)
        happened = world.play(30, fails("b", range(410, 430), "sg-1", then=noise))
        assert [(one.step, one.target) for one in happened][:1] == [("opened", "b")]
        assert happened[0].round - 410 <= 3
        assert happened[0].transition.incident.opened_at - (START_AT + 410 * MINUTE_US) <= 4 * MINUTE_US


def test_an_outage_of_everything_costs_little() -> None:
    """When everything fails, the vantages are judged once each, and not once for each target."""
    world = SimulatedFleet(targets=[f"t{number}" for number in range(40)], steps_per_round=1)
    fleets = []
    step = world.watch.step

    def counted(fleet: Fleet, *, now_at: int) -> list[Transition]:
        fleets.append(fleet)
        return step(fleet, now_at=now_at)

    world.watch.step = counted  # type: ignore[method-assign]  # to see the faults that were computed
    world.play(5, lambda *_: FAILED)
    assert len(fleets[-1].faults) == len(world.vantages)


AT = 1_795_219_200_000_000
TARGET = IncidentTarget(name="p/m", provider="p", model="m")
OPEN = TargetIncident(
    kind=AlertKind.TARGET_FAILING,
    target_id=7,
    failing=frozenset({"us", "sg"}),
    regions=frozenset({"us", "sg"}),
    scope=Scope.SEVERAL,
    first_failed_at=AT,
    last_failed_at=AT + 24 * MINUTE_US,
    opened_at=AT + 2 * MINUTE_US,
)


def message(
    step: Step, incident: TargetIncident, example: str = "", *, measured: int = 3, at_once: int = 0
) -> AlertMessage:
    transition = Transition(step=step, incident=incident, measured=measured, at_once=at_once)
    classes = {"http_error 500": 9, "timed_out": 3, "stalled": 2, "truncated": 1}
    found = of_transition(transition, TARGET, classes=classes, example=example, raised_at=AT)
    assert found
    return found


@pytest.mark.parametrize(
    ("step", "change", "sentence"),
    [
        (Step.OPENED, {}, "fails from sg, us since 2026-11-21 00:00 UTC: 9 http_error 500, 3 timed_out, 2 stalled"),
        (
            Step.OPENED,
            {"never_worked": True, "failing": frozenset({"us"}), "scope": Scope.ONE},
            "has never worked: from us since 2026-11-21 00:00 UTC: 9 http_error 500, 3 timed_out, 2 stalled",
        ),
        (
            Step.ESCALATED,
            {"kind": AlertKind.TARGET_THROTTLED, "scope": Scope.ALL},
            "is now throttled from all 2 regions since 2026-11-21 00:00 UTC: 9 http_error 500, 3 timed_out, 2 stalled",
        ),
        (
            Step.RECOVERED,
            {"failing": frozenset(), "recovered_at": AT},
            "is answered again; it failed for 24 min from sg, us",
        ),
        (Step.WITHDRAWN, {"recovered_at": AT}, "is no longer measured; it failed for 24 min"),
    ],
)
def test_sentences(step: Step, change: dict[str, object], sentence: str) -> None:
    """The sentence states what happened, from where, since when, and the most frequent classes."""
    assert message(step, replace(OPEN, **change)).sentence == sentence  # type: ignore[arg-type]  # the cases choose the fields


def test_what_is_added_to_a_sentence() -> None:
    """It ends with the newest error; a single region suggests nothing of others; many targets name a common cause."""
    only = message(Step.OPENED, replace(OPEN, failing=frozenset({"us"}), scope=Scope.ONE), measured=1)
    assert only.sentence.startswith("fails from us, the only region that measures it, since 2026-11-21 00:00 UTC: ")
    assert only.details["measured_regions"] == 1
    found = message(Step.OPENED, OPEN, "connection refused", at_once=5)
    clause = "5 targets fail at once: several providers, or a network that all vantages share"
    assert found.sentence.endswith(f"; {clause}; connection refused")
    assert found.details["targets_at_once"] == 5


def test_one_alert_per_scope() -> None:
    """A target that fails from several regions, then from all and then from several again has two alerts and an end."""
    everywhere, over = replace(OPEN, scope=Scope.ALL), replace(OPEN, recovered_at=AT)
    messages = [message(Step.OPENED, OPEN), message(Step.ESCALATED, everywhere), message(Step.RECOVERED, over)]
    assert len({one.id for one in messages}) == 3
    assert message(Step.ESCALATED, replace(everywhere, last_failed_at=AT)).id == messages[1].id
    assert (
        of_transition(Transition(step=Step.CONTINUED, incident=OPEN), TARGET, classes={}, example="", raised_at=AT)
        is None
    )
