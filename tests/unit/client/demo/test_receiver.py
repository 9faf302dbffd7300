"""The webhook of the demo."""

import json

import httpx

from isochrone_client.demo.receiver import AlertReceiver


def body(alert: str, kind: str, sentence: str = "fails from us since 2026-11-21 00:10 UTC: 3 timed_out") -> bytes:
    data = {"id": alert, "subject": "p/m", "sentence": sentence}
    return json.dumps({"type": f"isochrone.{kind}", "timestamp": "2026-11-21T00:12:00Z", "data": data}).encode()


def test_it_counts_what_arrives() -> None:
    """Each alert is returned once, as a line without what the list of incidents has, and repetitions are counted."""
    with AlertReceiver() as receiver, httpx.Client(base_url=receiver.url, trust_env=False) as client:
        assert client.post("", content=body("alert_1", "target_failing")).is_success
        client.post("", content=body("alert_2", "route_switched", "switches to q"))
        [failing, switched] = receiver.new()
        assert str(failing) == "alert target_failing: p/m fails from us"
        assert [one.is_about_an_incident for one in (failing, switched)] == [True, False]
        assert receiver.count() == "2 alerts arrived at the receiver, 1 of them about incidents: each once"
        client.post("", content=body("alert_1", "target_failing"))
        assert [one.id for one in receiver.new()] == ["alert_1"]
        assert receiver.new() == ()
        assert receiver.count().endswith("1 of them about incidents: 1 of them more than once")
