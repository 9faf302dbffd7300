"""PagerDuty: events of the Events API v2."""

import json
from typing import Any

from isochrone_collector.alerts import formats
from isochrone_collector.alerts.notifications import Notification, State
from isochrone_collector.receivers import DEFAULT_URL, Format, Receiver
from testdata.alert_messages import AT, fails, pending, recovers

KEY = "0123456789abcdef0123456789abcdef"
RECEIVER = Receiver(name="oncall", format=Format.PAGERDUTY, url=DEFAULT_URL[Format.PAGERDUTY], key=KEY)


def event(notification: Notification) -> dict[str, Any]:
    made = formats.pagerduty(notification, RECEIVER, now_at=AT)
    assert made.url == "https://events.pagerduty.com/v2/enqueue"
    assert KEY not in repr(made)
    found: dict[str, Any] = json.loads(made.body)
    return found


def test_a_trigger() -> None:
    """A trigger has the routing key, the key of the problem, and a payload with every required field."""
    found = event(Notification(key="k", state=State.TRIGGER, alerts=(pending(fails("openai/a")),), still_open=1))
    assert (found["routing_key"], found["event_action"], found["dedup_key"]) == (KEY, "trigger", "k")
    payload = found["payload"]
    assert payload["custom_details"]["alerts"][0]["target"] == "openai/a"
    del payload["custom_details"]
    assert payload == {
        "summary": "openai/a: fails <from> us-east-2 & elsewhere",
        "source": "openai",
        "severity": "error",
        "timestamp": "2026-11-21T08:00:00.000000Z",
        "component": "openai/a",
        "group": "openai",
        "class": "target_failing",
    }


def test_resolve_and_acknowledge_have_no_payload() -> None:
    """They carry the key only."""
    for state in (State.RESOLVE, State.ACKNOWLEDGE):
        found = event(Notification(key="k", state=state, alerts=(pending(recovers("openai/a")),)))
        assert found == {"routing_key": KEY, "event_action": state.value, "dedup_key": "k"}


def test_limits() -> None:
    """1024 characters of summary, 255 of the key, and a large group below 512 kB."""
    alerts = tuple(pending(fails(f"openai/{n}-{'x' * 2000}")) for n in range(100))
    made = formats.pagerduty(Notification(key="k" * 300, state=State.TRIGGER, alerts=alerts), RECEIVER, now_at=AT)
    found = json.loads(made.body)
    assert len(found["payload"]["summary"]) <= 1024
    assert len(found["dedup_key"]) == 255
    assert len(made.body) < 512_000
