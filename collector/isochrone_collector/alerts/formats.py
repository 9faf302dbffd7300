"""Formats of receivers: a notification as an HTTP request. Pure.

The limits are those of Block Kit of Slack (docs.slack.dev/reference/block-kit/blocks), of Events API v2 of PagerDuty
(developer.pagerduty.com/docs/events-api-v2/trigger-events), and of the Alert API of Opsgenie
(docs.opsgenie.com/docs/alert-api), which creates, acknowledges and closes by alias. `standard` is Standard Webhooks
1.0.0, signed JSON.

A template is JSON before anything is inserted, and placeholders are replaced only within its strings, so that no alert
can change its structure. A string that is one placeholder becomes the value itself: a number, a list, an object.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any
from urllib.parse import quote

from isochrone_collector import webhook_signature
from isochrone_collector.alerts.message import Action, Severity
from isochrone_collector.alerts.notifications import Notification, State, details_of
from isochrone_collector.receivers import Format, Receiver
from isochrone_wire.json_format import minute, rfc3339
from isochrone_wire.model import SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A POST of JSON. Address, headers and body may contain secrets: none is in the repr."""

    url: str = field(repr=False)
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def encoded(document: object) -> bytes:
    """Return a document as compact JSON."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def cut(text: str, most: int) -> str:
    """Return a text with at most so many characters; a cut one ends with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


_HEADER_CHARS, _SECTION_CHARS = 150, 3000
_MAX_LINES = 20
_SYMBOL = {
    Severity.CRITICAL: ":red_circle:",
    Severity.ERROR: ":red_circle:",
    Severity.WARNING: ":large_yellow_circle:",
    Severity.INFO: ":information_source:",
}
_OVER, _ACKNOWLEDGED = ":large_green_circle:", ":eyes:"
# The markup of Slack knows these three only: docs.slack.dev/messaging/formatting-message-text.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def slack(notification: Notification, receiver: Receiver) -> HttpRequest:
    """Return the request for one message."""
    title, lines = notification.title, notification.lines
    symbol = _ACKNOWLEDGED if notification.state is State.ACKNOWLEDGE else _SYMBOL[notification.severity]
    if notification.topic.action is Action.END:
        symbol = _OVER
    shown = [line.translate(_ESCAPES) for line in (lines or (title,))[:_MAX_LINES]]
    if len(lines) > _MAX_LINES:
        shown.append(f"and {len(lines) - _MAX_LINES} more")
    headline = title if lines else notification.alerts[-1].message.subject
    context = f"{notification.topic.kind.value} · {notification.severity.value} · {minute(notification.raised_at)} UTC"
    body = {
        # Notifications of the system, and clients without blocks, show this text.
        "text": cut(title.translate(_ESCAPES), _SECTION_CHARS),
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": cut(f"{symbol} {headline}", _HEADER_CHARS)}},
            {"type": "section", "text": {"type": "mrkdwn", "text": cut("\n".join(shown), _SECTION_CHARS)}},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": context.translate(_ESCAPES)}]},
        ],
    }
    return HttpRequest(url=receiver.url, body=encoded(body))


_SUMMARY_CHARS, _KEY_CHARS = 1024, 255
# An event may have 512 kB.
_MAX_DETAILS = 50


def pagerduty(notification: Notification, receiver: Receiver) -> HttpRequest:
    """Return the request for one event; only a trigger has a payload."""
    event: dict[str, object] = {
        "routing_key": receiver.key,
        "event_action": notification.state.value,
        "dedup_key": cut(notification.key, _KEY_CHARS),
    }
    if notification.state is State.TRIGGER:
        newest = notification.newest
        event["client"] = "Isochrone"
        event["payload"] = {
            "summary": cut(notification.title, _SUMMARY_CHARS),
            "source": notification.topic.shared or newest[-1].subject,
            "severity": notification.severity.value,
            "timestamp": rfc3339(notification.raised_at),
            "component": newest[-1].subject,
            "group": notification.topic.shared,
            "class": notification.topic.kind.value,
            "custom_details": {
                "alerts": [details_of(one) for one in newest[:_MAX_DETAILS]],
                "still_open": notification.still_open,
            },
        }
    return HttpRequest(url=receiver.url, body=encoded(event))


_MESSAGE_CHARS, _ALIAS_CHARS, _DESCRIPTION_CHARS, _DETAIL_CHARS, _TAG_CHARS = 130, 512, 15_000, 500, 50
_PRIORITY = {Severity.CRITICAL: "P1", Severity.ERROR: "P2", Severity.WARNING: "P3", Severity.INFO: "P5"}
_ACTION = {State.ACKNOWLEDGE: "acknowledge", State.RESOLVE: "close"}
_SOURCE = "isochrone"


