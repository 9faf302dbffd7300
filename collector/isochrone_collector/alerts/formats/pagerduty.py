"""PagerDuty: Events API v2 (developer.pagerduty.com/docs/events-api-v2/trigger-events)."""

from isochrone_collector.alerts.formats.request import HttpRequest, cut, encoded
from isochrone_collector.alerts.notification import Notification, State, details_of
from isochrone_collector.receivers import Receiver
from isochrone_wire.json_format import rfc3339

_SUMMARY_CHARS, _KEY_CHARS = 1024, 255
# An event may have 512 kB.
_MAX_DETAILS = 50


def request(notification: Notification, receiver: Receiver, *, now_at: int) -> HttpRequest:  # noqa: ARG001  # as all
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
