"""Templates: JSON with placeholders that no alert can break out of."""

import json
from dataclasses import replace
from typing import Any

from isochrone_collector.alerts import formats
from isochrone_collector.alerts.notifications import Notification, State
from isochrone_collector.receivers import PLACEHOLDERS, Format, Receiver
from testdata.alert_messages import AT, fails, pending


def filled(body: object, sentence: str = "fails") -> Any:
    alert = replace(fails("openai/a"), sentence=sentence)
    receiver = Receiver(name="t", format=Format.TEMPLATE, url="https://t.example/", body=body, headers={"x-key": "1"})
    one = Notification(key="k", state=State.TRIGGER, alerts=(pending(alert),), still_open=1)
    made = formats.template(one, receiver, now_at=AT)
    assert made.headers == {"x-key": "1"}
    return json.loads(made.body)


def test_placeholders_within_texts_and_alone() -> None:
    """Within a text a value is text; a text that is one placeholder becomes the value itself."""
    found = filled(
        {"t": "[$severity] ${title} $$1", "n": "$count", "d": "${details}", "deep": [{"x": "$state"}], "k": 7}
    )
    assert found["t"] == "[error] openai/a: fails $1"
    assert (found["n"], found["d"]["target"], found["deep"], found["k"]) == (1, "openai/a", [{"x": "trigger"}], 7)


def test_an_alert_cannot_change_the_structure() -> None:
    """Quotes, braces and dollar signs of an alert stay text."""
    evil = '", "admin": true, "x": "$key ${secret} {{7*7}}'
    assert filled({"t": "$sentence"}, evil) == {"t": evil}
    assert filled({"t": "a $sentence"}, evil) == {"t": f"a {evil}"}


def test_each_documented_placeholder_has_a_value() -> None:
    """All names that a template may contain can be filled."""
    assert None not in filled({name: f"${name}" for name in PLACEHOLDERS}).values()
    assert filled({"all": " ".join(f"${name}" for name in PLACEHOLDERS)})
