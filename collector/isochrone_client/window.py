"""Time ranges as people write them.

15m  24h  7d  2w                      the last so many seconds (s), minutes, hours, days, weeks
2026-11-01..                          since then
2026-11-01..2026-11-02                from then until then, the end not included: the whole 1st of November
2026-11-01T08:30..2026-11-01T09:00Z   an instant; UTC unless it says otherwise
"""

import re
from datetime import UTC, datetime, timedelta

from isochrone_client.errors import WindowError
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMS = "write 15m, 24h, 7d, 2026-11-01.. or 2026-11-01..2026-11-02; instants are UTC unless they say otherwise"
_SPAN = re.compile(r"(?P<count>\d{1,9})\s*(?P<unit>[smhdw])")
_UNIT_US = {"s": SECOND_US, "m": MINUTE_US, "h": 60 * MINUTE_US, "d": DAY_US, "w": 7 * DAY_US}


def parse_window(text: str, *, now_at: int) -> Window:
    """The window that `text` means at the instant `now_at` (microseconds since the epoch). Raises `WindowError`."""
    begin, dots, end = text.strip().partition("..")
    if not dots:
        return Window(from_at=max(0, now_at - _span_us(begin)), until_at=now_at)
    window = Window(from_at=_instant_at(begin), until_at=_instant_at(end) if end.strip() else now_at)
    if window.from_at >= window.until_at:
        raise WindowError(f"the window {text!r} ends before it begins", hint=_FORMS)
    return window


def _span_us(text: str) -> int:
    match = _SPAN.fullmatch(text)
    if match is None or int(match["count"]) == 0:
        raise WindowError(f"{text!r} is not a time range", hint=_FORMS)
    return int(match["count"]) * _UNIT_US[match["unit"]]


def _instant_at(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise WindowError(f"{text!r} is not a date or an instant", hint=_FORMS) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)
