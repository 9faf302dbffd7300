"""Receivers of alerts, and the signatures of webhooks."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isochrone_collector import receivers, webhook_signature
from isochrone_collector.errors import SettingsError
from isochrone_collector.receivers import Format, Receiver
from isochrone_collector.webhook_signature import Unverified
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import MINUTE_US, SECOND_US

HOOK = webhook_signature.format_secret(b"a secret of thirty-two bytes 123")
ENVIRONMENT = {"PD_KEY": "hidden-key", "SLACK_URL": "https://hooks.slack.example/T0/hidden-token", "HOOK": HOOK}
ALL = """
receivers:
  - {name: oncall, format: pagerduty, key: {env: PD_KEY}, repeat: 4h}
  - {name: chat, format: slack, url: {env: SLACK_URL}, kinds: [target_failing, drift], group: 30s}
  - {name: hook, format: standard, url: "https://h.example/x", secret: {file: hook.secret}, group: "0"}
  - {name: ops, format: opsgenie, url: "https://api.eu.opsgenie.com", key: {env: PD_KEY}}
  - name: tickets
    format: template
    url: http://127.0.0.1:9/
    headers: {authorization: {env: PD_KEY}}
    body: {title: "$title", n: "$count"}
"""


def read(tmp_path: Path, text: str) -> tuple[Receiver, ...]:
    file = tmp_path / "receivers.yaml"
    file.write_text(text)
    return receivers.read(file, ENVIRONMENT)


def secret_file(tmp_path: Path, mode: int = 0o600) -> None:
    (tmp_path / "hook.secret").write_text(HOOK + "\n")
    (tmp_path / "hook.secret").chmod(mode)


def test_each_format(tmp_path: Path) -> None:
    """A file with a receiver of each format; secrets come from the environment and from files, and are in no repr."""
    secret_file(tmp_path)
    oncall, chat, hook, ops, tickets = found = read(tmp_path, ALL)
    assert [one.format for one in found] == [
        Format.PAGERDUTY,
        Format.SLACK,
        Format.STANDARD,
        Format.OPSGENIE,
        Format.TEMPLATE,
    ]
    assert (oncall.url, oncall.key, oncall.repeat_us) == (
        "https://events.pagerduty.com/v2/enqueue",
        "hidden-key",
        240 * MINUTE_US,
    )
    assert (chat.kinds, chat.group_us) == (frozenset({AlertKind.TARGET_FAILING, AlertKind.DRIFT}), 30 * SECOND_US)
    assert (hook.secret, hook.group_us, hook.kinds) == (b"a secret of thirty-two bytes 123", 0, None)
    assert AlertKind.ROUTE_SWITCHED not in (ops.kinds or ())
    assert tickets.headers == {"authorization": "hidden-key"}
    assert tickets.body == {"title": "$title", "n": "$count"}
    assert not any(secret in repr(found) for secret in ("hidden", "thirty"))
    assert chat.shown == "https://hooks.slack.example"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "only key"),
        ("receivers: []", "only key"),
        ("receivers: [x", "not YAML"),
        ("receivers: [3]", "unknown format"),
        ("receivers: [{format: slack, url: {env: SLACK_URL}}]", "`name`"),
        ("receivers: [{name: a b, format: slack, url: {env: SLACK_URL}}]", "`name`"),
        ("receivers: [{name: a, format: discord}]", "discord"),
        ("receivers: [{name: a, format: slack, url: 'https://hooks.slack.example/hidden'}]", "is a secret"),
        ("receivers: [{name: a, format: slack, url: {env: NOT_SET}}]", "NOT_SET is not set"),
        ("receivers: [{name: a, format: slack, url: {file: none}}]", "cannot be read"),
        ("receivers: [{name: a, format: slack, url: {env: SLACK_URL}, key: {env: PD_KEY}}]", "key"),
        ("receivers: [{name: a, format: pagerduty, key: hidden}]", "is a secret"),
        ("receivers: [{name: a, format: pagerduty, key: {env: PD_KEY}, url: 'http://h.example/hidden'}]", "not https"),
        ("receivers: [{name: a, format: pagerduty, key: {env: PD_KEY}, url: 'ftp://h/hidden'}]", "not an http"),
        ("receivers: [{name: a, format: pagerduty, key: {env: PD_KEY}, repeat: 1s}]", "outside"),
        ("receivers: [{name: a, format: pagerduty, key: {env: PD_KEY}, repeat: often}]", "often"),
        ("receivers: [{name: a, format: pagerduty, key: {env: PD_KEY}, kinds: [dirft]}]", "drift"),
        ("receivers: [{name: a, format: standard, url: 'https://h', secret: {env: PD_KEY}}]", "secret"),
        ("receivers: [{name: a, format: template, url: 'https://h'}]", "`body`"),
        ("receivers: [{name: a, format: template, url: 'https://h', body: '{'}]", "not JSON"),
        ("receivers: [{name: a, format: template, url: 'https://h', body: {x: $ttile}}]", "title"),
        ("receivers: [{name: a, format: template, url: 'https://h', body: {x: 5 $}}]", "malformed"),
        (f"receivers: [{', '.join(2 * ['{name: a, format: slack, url: {env: SLACK_URL}}'])}]", "two receivers"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """The message states what is wrong, and repeats no address and no secret."""
    with pytest.raises(SettingsError) as refused:
        read(tmp_path, text)
    assert reason in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """A file with a secret has mode 0600; plain HTTP is for loopback, or where it is allowed."""
    secret_file(tmp_path, 0o640)
    with pytest.raises(SettingsError, match="chmod 600"):
        read(tmp_path, ALL)
    text = "receivers: [{{name: a, format: template, url: '{}', body: {{}}, allow_http: {}}}]"
    for url, allowed in (("http://localhost:1/", "false"), ("http://[::1]/", "false"), ("http://h.example", "true")):
        assert read(tmp_path, text.format(url, allowed))
    with pytest.raises(SettingsError, match="allow_http"):
        read(tmp_path, text.format("http://h.example", "false"))


SECRET = b"a secret of thirty-two bytes 123"
BODY = b'{"type":"isochrone.test"}'
SENT_S = 1_674_087_231
GOOD = webhook_signature.headers(SECRET, message="alert_1", sent_s=SENT_S, body=BODY)


def test_the_example_of_the_reference_library() -> None:
    """The signature of the specification's own tests comes out, also beside others, and returns the id."""
    secret = webhook_signature.parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = webhook_signature.headers(
        secret, message="msg_p5jXN8AQM9LWM0D4loKWxJek", sent_s=1_614_265_330, body=b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
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
    """Another body, another secret and an old message are refused; a secret is `whsec_` and base64."""
    for secret, body, now_s in (
        (SECRET, BODY + b" ", SENT_S),
        (SECRET[::-1], BODY, SENT_S),
        (SECRET, BODY, SENT_S + 301),
    ):
        with pytest.raises(Unverified):
            webhook_signature.verify(secret, GOOD, body, now_s=now_s)
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
