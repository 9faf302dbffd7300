"""Standard Webhooks 1.0.0: signed JSON."""

from isochrone_collector import webhook_signature
from isochrone_collector.alerts.formats.request import HttpRequest, encoded
from isochrone_collector.alerts.notification import Notification, details_of
from isochrone_collector.receivers import Receiver
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import SECOND_US


def request(notification: Notification, receiver: Receiver, *, now_at: int) -> HttpRequest:
    """Return the request for one alert, of the type `isochrone.KIND`, or for several, of the type `isochrone.group`."""
    body = encoded(_document(notification))
    headers = webhook_signature.headers(receiver.secret, message=notification.id, sent_s=now_at // SECOND_US, body=body)
    return HttpRequest(url=receiver.url, body=body, headers=headers)


def _document(notification: Notification) -> dict[str, object]:
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
    return {"type": f"isochrone.{kind}", "timestamp": rfc3339(notification.raised_at), "data": data}
