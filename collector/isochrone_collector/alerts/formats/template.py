"""Template: JSON of the operator, with placeholders.

The template is JSON before anything is inserted, and placeholders are replaced only within its strings, so that no
alert can change its structure. A string that is one placeholder becomes the value itself: a number, a list, an object.
`string.Template` suffices for that; a template language with loops and expressions would need a sandbox.
"""

from collections.abc import Mapping
from string import Template
from typing import Any

from isochrone_collector.alerts.formats.request import HttpRequest, encoded
from isochrone_collector.alerts.notification import Notification, details_of
from isochrone_collector.receivers import Receiver
from isochrone_wire.json_format import rfc3339


def request(notification: Notification, receiver: Receiver, *, now_at: int) -> HttpRequest:  # noqa: ARG001  # as all
    """Return the request with the body and the headers of the receiver."""
    body = encoded(_filled(receiver.body, _values(notification)))
    return HttpRequest(url=receiver.url, body=body, headers=receiver.headers)


def _values(notification: Notification) -> dict[str, Any]:
    last = notification.alerts[-1].message
    return {
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
