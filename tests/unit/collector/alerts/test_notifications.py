"""Notifications: silences, grouping, and what a receiver gets."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from isochrone_collector.alerts.message import AlertMessage, Severity, topic_of
from isochrone_collector.alerts.notifications import (
    Notification,
    OpenProblem,
    Pending,
    State,
    due_notifications,
    of_incident,
    sift,
    silences_alert,
)
from isochrone_wire.model import MINUTE_US, SECOND_US
from isochrone_wire.operations import Silence
from testdata.alert_messages import AT, acknowledged, fails, pending, recovers, switches
from testdata.insights import INCIDENTS

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
    assert (other.title, other.lines) == ("moonshot/k: fails <from> us-east-2 & elsewhere", ())
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
    """Without a window each alert is sent alone and in order; an end never overtakes its beginning."""
    alerts = [fails("openai/a"), fails("openai/b"), recovers("openai/a")]
    assert [subjects(one) for one in notifications(alerts, window_us=0, now_at=AT + 60 * SECOND_US)] == [
        ["openai/a"],
        ["openai/b"],
    ]
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
    """An alert that began under another key ends under it."""
    alerts = [recovers("openai/a"), recovers("openai/b")]
    [first] = notifications(alerts, known(fails("openai/a"), "one"), known(fails("openai/b"), "two"))
    assert (first.key, subjects(first), first.state) == ("one", ["openai/a"], State.RESOLVE)


def test_an_acknowledged_problem() -> None:
    """A group is acknowledged when all of its problems are; events are together, but open nothing."""
    problems = known(fails("openai/a")), known(fails("openai/b"))
    [partly] = notifications([acknowledged("openai/a")], *problems, now_at=AT + SECOND_US)
    assert partly.state is State.TRIGGER
    [fully] = notifications([acknowledged("openai/a")], problems[0], now_at=AT + SECOND_US)
    assert (fully.state, fully.key) == (State.ACKNOWLEDGE, "k")
    [escalated] = notifications([fails("openai/a")], known(fails("openai/a"), is_acknowledged=True))
    assert escalated.state is State.TRIGGER
    [both] = notifications([switches(), switches(at=AT + 1)])
    assert (len(both.alerts), both.state, both.still_open) == (2, State.TRIGGER, 0)
    assert both.title == "2 alerts: route_switched, chat"


def test_a_repetition_has_another_id() -> None:
    """The id of a notification is that of its first alert; a repetition adds its number and says so."""
    [once] = notifications([fails("openai/a")])
    [again] = notifications([pending(fails("openai/a"), repeats=2)], known(fails("openai/a")))
    assert again.id == f"{once.id}_2"
    assert again.title.startswith("still: openai/a")
    assert len(notifications([fails(f"openai/{n}") for n in range(150)])[0].alerts) == 100, "at most"


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


def silence(**what: Any) -> Silence:
    return Silence(
        **{"id": 1, "reason": "work", "created_by": "ann", "created_at": AT, "until_at": AT + 60 * MINUTE_US, **what}
    )


def sifted(
    alerts: Iterable[Pending], *silences: Silence, known: tuple[str, ...] = (), now_at: int = AT + MINUTE_US
) -> tuple[list[AlertMessage], list[AlertMessage], list[AlertMessage]]:
    found = sift(alerts, known, silences, now_at=now_at)
    eligible, held, dropped = ([one.message for one in part] for part in (found.eligible, found.held, found.dropped))
    return eligible, held, dropped


@pytest.mark.parametrize(
    ("what", "matches"),
    [
        ({"targets": ("openai/a",)}, True),
        ({"targets": ("openai/*",)}, True),
        ({"targets": ("openai/b", "openai/a")}, True),
        ({"targets": ("moonshot/*",)}, False),
        ({"providers": ("openai",)}, True),
        ({"providers": ("openai",), "kinds": ("drift",)}, False),
        ({"kinds": ("target_failing",)}, True),
        ({"regions": ("us-*",)}, False),
        ({"regions": ("us-*", "eu-*")}, True),
        ({"thread": "incident_1"}, False),
        ({"targets": ("openai/a",), "until_at": AT}, False),
        ({"targets": ("openai/a",), "ended_at": AT}, False),
    ],
)
def test_what_a_silence_matches(what: dict[str, Any], *, matches: bool) -> None:
    """One pattern of each kind, all regions of the alert, and only while the silence is in force."""
    alert = fails("openai/a", regions=("us-east-2", "eu-central-1"))
    assert silences_alert(silence(**what), alert, now_at=AT) is matches


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ({"providers": ("moonshot",)}, True),
        ({"providers": ("openai",)}, False),
        ({"regions": ("us-*",)}, False),
        ({"regions": ("*",), "kinds": ("target_failing",)}, True),
        ({"thread": "incident_288a8efa7ab91175"}, True),
        ({"thread": "incident_288a8efa7ab91174"}, False),
        ({"thread": "incident_288a8efa7ab91175", "until_at": AT}, False),
    ],
)
def test_the_silences_of_an_incident(what: dict[str, Any], *, shown: bool) -> None:
    """An open incident has the acknowledgements of itself, and the silences that match its alerts."""
    incident, quiet = INCIDENTS.incidents[0], silence(**what)
    assert of_incident(incident, [quiet], now_at=AT) == ((quiet,) if shown else ())
    assert of_incident(replace(incident, recovered_at=AT), [quiet], now_at=AT) == ()


def test_a_silenced_problem_is_held_until_the_silence_ends() -> None:
    """A held alert is sent when the silence ends, unless its problem ended within it; a known one's end is sent."""
    begun, wide, over = fails("openai/a"), fails("openai/a", scope="all"), recovers("openai/a")
    quiet, key = silence(providers=("openai",)), topic_of(begun).dedup_key
    assert sifted([pending(begun)], quiet) == ([], [begun], [])
    assert sifted([pending(begun)], quiet, now_at=quiet.until_at) == ([begun], [], [])
    assert sifted([pending(begun), pending(acknowledged("openai/a"))], quiet)[1] == [begun, acknowledged("openai/a")]
    assert sifted([pending(begun), pending(over)], quiet) == ([], [], [begun, over])
    assert sifted([pending(wide), pending(over)], quiet, known=(key,)) == ([over], [], [wide])


