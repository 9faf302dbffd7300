"""Slack: blocks within their limits, with Slack's characters escaped."""

import json
from typing import Any

from isochrone_collector.alerts import formats
from isochrone_collector.alerts.message import AlertMessage
from isochrone_collector.alerts.notifications import Notification, State
from isochrone_collector.receivers import Format, Receiver
from testdata.alert_messages import AT, acknowledged, fails, pending, recovers

RECEIVER = Receiver(name="chat", format=Format.SLACK, url="https://hooks.slack.example/T0/B0/token")


def body(*alerts: AlertMessage, state: State = State.TRIGGER) -> dict[str, Any]:
    ready = tuple(pending(one) for one in alerts)
    made = formats.slack(Notification(key="k", state=state, alerts=ready), RECEIVER, now_at=AT)
    assert (made.url, dict(made.headers)) == (RECEIVER.url, {})
    found: dict[str, Any] = json.loads(made.body)
    return found


def test_one_alert() -> None:
    """A header with the subject, a section with the sentence, a line with kind, severity and instant."""
    found = body(fails("openai/a"))
    header, section, context = found["blocks"]
    assert header["text"] == {"type": "plain_text", "text": ":red_circle: openai/a"}
    assert section["text"]["text"] == "openai/a: fails &lt;from&gt; us-east-2 &amp; elsewhere"
    assert found["text"] == section["text"]["text"]
    assert context["elements"][0]["text"] == "target_failing · error · 2026-11-21 08:00 UTC"


def test_a_large_group_stays_within_the_limits() -> None:
    """150 characters in the header, 3000 in a section and in the text; twenty lines, then the number of the others."""
    found = body(*(fails(f"openai/{n}-{'x' * 300}") for n in range(60)))
    header, section, _ = found["blocks"]
    assert header["text"]["text"] == ":red_circle: 60 targets of openai fail"
    assert len(section["text"]["text"]) == 3000
    found = body(*(fails(f"openai/{n}") for n in range(60)))
    assert found["blocks"][1]["text"]["text"].endswith("and 40 more")
    assert len(body(fails("x" * 4000))["blocks"][0]["text"]["text"]) == 150
    assert len(body(fails("x" * 4000))["text"]) == 3000


def test_symbols() -> None:
    """The end of a problem is green, an acknowledgement has its own symbol."""
    assert body(recovers("openai/a"))["blocks"][0]["text"]["text"].startswith(":large_green_circle:")
    acked = body(acknowledged("openai/a"), state=State.ACKNOWLEDGE)
    assert acked["blocks"][0]["text"]["text"].startswith(":eyes:")
