"""Receivers of alerts: their file, and what is refused without repeating a secret."""

from pathlib import Path

import pytest

from isochrone_collector import receivers, webhook_signature
from isochrone_collector.errors import SettingsError
from isochrone_collector.receivers import Format, Receiver
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
    """A file with a secret has mode 0600."""
    secret_file(tmp_path, 0o640)
    with pytest.raises(SettingsError, match="chmod 600"):
        read(tmp_path, ALL)


def test_plain_http_has_to_be_allowed(tmp_path: Path) -> None:
    """HTTP is for loopback, or where it is allowed."""
    text = "receivers: [{{name: a, format: template, url: '{}', body: {{}}, allow_http: {}}}]"
    for url, allowed in (("http://localhost:1/", "false"), ("http://[::1]/", "false"), ("http://h.example", "true")):
        assert read(tmp_path, text.format(url, allowed))
    with pytest.raises(SettingsError, match="allow_http"):
        read(tmp_path, text.format("http://h.example", "false"))
