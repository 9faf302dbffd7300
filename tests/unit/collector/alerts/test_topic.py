"""Topics: which alerts are about one problem, and which are sent together."""

from isochrone_collector.alerts.message import Action, Severity, of_absence, of_return, topic_of
from isochrone_wire.insights import AlertKind
from isochrone_wire.operations import alert_name
from testdata.alert_messages import AT, acknowledged, fails, recovers, switches


def test_an_incident_is_one_thread() -> None:
    """The beginning, the escalation, the acknowledgement and the end of an incident share thread, kind and group."""
    alerts = (fails("openai/a"), fails("openai/a", scope="all"), acknowledged("openai/a"), recovers("openai/a"))
    topics = [topic_of(one) for one in alerts]
    assert {(one.dedup_key, one.kind, one.group) for one in topics} == {
        (fails("openai/a").details["incident"], AlertKind.TARGET_FAILING, "target_failing openai")
    }
    assert [one.action for one in topics] == [Action.BEGIN, Action.BEGIN, Action.ACKNOWLEDGE, Action.END]
    assert [one.severity for one in topics[:2]] == [Severity.ERROR, Severity.CRITICAL]


def test_an_absence_ends_with_the_return() -> None:
    """The return of a vantage has the thread of the absence, which the absence names."""
    absence = of_absence("v", "r", last_seen_at=AT, raised_at=AT)
    back = of_return("v", "r", absence=absence.id, absent_at=AT, raised_at=AT)
    assert topic_of(absence).dedup_key == topic_of(back).dedup_key == alert_name(absence.id)
    assert topic_of(absence).group == topic_of(back).group == "vantage_absent r"
    assert [topic_of(one).action for one in (absence, back)] == [Action.BEGIN, Action.END]


def test_what_has_no_end_is_an_event() -> None:
    """Each switch of a route is a problem of its own, in the group of the route."""
    first, second = topic_of(switches()), topic_of(switches(at=AT + 1))
    assert first.dedup_key != second.dedup_key
    assert first.group == second.group
    assert first.action is Action.EVENT


def test_each_kind_has_a_topic() -> None:
    """Every kind of alert has an action and a severity."""
    for kind in AlertKind:
        message = switches()
        object.__setattr__(message, "kind", kind)
        object.__setattr__(message, "details", {"failure": "target_failing"})
        assert topic_of(message).dedup_key
