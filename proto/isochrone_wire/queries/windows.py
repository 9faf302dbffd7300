"""Time ranges as people write them, of `--window` and of the HTTP interface, all in UTC.

90s  15m  24h  7d  2w  1h30m  last 3 days    a duration up to now
today  yesterday  this week  last month      days start at 00:00, weeks on Monday; a current one ends now
2026-11-01  2026-11  2026-W45                the whole day, month or week
2026-11-01..  09:00..                        from an instant to now; a time without a date is today's
2026-11-01..2026-11-08                       from start to end, the end excluded: seven whole days
2026-11-01T12:00..14:00                      an end without a date is on the day of the start
2026-11-01T08:30+08:00..now                  an instant is UTC unless it has an offset
"""

import re
from collections.abc import Callable, Mapping
from datetime import MAXYEAR, UTC, datetime, time, timedelta

from isochrone_wire.answers import Window
from isochrone_wire.durations import DAY_US, MINUTE_US, SECOND_US
from isochrone_wire.errors import IsochroneError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXAMPLES = "24h, 7d, today, last week, 2026-11-01, 2026-11-01.., 2026-11-01..2026-11-08 or 2026-11-01T12:00..14:00"
_FORMS = f"write {EXAMPLES}; in UTC, the end excluded"
_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_WEEK = timedelta(weeks=1)
_DECEMBER = 12

_PIECE = re.compile(
    r"(\d{1,9})\s*(seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d|weeks?|w)(?![a-z])(?:\s*,)?\s*|(?s:.)"
)
_UNIT_US = {"s": SECOND_US, "m": MINUTE_US, "h": 60 * MINUTE_US, "d": DAY_US, "w": 7 * DAY_US}


class WindowError(IsochroneError):
    """A time range that cannot be read. Act: the reader, by writing another one."""

    exit_code = 2


# Whole days: the start, and the end, which is excluded.
_DateRange = tuple[datetime, datetime]


def parse_window(text: str, *, now_at: int) -> Window:
    """Parse the window `text` as of the instant `now_at` (microseconds since the epoch). Raises `WindowError`."""
    now = EPOCH + timedelta(microseconds=now_at)
    begin, dots, end = (part.strip() for part in text.partition(".."))
    try:
        if dots:
            since = _instant(begin, now)
            window = _window(since, now if end in ("", "now") else _instant(end, now, day=since))
        else:
            window = _period(begin, now) or _span(begin, now_at)
    except OverflowError as error:
        raise WindowError(f"the window {text!r} is outside the calendar", hint=_FORMS) from error
    if window.from_at >= window.until_at:
        problem = "begins in the future" if window.until_at == now_at else "ends before it begins"
        raise WindowError(f"the window {text!r} {problem}", hint=_FORMS)
    return window


def _period(text: str, now: datetime) -> Window | None:
    """The window of a word or a date, which ends now if it is the current one; `None` for any other text."""
    dates = _date_range(text, now)
    if dates is None:
        return None
    begin, end = dates
    return _window(begin, min(end, now) if begin <= now else end)


def _date_range(text: str, now: datetime) -> _DateRange | None:
    word = " ".join(text.lower().split())
    if word in _WORDS:
        return _WORDS[word](now.replace(hour=0, minute=0, second=0, microsecond=0))
    return next((whole(text) for form, whole in _DATE_FORMS.items() if re.fullmatch(form, text)), None)


def _span(text: str, now_at: int) -> Window:
    """The window of a duration up to now: every piece of the text is a count with its unit."""
    pieces = [(match[1], match[2]) for match in _PIECE.finditer(text.lower().removeprefix("last "))]
    if not pieces or any(unit is None for _, unit in pieces):
        raise WindowError(_syntax_error(text), hint=_FORMS)
    us = sum(int(count) * _UNIT_US[unit[0]] for count, unit in pieces)
    if not us:
        raise WindowError(f"the window {text!r} is empty", hint=_FORMS)
    return Window(from_at=max(0, now_at - us), until_at=now_at)


def _syntax_error(text: str) -> str:
    if re.fullmatch(r"\d+", text):
        return f"{text!r} has no unit: add s, m (minutes), h, d or w"
    if _parse_instant(text) is not None:
        return f"{text!r} is an instant, not a range: append .. for the range from it to now"
    return f"{text!r} is not a time range"


def _instant(text: str, now: datetime, *, day: datetime | None = None) -> datetime:
    """The start of a word or a date, an instant, or a time on `day` (default: today)."""
    dates = _date_range(text, now)
    if dates is not None:
        return dates[0]
    moment = _parse_instant(text) or _parse_time(text, day or now)
    if moment is None:
        raise WindowError(f"{text!r} is not a date or an instant" if text else "the window has no start", hint=_FORMS)
    return moment


def _parse_instant(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _parse_time(text: str, day: datetime) -> datetime | None:
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        return None
    return datetime.combine(day.date(), clock, tzinfo=clock.tzinfo or day.tzinfo)


def _window(begin: datetime, end: datetime) -> Window:
    if begin < EPOCH:
        raise WindowError("the window starts before 1970", hint=_FORMS)
    return Window(from_at=(begin - EPOCH) // _MICROSECOND, until_at=(end - EPOCH) // _MICROSECOND)


def _midnight(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as error:
        raise WindowError(f"{text} does not exist in the calendar", hint=_FORMS) from error


def _month(first: datetime) -> _DateRange:
    year, month = divmod(first.year * _DECEMBER + first.month, _DECEMBER)
    if year > MAXYEAR:
        raise OverflowError
    return first, first.replace(year=year, month=month + 1)


def _week(day: datetime) -> _DateRange:
    monday = day - day.weekday() * _DAY
    return monday, monday + _WEEK


# Functions from midnight of a day to the range that a word means on that day.
_WORDS: dict[str, Callable[[datetime], _DateRange]] = {
    "today": lambda day: (day, day + _DAY),
    "yesterday": lambda day: (day - _DAY, day),
    "this week": _week,
    "last week": lambda day: _week(day - _WEEK),
    "this month": lambda day: _month(day.replace(day=1)),
    "last month": lambda day: _month((day.replace(day=1) - _DAY).replace(day=1)),
}
_DATE_FORMS: Mapping[str, Callable[[str], _DateRange]] = {
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}": lambda text: (_midnight(text), _midnight(text) + _DAY),
    r"[0-9]{4}-[0-9]{2}": lambda text: _month(_midnight(f"{text}-01")),
    r"[0-9]{4}-W[0-9]{2}": lambda text: _week(_midnight(text)),
}
