"""Standard Webhooks: the documented JSON, signed."""

import json

from isochrone_collector import webhook_signature
from isochrone_collector.alerts import formats
from isochrone_collector.alerts.message import of_absence
from isochrone_collector.alerts.notifications import Notification, State
from isochrone_collector.receivers import Format, Receiver
from isochrone_wire.model import MINUTE_US, SECOND_US
from testdata.alert_messages import AT, fails, pending

SECRET = b"a secret of thirty-two bytes 123"
RECEIVER = Receiver(name="hook", format=Format.STANDARD, url="https://h.example/x", secret=SECRET)


def test_the_body_that_a_receiver_gets() -> None:
    """The documented JSON: a type, when it was raised, and the data with the details."""
    alert = pending(of_absence("ohio-1", "us-east-2", last_seen_at=AT - 9 * MINUTE_US, raised_at=AT))
    one = Notification(key="k", state=State.TRIGGER, alerts=(alert,))
    made = formats.standard(one, RECEIVER, now_at=AT)
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
    body = json.loads(formats.standard(group, RECEIVER, now_at=AT).body)
    assert body["type"] == "isochrone.group"
    assert [one["target"] for one in body["data"]["alerts"]] == ["openai/0", "openai/1"]
    assert [body["data"][name] for name in ("kind", "subject", "repetition")] == ["target_failing", "openai", 3]
