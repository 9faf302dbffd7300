"""Messages for incidents."""

from dataclasses import replace

import pytest

from isochrone_collector.alerts.incidents import IncidentTarget, Scope, Step, TargetIncident, Transition, of_transition
from isochrone_collector.alerts.message import AlertMessage
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import MINUTE_US

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


def test_the_error_follows() -> None:
    """The error of the newest failed probe ends the sentence."""
    assert message(Step.OPENED, OPEN, "the model does not exist").sentence.endswith("; the model does not exist")


def test_the_only_region_is_named_as_such() -> None:
    """With a single measured region, the sentence does not suggest that others are well."""
    found = message(Step.OPENED, replace(OPEN, failing=frozenset({"us"}), scope=Scope.ONE), measured=1)
    assert found.sentence.startswith("fails from us, the only region that measures it, since 2026-11-21 00:00 UTC: ")
    assert found.details["measured_regions"] == 1


def test_an_outage_of_most_targets_names_both_causes() -> None:
    """When most targets fail at once, the sentence names the providers and the common network as causes."""
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
