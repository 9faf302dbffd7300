"""Formats of receivers: the request for each kind of notification."""

import json
from dataclasses import replace
from typing import Any

from isochrone_collector import webhook_signature
from isochrone_collector.alerts.formats import HttpRequest, cut, encoded, request_of
from isochrone_collector.alerts.message import AlertMessage, of_absence
from isochrone_collector.alerts.notifications import Notification, State
from isochrone_collector.receivers import DEFAULT_URL, PLACEHOLDERS, Format, Receiver
from isochrone_wire.model import MINUTE_US, SECOND_US
from testdata.alert_messages import AT, acknowledged, fails, pending, recovers


def test_texts_and_secrets() -> None:
    """A cut text ends with an ellipsis, JSON is compact with any characters, and no secret is in the repr."""
    assert [cut("abcd", most) for most in (5, 4, 3)] == ["abcd", "abcd", "ab…"]
    assert encoded({"a": [1, "é"]}) == '{"a":[1,"é"]}'.encode()
    assert repr(HttpRequest(url="https://token", body=b"token", headers={"a": "token"})) == "HttpRequest()"


RECEIVER = Receiver(name="ops", format=Format.OPSGENIE, url="https://api.eu.opsgenie.com/", key="secret-key")


def test_create() -> None:
    """An alert has its parts within their limits and the key in a header; to end it, the alias is in the path."""
    alerts = (pending(fails(f"openai/{'x' * 400}", scope="all")),)
    made = request_of(Notification(key="a/b", state=State.TRIGGER, alerts=alerts), RECEIVER, now_at=AT)
    assert made.url == "https://api.eu.opsgenie.com/v2/alerts"
    assert made.headers == {"authorization": "GenieKey secret-key"}
    assert "secret-key" not in repr(made)
    body = json.loads(made.body)
    assert (body["alias"], body["priority"], len(body["message"])) == ("a/b", "P1", 130)
    assert body["description"].endswith("elsewhere")
    assert body["entity"] == "openai"
    for state, word in ((State.RESOLVE, "close"), (State.ACKNOWLEDGE, "acknowledge")):
        one = Notification(key="a/b c", state=state, alerts=(pending(recovers("openai/a")),))
        made = request_of(one, RECEIVER, now_at=AT)
        assert made.url == f"https://api.eu.opsgenie.com/v2/alerts/a%2Fb%20c/{word}?identifierType=alias"
        assert json.loads(made.body) == {"source": "isochrone", "note": "openai/a: is answered again"}


def filled(body: object, sentence: str = "fails") -> Any:
    alert = replace(fails("openai/a"), sentence=sentence)
    receiver = Receiver(name="t", format=Format.TEMPLATE, url="https://t.example/", body=body, headers={"x-key": "1"})
    one = Notification(key="k", state=State.TRIGGER, alerts=(pending(alert),), still_open=1)
    made = request_of(one, receiver, now_at=AT)
    assert made.headers == {"x-key": "1"}
    return json.loads(made.body)


def test_placeholders_within_texts_and_alone() -> None:
    """A placeholder alone is the value, within a text a text, which stays one; every documented one has a value."""
    found = filled(
        {"t": "[$severity] ${title} $$1", "n": "$count", "d": "${details}", "deep": [{"x": "$state"}], "k": 7}
    )
    assert found["t"] == "[error] openai/a: fails $1"
    assert (found["n"], found["d"]["target"], found["deep"], found["k"]) == (1, "openai/a", [{"x": "trigger"}], 7)
    evil = '", "admin": true, "x": "$key ${secret} {{7*7}}'
    assert filled({"t": "$sentence"}, evil) == {"t": evil}
    assert filled({"t": "a $sentence"}, evil) == {"t": f"a {evil}"}
    assert None not in filled({name: f"${name}" for name in PLACEHOLDERS}).values()
    assert filled({"all": " ".join(f"${name}" for name in PLACEHOLDERS)})


KEY = "0123456789abcdef0123456789abcdef"
PAGERDUTY = Receiver(name="oncall", format=Format.PAGERDUTY, url=DEFAULT_URL[Format.PAGERDUTY], key=KEY)


