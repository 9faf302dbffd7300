"""Alerts for routes and for missed objectives."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from isochrone_collector.alerts.conditions import LastAlert, objective_alerts, of_change
from isochrone_collector.alerts.message import AlertMessage
from isochrone_wire.answers import Proportion
from isochrone_wire.insights import AlertKind, Eligible
from isochrone_wire.model import MINUTE_US
from isochrone_wire.routes import ChangeKind, RouteState, RouteTable
from testdata.routes import CHAT, NOW_AT

TARGET = CHAT.entries[0].target
SUBJECT = f"{TARGET} in {CHAT.route} from {CHAT.client_region}"


def judged(eligible: Eligible, **more: object) -> RouteTable:
    """Return a table of one member with this verdict."""
    goodput = Proportion(value=0.912, low=0.88, high=0.931, n=360)
    entry = replace(CHAT.entries[0], slo_eligible=eligible, goodput=goodput)
    return replace(CHAT, entries=(entry,), **more)  # type: ignore[arg-type]  # the cases choose the fields


def raised(table: RouteTable, last: AlertMessage | None = None, explained: Collection[str] = ()) -> list[AlertMessage]:
    known = {SUBJECT: LastAlert(kind=last.kind, alert_id=last.id, raised_at=last.raised_at)} if last else {}
    return list(objective_alerts(table, known, explained, raised_at=NOW_AT))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        *((change, AlertKind.ROUTE_SWITCHED) for change in (ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD)),
        (ChangeKind.FREEZE, AlertKind.ROUTE_FROZEN),
        *((change, None) for change in (ChangeKind.FIRST, ChangeKind.EVIDENCE, ChangeKind.RAMP, ChangeKind.PLAN)),
        (ChangeKind.THAW, None),
    ],
)
def test_switches_and_freezes_are_raised(change: ChangeKind, kind: AlertKind | None) -> None:
    """A switch by one of the rules and a freeze have an alert with the sentence of the table; other changes none."""
    message = of_change(replace(CHAT, change=change, sentence="why"), raised_at=NOW_AT)
    assert (message and message.kind) == kind
    if message:
        assert (message.sentence, message.details["rule"]) == ("why", change.value)
        assert message.details["first"] == TARGET


def test_a_breach_and_its_end_are_raised_once() -> None:
    """A breach is raised when the verdict is no, its end when it is yes, and nothing in between or again."""
    [breach] = raised(judged(Eligible.NO))
    assert (breach.kind, breach.subject) == (AlertKind.SLO_BREACHED, SUBJECT)
    assert breach.sentence.startswith("misses its objective: 91.2% of 360 requests kept its limits, 95.0% needed")
    assert raised(judged(Eligible.NO), breach) == []
    for between in (Eligible.MAYBE, Eligible.UNKNOWN):
        assert raised(judged(between)) == raised(judged(between), breach) == []
    [end] = raised(judged(Eligible.YES), replace(breach, raised_at=NOW_AT - 9 * MINUTE_US))
    assert (end.kind, end.sentence) == (
        AlertKind.SLO_RESTORED,
        "meets its objective again, 9 min after the breach was reported",
    )
    assert raised(judged(Eligible.YES)) == raised(judged(Eligible.YES), end) == []


def test_what_an_incident_explains_is_no_breach() -> None:
    """A target that failed has an incident already; a frozen table shows nothing."""
    assert raised(judged(Eligible.NO), explained={TARGET}) == []
    assert raised(judged(Eligible.NO, state=RouteState.FROZEN)) == []
