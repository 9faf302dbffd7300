"""Notifications: their title, lines and severity."""

from isochrone_collector.alerts.message import Severity
from isochrone_collector.alerts.notifications import Notification, State
from testdata.alert_messages import AT, fails, pending, recovers


def test_a_single_alert() -> None:
    """The title of one alert is its subject and sentence, and it has no lines."""
    one = Notification(key="k", state=State.TRIGGER, alerts=(pending(fails("openai/a")),))
    assert one.title == "openai/a: fails <from> us-east-2 & elsewhere"
    assert one.lines == ()


def test_a_group_states_the_newest_of_each_problem() -> None:
    """An escalation replaces the alert before it; the most severe alert gives the severity."""
    alerts = (fails("openai/a"), fails("openai/b"), fails("openai/a", at=AT + 1, scope="all", regions=("x",)))
    group = Notification(key="k", state=State.TRIGGER, alerts=tuple(pending(one) for one in alerts), still_open=2)
    assert group.title == "2 targets of openai fail"
    assert [one.id for one in group.newest] == [alerts[2].id, alerts[1].id]
    assert (len(group.lines), group.severity, group.raised_at) == (2, Severity.CRITICAL, AT)


def test_a_group_that_ends() -> None:
    """The end of a group states what lasts on."""
    alerts = tuple(pending(recovers(f"openai/{n}")) for n in range(3))
    group = Notification(key="k", state=State.TRIGGER, alerts=alerts, still_open=1)
    assert group.title == "3 targets of openai are answered again"
    assert group.lines[-1] == "still open: 1"
