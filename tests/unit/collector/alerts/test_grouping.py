"""Grouping: one message for many targets of a provider, in order, resolved when the last one is."""

from collections.abc import Iterable

from isochrone_collector.alerts.message import AlertMessage, topic_of
from isochrone_collector.alerts.notifications import Notification, OpenProblem, Pending, State, due_notifications
from isochrone_wire.model import SECOND_US
from testdata.alert_messages import AT, acknowledged, fails, pending, recovers, switches

WINDOW_US = 10 * SECOND_US
LATER_AT = AT + 120 * SECOND_US


def notifications(
    alerts: Iterable[Pending | AlertMessage],
    *known: OpenProblem,
    window_us: int = WINDOW_US,
    now_at: int = LATER_AT,
) -> list[Notification]:
    ready = [one if isinstance(one, Pending) else pending(one) for one in alerts]
    return list(due_notifications(ready, known, window_us=window_us, now_at=now_at))


def known(message: AlertMessage, key: str = "k", *, is_acknowledged: bool = False) -> OpenProblem:
    return OpenProblem(message=message, key=key, is_acknowledged=is_acknowledged)


def subjects(notification: Notification) -> list[str]:
    return [one.message.subject for one in notification.alerts]


def test_a_provider_that_fails_everywhere_is_one_message() -> None:
    """Forty-five targets of one provider are one notification, and another provider is another one."""
    alerts = [fails(f"openai/{n}", at=AT + n * SECOND_US // 10) for n in range(45)] + [fails("moonshot/k")]
    one, other = notifications(alerts)
    assert (len(one.alerts), subjects(other)) == (45, ["moonshot/k"])
    assert one.title == "45 targets of openai fail"
    assert (one.key, one.state, one.still_open) == (topic_of(alerts[0]).dedup_key, State.TRIGGER, 45)


def test_a_group_waits_for_its_window() -> None:
    """Nothing is sent before the window has passed since the first alert; then all of it is."""
    alerts = [fails("openai/a"), fails("openai/b", at=AT + 9 * SECOND_US)]
    assert notifications(alerts, now_at=AT + WINDOW_US - 1) == []
    assert len(notifications(alerts, now_at=AT + WINDOW_US)[0].alerts) == 2


def test_what_was_tried_does_not_wait_again() -> None:
    """A notification that failed is due_notifications at its next attempt, with what joined the group meanwhile."""
    alerts = [pending(fails("openai/a"), attempts=1, next_attempt_at=LATER_AT), pending(fails("openai/b", at=LATER_AT))]
    assert notifications(alerts, now_at=LATER_AT - 1) == []
    assert len(notifications(alerts, now_at=LATER_AT)[0].alerts) == 2


def test_without_a_window_each_alert_is_sent_alone_and_in_order() -> None:
    """The oldest alert of each problem is sent, and the next one only when that is delivered."""
    alerts = [fails("openai/a"), fails("openai/b"), recovers("openai/a")]
    assert [subjects(one) for one in notifications(alerts, window_us=0, now_at=AT + 60 * SECOND_US)] == [
        ["openai/a"],
        ["openai/b"],
    ]


def test_an_end_never_overtakes_its_beginning() -> None:
    """A group with a beginning and an end is two notifications, one after the other."""
    [first] = notifications([fails("openai/a"), recovers("openai/a")])
    assert (first.state, len(first.alerts)) == (State.TRIGGER, 1)
    [then] = notifications([recovers("openai/a")], known(fails("openai/a")))
    assert (then.state, then.key) == (State.RESOLVE, "k")


def test_a_group_is_resolved_by_its_last_end() -> None:
    """While one problem of the group is open, the end of another one is an update with the same key."""
    first, second = fails("openai/a"), fails("openai/b")
    [partly] = notifications([recovers("openai/a")], known(first), known(second))
    assert (partly.state, partly.still_open, partly.key) == (State.TRIGGER, 1, "k")
    assert partly.lines == ("still open: 1",)
    [last] = notifications([recovers("openai/b")], known(second))
    assert (last.state, last.still_open) == (State.RESOLVE, 0)


def test_a_target_that_fails_later_joins_the_open_group() -> None:
    """The key stays while the group is open; a group that was resolved gets another one."""
    assert notifications([fails("openai/b")], known(fails("openai/a")))[0].key == "k"
    assert notifications([fails("openai/b")])[0].key == topic_of(fails("openai/b")).dedup_key


def test_problems_of_different_keys_end_apart() -> None:
    """What began under another key ends under it."""
    alerts = [recovers("openai/a"), recovers("openai/b")]
    [first] = notifications(alerts, known(fails("openai/a"), "one"), known(fails("openai/b"), "two"))
    assert (first.key, subjects(first), first.state) == ("one", ["openai/a"], State.RESOLVE)


def test_an_acknowledged_problem() -> None:
    """A group is acknowledged when all of its problems are, without waiting for the window."""
    problems = known(fails("openai/a")), known(fails("openai/b"))
    [partly] = notifications([acknowledged("openai/a")], *problems, now_at=AT + SECOND_US)
    assert partly.state is State.TRIGGER
    [fully] = notifications([acknowledged("openai/a")], problems[0], now_at=AT + SECOND_US)
    assert (fully.state, fully.key) == (State.ACKNOWLEDGE, "k")
    [escalated] = notifications([fails("openai/a")], known(fails("openai/a"), is_acknowledged=True))
    assert escalated.state is State.TRIGGER


def test_events_are_together_but_open_nothing() -> None:
    """Switches of one route are one notification under the id of the first."""
    [both] = notifications([switches(), switches(at=AT + 1)])
    assert (len(both.alerts), both.state, both.still_open) == (2, State.TRIGGER, 0)
    assert both.title == "2 alerts: route_switched, chat"


def test_a_repetition_has_another_id() -> None:
    """The id of a notification is that of its first alert; a repetition adds its number and says so."""
    [once] = notifications([fails("openai/a")])
    [again] = notifications([pending(fails("openai/a"), repeats=2)], known(fails("openai/a")))
    assert again.id == f"{once.id}_2"
    assert again.title.startswith("still: openai/a")


def test_a_large_group_is_cut() -> None:
    """A notification has at most a hundred alerts."""
    assert len(notifications([fails(f"openai/{n}") for n in range(150)])[0].alerts) == 100