def event(notification: Notification) -> dict[str, Any]:
    made = request_of(notification, PAGERDUTY, now_at=AT)
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
    made = request_of(Notification(key="k" * 300, state=State.TRIGGER, alerts=alerts), PAGERDUTY, now_at=AT)
    found = json.loads(made.body)
    assert len(found["payload"]["summary"]) <= 1024
    assert len(found["dedup_key"]) == 255
    assert len(made.body) < 512_000


SLACK = Receiver(name="chat", format=Format.SLACK, url="https://hooks.slack.example/T0/B0/token")


def body(*alerts: AlertMessage, state: State = State.TRIGGER) -> dict[str, Any]:
    ready = tuple(pending(one) for one in alerts)
    made = request_of(Notification(key="k", state=state, alerts=ready), SLACK, now_at=AT)
    assert (made.url, dict(made.headers)) == (SLACK.url, {})
    found: dict[str, Any] = json.loads(made.body)
    return found


def test_one_alert() -> None:
    """Header, sentence and context stay within Slack's limits, and a symbol tells a beginning from an end."""
    found = body(fails("openai/a"))
    header, section, context = found["blocks"]
    assert header["text"] == {"type": "plain_text", "text": ":red_circle: openai/a"}
    assert section["text"]["text"] == "openai/a: fails &lt;from&gt; us-east-2 &amp; elsewhere"
    assert found["text"] == section["text"]["text"]
    assert context["elements"][0]["text"] == "target_failing · error · 2026-11-21 08:00 UTC"
    found = body(*(fails(f"openai/{n}-{'x' * 300}") for n in range(60)))
    header, section, _ = found["blocks"]
    assert header["text"]["text"] == ":red_circle: 60 targets of openai fail"
    assert len(section["text"]["text"]) == 3000
    found = body(*(fails(f"openai/{n}") for n in range(60)))
    assert found["blocks"][1]["text"]["text"].endswith("and 40 more")
    assert len(body(fails("x" * 4000))["blocks"][0]["text"]["text"]) == 150
    assert len(body(fails("x" * 4000))["text"]) == 3000
    assert body(recovers("openai/a"))["blocks"][0]["text"]["text"].startswith(":large_green_circle:")
    acked = body(acknowledged("openai/a"), state=State.ACKNOWLEDGE)
    assert acked["blocks"][0]["text"]["text"].startswith(":eyes:")


SECRET = b"a secret of thirty-two bytes 123"
STANDARD = Receiver(name="hook", format=Format.STANDARD, url="https://h.example/x", secret=SECRET)


def test_the_body_that_a_receiver_gets() -> None:
    """The documented JSON: a type, when it was raised, and the data with the details."""
    alert = pending(of_absence("ohio-1", "us-east-2", last_seen_at=AT - 9 * MINUTE_US, raised_at=AT))
    one = Notification(key="k", state=State.TRIGGER, alerts=(alert,))
    made = request_of(one, STANDARD, now_at=AT)
    body = json.loads(made.body)
    assert body["type"] == "isochrone.vantage_absent"
    assert body["timestamp"] == "2026-11-21T08:00:00.000000Z"
    assert body["data"].pop("id") == one.id
    assert body["data"] == {
        "subject": "ohio-1",
        "sentence": "ohio-1 in us-east-2 has sent no heartbeat for 9 min",
        "vantage": "ohio-1",
        "region": "us-east-2",
        "last_seen_at": "2026-11-21T07:51:00.000000Z",
    }
    assert webhook_signature.verify(SECRET, made.headers, made.body, now_s=AT // SECOND_US) == one.id


def test_a_group_has_its_alerts() -> None:
    """Several alerts are of the type `isochrone.group`, each with its kind and data; a repetition has its number."""
    alerts = tuple(pending(fails(f"openai/{n}"), repeats=3) for n in range(2))
    group = Notification(key="k", state=State.TRIGGER, alerts=alerts)
    body = json.loads(request_of(group, STANDARD, now_at=AT).body)
    assert body["type"] == "isochrone.group"
    assert [one["target"] for one in body["data"]["alerts"]] == ["openai/0", "openai/1"]
    assert [body["data"][name] for name in ("kind", "subject", "repetition")] == ["target_failing", "openai", 3]