def test_an_escalation_out_of_a_silence_is_sent_with_what_was_held() -> None:
    """A silence of one region does not hold what spreads to another; what has no end is not sent later."""
    alerts = [pending(fails("openai/a")), pending(fails("openai/a", at=AT + 1, regions=("us-east-2", "eu-west-1")))]
    quiet = silence(regions=("us-east-2",))
    assert sifted(alerts[:1], quiet)[0] == []
    assert sifted(alerts, quiet)[0] == [one.message for one in alerts]
    assert sifted([pending(switches())], silence(kinds=("route_switched",))) == ([], [], [switches()])


def test_a_repetition_gives_way() -> None:
    """A repetition is dropped for a silence or for news; only what is matched is held, the rest goes oldest first."""
    thread = topic_of(fails("openai/a")).dedup_key
    again = pending(fails("openai/a"), repeats=1)
    assert sifted([again], silence(providers=("openai",)), known=(thread,))[2] == [again.message]
    assert sifted([again, pending(recovers("openai/a"))], known=(thread,)) == (
        [recovers("openai/a")],
        [],
        [again.message],
    )
    alerts = [
        pending(fails("openai/a")),
        pending(fails("moonshot/b", at=AT + 2)),
        pending(fails("mistral/c", at=AT + 1)),
    ]
    assert [one.subject for one in sifted(alerts, silence(providers=("openai",)))[0]] == ["mistral/c", "moonshot/b"]
