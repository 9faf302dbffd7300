"""Silences: what they hold, what they drop, and what they never hold."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from isochrone_collector.alerts.message import AlertMessage, topic_of
from isochrone_collector.alerts.notifications import Pending, of_incident, sift, silences_alert
from isochrone_wire.model import MINUTE_US
from isochrone_wire.operations import Silence
from testdata.alert_messages import AT, acknowledged, fails, pending, recovers, switches
from testdata.insights import INCIDENTS


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
    """While the silence lasts the alert is held; then it is sent."""
    alerts, quiet = [pending(fails("openai/a"))], silence(providers=("openai",))
    assert sifted(alerts, quiet) == ([], [fails("openai/a")], [])
    assert sifted(alerts, quiet, now_at=quiet.until_at) == ([fails("openai/a")], [], [])


def test_a_problem_within_a_silence_is_never_sent() -> None:
    """What began and ended while it was silenced is dropped."""
    alerts = [pending(fails("openai/a")), pending(recovers("openai/a"))]
    assert sifted(alerts, silence(providers=("openai",))) == ([], [], [one.message for one in alerts])


def test_the_end_of_a_known_problem_is_never_held() -> None:
    """The receiver gets the end of what it knows, and nothing stale before it."""
    thread = topic_of(fails("openai/a")).dedup_key
    alerts = [pending(fails("openai/a", scope="all")), pending(recovers("openai/a"))]
    eligible, held, dropped = sifted(alerts, silence(providers=("openai",)), known=(thread,))
    assert (eligible, held, dropped) == ([alerts[1].message], [], [alerts[0].message])


def test_an_escalation_out_of_a_silence_is_sent_with_what_was_held() -> None:
    """A silence of one region does not hold what spreads to another one."""
    alerts = [pending(fails("openai/a")), pending(fails("openai/a", at=AT + 1, regions=("us-east-2", "eu-west-1")))]
    quiet = silence(regions=("us-east-2",))
    assert sifted(alerts[:1], quiet)[0] == []
    assert sifted(alerts, quiet)[0] == [one.message for one in alerts]


def test_what_has_no_end_is_dropped() -> None:
    """A silenced switch of a route is not sent later."""
    assert sifted([pending(switches())], silence(kinds=("route_switched",))) == ([], [], [switches()])


def test_an_acknowledgement_waits_with_its_problem() -> None:
    """The acknowledgement of a silenced problem is held too."""
    alerts = [pending(fails("openai/a")), pending(acknowledged("openai/a"))]
    assert sifted(alerts, silence(providers=("openai",)))[1] == [one.message for one in alerts]


def test_a_repetition_gives_way() -> None:
    """A repetition is dropped while a silence matches, and when there is news of the problem."""
    thread = topic_of(fails("openai/a")).dedup_key
    again = pending(fails("openai/a"), repeats=1)
    assert sifted([again], silence(providers=("openai",)), known=(thread,))[2] == [again.message]
    assert sifted([again, pending(recovers("openai/a"))], known=(thread,)) == (
        [recovers("openai/a")],
        [],
        [again.message],
    )


def test_other_problems_are_not_held() -> None:
    """Only what is matched is held; the rest is sent, oldest first."""
    alerts = [
        pending(fails("openai/a")),
        pending(fails("moonshot/b", at=AT + 2)),
        pending(fails("mistral/c", at=AT + 1)),
    ]
    assert [one.subject for one in sifted(alerts, silence(providers=("openai",)))[0]] == ["mistral/c", "moonshot/b"]
