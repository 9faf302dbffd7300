"""Signatures of webhooks, as specified by Standard Webhooks."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isochrone_collector import webhook_signature
from isochrone_collector.webhook_signature import Unverified

SECRET = b"a secret of thirty-two bytes 123"
BODY = b'{"type":"isochrone.test"}'
SENT_S = 1_674_087_231
GOOD = webhook_signature.headers(SECRET, message="alert_1", sent_s=SENT_S, body=BODY)


def test_the_example_of_the_reference_library() -> None:
    """The signature of the specification's own test suite comes out exactly."""
    secret = webhook_signature.parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = webhook_signature.headers(
        secret, message="msg_p5jXN8AQM9LWM0D4loKWxJek", sent_s=1_614_265_330, body=b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_signed_message_verifies() -> None:
    """`verify` returns the id, also beside signatures of other secrets and versions."""
    assert webhook_signature.verify(SECRET, GOOD, BODY, now_s=SENT_S + 299) == "alert_1"
    many = GOOD | {"webhook-signature": f"v1a,abc v1,AAAA {GOOD['webhook-signature']}"}
    assert webhook_signature.verify(SECRET, many, BODY, now_s=SENT_S) == "alert_1"


Change = Callable[[dict[str, str]], dict[str, str]]


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told | {"webhook-id": "alert_2"},
        lambda told: told | {"webhook-timestamp": str(SENT_S + 1)},
        lambda told: told | {"webhook-timestamp": "soon"},
        lambda told: told | {"webhook-signature": "v1,"},
        lambda told: told | {"webhook-signature": ""},
        lambda told: told | {"webhook-signature": told["webhook-signature"].replace("v1,", "v2,")},
        lambda told: {name: value for name, value in told.items() if name != "webhook-id"},
    ],
)
def test_a_changed_message_does_not_verify(change: Change) -> None:
    """No header can be changed or left out."""
    with pytest.raises(Unverified):
        webhook_signature.verify(SECRET, change(GOOD), BODY, now_s=SENT_S)


def test_body_secret_and_age_are_verified() -> None:
    """Another body, another secret and an old message are refused."""
    for secret, body, now_s in (
        (SECRET, BODY + b" ", SENT_S),
        (SECRET[::-1], BODY, SENT_S),
        (SECRET, BODY, SENT_S + 301),
    ):
        with pytest.raises(Unverified):
            webhook_signature.verify(secret, GOOD, body, now_s=now_s)


def test_a_secret_survives_formatting_and_parsing() -> None:
    """The text form is `whsec_` and base64; the newline of a file does not matter."""
    assert webhook_signature.parse_secret(webhook_signature.format_secret(SECRET) + "\n") == SECRET


@pytest.mark.parametrize(
    "text", ["", "hunter2", "whsec_", "whsec_c2hvcnQ=", "whsec_not base64!", webhook_signature.format_secret(b"x" * 65)]
)
def test_a_bad_secret_is_refused_and_not_repeated(text: str) -> None:
    """A malformed secret is an error that does not quote it."""
    with pytest.raises(ValueError, match="secret") as refused:
        webhook_signature.parse_secret(text)
    quoted = text.removeprefix("whsec_")
    assert not quoted or quoted not in str(refused.value)


def test_the_documented_lines_verify() -> None:
    """The lines of docs/alerts.md accept a valid message and reject a changed one."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "alerts.md").read_text()
    lines: dict[str, Any] = {}
    exec(text.partition("```python\n")[2].partition("```")[0], lines)
    told = webhook_signature.headers(SECRET, message="alert_1", sent_s=int(time.time()), body=BODY)
    assert lines["verify"](webhook_signature.format_secret(SECRET), told, BODY)
    assert not lines["verify"](webhook_signature.format_secret(SECRET), told, BODY + b" ")
