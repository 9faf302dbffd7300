"""Opsgenie: create, acknowledge and close by alias."""

import json

from isochrone_collector.alerts import formats
from isochrone_collector.alerts.notifications import Notification, State
from isochrone_collector.receivers import Format, Receiver
from testdata.alert_messages import AT, fails, pending, recovers

RECEIVER = Receiver(name="ops", format=Format.OPSGENIE, url="https://api.eu.opsgenie.com/", key="secret-key")


def test_create() -> None:
    """An alert has message, alias, priority and description within their limits, and the key is in a header."""
    alerts = (pending(fails(f"openai/{'x' * 400}", scope="all")),)
    made = formats.opsgenie(Notification(key="a/b", state=State.TRIGGER, alerts=alerts), RECEIVER, now_at=AT)
    assert made.url == "https://api.eu.opsgenie.com/v2/alerts"
    assert made.headers == {"authorization": "GenieKey secret-key"}
    assert "secret-key" not in repr(made)
    body = json.loads(made.body)
    assert (body["alias"], body["priority"], len(body["message"])) == ("a/b", "P1", 130)
    assert body["description"].endswith("elsewhere")
    assert body["entity"] == "openai"


def test_close_and_acknowledge() -> None:
    """The alias is in the path, escaped."""
    for state, word in ((State.RESOLVE, "close"), (State.ACKNOWLEDGE, "acknowledge")):
        one = Notification(key="a/b c", state=state, alerts=(pending(recovers("openai/a")),))
        made = formats.opsgenie(one, RECEIVER, now_at=AT)
        assert made.url == f"https://api.eu.opsgenie.com/v2/alerts/a%2Fb%20c/{word}?identifierType=alias"
        assert json.loads(made.body) == {"source": "isochrone", "note": "openai/a: is answered again"}
