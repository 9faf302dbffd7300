"""Opsgenie: Alert API (docs.opsgenie.com/docs/alert-api): create, acknowledge and close by alias."""

from urllib.parse import quote

from isochrone_collector.alerts.formats.request import HttpRequest, cut, encoded
from isochrone_collector.alerts.notification import Notification, State
from isochrone_collector.alerts.topic import Severity
from isochrone_collector.receivers import Receiver
from isochrone_wire.json_format import rfc3339

_MESSAGE_CHARS, _ALIAS_CHARS, _DESCRIPTION_CHARS, _DETAIL_CHARS, _TAG_CHARS = 130, 512, 15_000, 500, 50
_PRIORITY = {Severity.CRITICAL: "P1", Severity.ERROR: "P2", Severity.WARNING: "P3", Severity.INFO: "P5"}
_ACTION = {State.ACKNOWLEDGE: "acknowledge", State.RESOLVE: "close"}
_SOURCE = "isochrone"


def request(notification: Notification, receiver: Receiver, *, now_at: int) -> HttpRequest:  # noqa: ARG001  # as all
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
