"""Slack: the JSON of an incoming webhook, with blocks.

The limits of Block Kit: 150 characters in a header, 3000 in a section (docs.slack.dev/reference/block-kit/blocks).
"""

from isochrone_collector.alerts.formats.request import HttpRequest, cut, encoded
from isochrone_collector.alerts.notification import Notification, State
from isochrone_collector.alerts.topic import Action, Severity
from isochrone_collector.receivers import Receiver
from isochrone_wire.json_format import minute

_HEADER_CHARS, _SECTION_CHARS = 150, 3000
_MAX_LINES = 20
_SYMBOL = {
    Severity.CRITICAL: ":red_circle:",
    Severity.ERROR: ":red_circle:",
    Severity.WARNING: ":large_yellow_circle:",
    Severity.INFO: ":information_source:",
}
_OVER, _ACKNOWLEDGED = ":large_green_circle:", ":eyes:"
# The markup of Slack knows these three only: docs.slack.dev/messaging/formatting-message-text.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def request(notification: Notification, receiver: Receiver, *, now_at: int) -> HttpRequest:  # noqa: ARG001  # as all
    """Return the request for one message."""
    symbol = _symbol(notification)
    title = notification.title
    lines = notification.lines
    shown = [_escaped(line) for line in (lines or (title,))[:_MAX_LINES]]
    if len(lines) > _MAX_LINES:
        shown.append(f"and {len(lines) - _MAX_LINES} more")
    headline = title if lines else notification.alerts[-1].message.subject
    context = f"{notification.topic.kind.value} · {notification.severity.value} · {minute(notification.raised_at)} UTC"
    body = {
        # Notifications of the system, and clients without blocks, show this text.
        "text": cut(_escaped(title), _SECTION_CHARS),
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": cut(f"{symbol} {headline}", _HEADER_CHARS)}},
            {"type": "section", "text": {"type": "mrkdwn", "text": cut("\n".join(shown), _SECTION_CHARS)}},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": _escaped(context)}]},
        ],
    }
    return HttpRequest(url=receiver.url, body=encoded(body))


def _symbol(notification: Notification) -> str:
    if notification.topic.action is Action.END:
        return _OVER
    return _ACKNOWLEDGED if notification.state is State.ACKNOWLEDGE else _SYMBOL[notification.severity]


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)