def opsgenie(notification: Notification, receiver: Receiver) -> HttpRequest:
    """Return the request that creates, acknowledges or closes an alert."""
    alias = cut(notification.key, _ALIAS_CHARS)
    url = f"{receiver.url.rstrip('/')}/v2/alerts"
    text = "\n".join((notification.title, *notification.lines))
    if action := _ACTION.get(notification.state):
        url += f"/{quote(alias, safe='')}/{action}?identifierType=alias"
        body: dict[str, object] = {"source": _SOURCE, "note": cut(text, _DESCRIPTION_CHARS)}
    else:
        body = {
            "message": cut(notification.title, _MESSAGE_CHARS),
            "alias": alias,
            "description": cut(text, _DESCRIPTION_CHARS),
            "priority": _PRIORITY[notification.severity],
            "source": _SOURCE,
            "entity": notification.topic.shared or notification.newest[-1].subject,
            "tags": [cut(notification.topic.kind.value, _TAG_CHARS)],
            "details": {
                "raised_at": rfc3339(notification.raised_at),
                "subjects": cut(", ".join(one.subject for one in notification.newest), _DETAIL_CHARS),
            },
        }
    return HttpRequest(url=url, body=encoded(body), headers={"authorization": f"GenieKey {receiver.key}"})


def template(notification: Notification, receiver: Receiver) -> HttpRequest:
    """Return the request with the body and the headers of the receiver."""
    last = notification.alerts[-1].message
    values = {
        "id": notification.id,
        "key": notification.key,
        "state": notification.state.value,
        "kind": last.kind.value,
        "severity": notification.severity.value,
        "title": notification.title,
        "text": "\n".join(notification.lines or (notification.title,)),
        "subject": last.subject,
        "sentence": last.sentence,
        "raised_at": rfc3339(notification.raised_at),
        "count": len(notification.newest),
        "still_open": notification.still_open,
        "details": details_of(last),
        "alerts": [{"kind": one.kind.value, **details_of(one)} for one in notification.newest],
    }
    return HttpRequest(url=receiver.url, body=encoded(_filled(receiver.body, values)), headers=receiver.headers)


def _filled(part: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  # JSON
    if isinstance(part, dict):
        return {name: _filled(value, values) for name, value in part.items()}
    if isinstance(part, list):
        return [_filled(value, values) for value in part]
    if not isinstance(part, str):
        return part
    alone = part.removeprefix("$").removeprefix("{").removesuffix("}")
    if alone in values and part in (f"${alone}", f"${{{alone}}}"):
        return values[alone]
    texts = {name: value if isinstance(value, str) else encoded(value).decode() for name, value in values.items()}
    return Template(part).substitute(texts)


def standard(notification: Notification, receiver: Receiver, *, now_at: int) -> HttpRequest:
    """Return the request for one alert, of the type `isochrone.KIND`, or for several, of the type `isochrone.group`."""
    messages = [one.message for one in notification.alerts]
    if len(messages) == 1:
        kind, data = messages[0].kind.value, dict(details_of(messages[0]))
    else:
        kind = "group"
        data = {
            "id": notification.id,
            "subject": notification.topic.shared,
            "sentence": notification.title,
            "kind": notification.topic.kind.value,
            "alerts": [{"kind": one.kind.value, **details_of(one)} for one in messages],
        }
    if notification.is_repeated:
        data["repetition"] = notification.alerts[0].repeats
    body = encoded({"type": f"isochrone.{kind}", "timestamp": rfc3339(notification.raised_at), "data": data})
    headers = webhook_signature.headers(receiver.secret, message=notification.id, sent_s=now_at // SECOND_US, body=body)
    return HttpRequest(url=receiver.url, body=body, headers=headers)


def request_of(notification: Notification, receiver: Receiver, *, now_at: int) -> HttpRequest:
    """Return the request of a notification in the format of its receiver, sent at this instant."""
    if receiver.format is Format.STANDARD:
        return standard(notification, receiver, now_at=now_at)
    return _REQUEST_OF[receiver.format](notification, receiver)


_REQUEST_OF: Mapping[Format, Callable[[Notification, Receiver], HttpRequest]] = {
    Format.SLACK: slack,
    Format.PAGERDUTY: pagerduty,
    Format.OPSGENIE: opsgenie,
    Format.TEMPLATE: template,
}
