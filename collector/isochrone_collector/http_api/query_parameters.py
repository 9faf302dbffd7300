"""Parsing of query strings and paths. Pure; all functions raise `BadRequest`."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

from isochrone_collector.errors import BadRequest
from isochrone_wire import durations
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.queries.windows import WindowError, parse_window
from isochrone_wire.text import shortened, unknown

MIN_WAIT_US, MAX_WAIT_US = SECOND_US, 60 * SECOND_US
USUAL_WINDOW = "24h"
MILLISECOND_US = 1_000

_MAX_COUNT = 2**63 - 1
_MAX_FIELDS = 500
_MAX_SHOWN = 200
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_DIGITS = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QueryParameters:
    """The parameters of a query string, by name."""

    values: dict[str, tuple[str, ...]]

    def one(self, name: str) -> str:
        """Return the value of a parameter, empty if missing. Raises `BadRequest` if it is repeated."""
        values = self.values.get(name, ())
        if len(values) > 1:
            raise BadRequest(f"{name} is given {len(values)} times; give it once")
        return values[0] if values else ""

    def all(self, name: str) -> tuple[str, ...]:
        """Return all values of a parameter."""
        return self.values.get(name, ())


def parse(query: bytes, *, known: Collection[str]) -> QueryParameters:
    """Parse a query string. Raises `BadRequest` if it is not UTF-8, too long, or has unknown parameters."""
    require_readable(query)
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise BadRequest(f"the query has more than {_MAX_FIELDS} parameters, or is not ASCII") from error
    values: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        if name not in known:
            raise BadRequest(unknown("parameter", name, known))
        values[name] = (*values.get(name, ()), value)
    return QueryParameters(values)


def require_readable(escaped: bytes) -> None:
    """Check the escapes of a query or path. Raises `BadRequest` unless it is UTF-8 without control characters."""
    if _BROKEN_ESCAPE.search(escaped):
        raise BadRequest("a % is not followed by two hexadecimal digits")
    try:
        text = re.sub(rb"%(..)", lambda match: bytes.fromhex(match[1].decode()), escaped).decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the percent-encoded text is not UTF-8") from error
    if not text.isprintable():
        raise BadRequest("the percent-encoded text has control characters")


def generation(text: str, *, name: str) -> int:
    """Parse a generation, 0 if empty."""
    return count(text, name=name, what="a generation (a whole number)")


def count(text: str, *, name: str, what: str = "a whole number") -> int:
    """Parse a whole number from 0 to 2^63 - 1, 0 if empty."""
    if not text:
        return 0
    if _DIGITS.fullmatch(text) is None or int(text) > _MAX_COUNT:
        raise BadRequest(f"{name}: {text[:40]!r} is not {what}")
    return int(text)


def seconds_us(text: str, *, name: str) -> int:
    """Parse a number of seconds from 0.001 to a day, into microseconds; 0 if empty."""
    if not text:
        return 0
    found = round(SECOND_US * float(text)) if _NUMBER.fullmatch(text) else 0
    if not MILLISECOND_US <= found <= DAY_US:
        raise BadRequest(f"{name}: {text[:40]!r} is not a number of seconds from 0.001 to {DAY_US // SECOND_US}")
    return found


def number(text: str, *, name: str) -> float:
    """Parse a positive number, 0 if empty."""
    if text and (_NUMBER.fullmatch(text) is None or not float(text)):
        raise BadRequest(f"{name}: {text[:40]!r} is not a positive number")
    return float(text or 0)


def wait_us(text: str) -> int:
    """Parse the time to wait for a newer table, in microseconds; 0 if empty."""
    if not text:
        return 0
    try:
        wait = durations.parse_us(text)
    except ValueError as error:
        raise BadRequest(f"wait: {error}") from error
    if not MIN_WAIT_US <= wait <= MAX_WAIT_US:
        raise BadRequest(f"wait={text} is outside 1s to 60s")
    return wait


def require_json(text: str) -> None:
    """Check that the format is JSON, the only one over HTTP. Raises `BadRequest`."""
    if text not in ("", "json"):
        raise BadRequest(f"{unknown('format', text, ['json'])}; `isochrone routes export` writes others")


def window(parameters: QueryParameters, *, now_at: int) -> Window:
    """Parse `window` as commands do, or `from=…&until=…` as RFC 3339; the last 24 hours by default."""
    begin, end, span = parameters.one("from"), parameters.one("until"), parameters.one("window")
    if begin or end:
        if span:
            raise BadRequest("window and from/until exclude each other")
        return _between(begin, end, now_at)
    try:
        return parse_window(span or USUAL_WINDOW, now_at=now_at)
    except WindowError as error:
        raise BadRequest(shortened(str(error), _MAX_SHOWN), hint=error.hint) from error


def _between(begin: str, end: str, now_at: int) -> Window:
    if not begin:
        raise BadRequest("until needs from, the beginning of the window")
    found = Window(from_at=instant("from", begin), until_at=instant("until", end) if end else now_at)
    if found.from_at >= found.until_at:
        raise BadRequest("the window ends before it begins")
    return found


def instant(name: str, text: str) -> int:
    """Parse an RFC 3339 instant as microseconds since the epoch, 0 if empty; a space stands for a `+` that was not
    escaped.
    """
    if not text:
        return 0
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        since = moment - _EPOCH
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRequest(
            f"{name}: {text[:40]!r} is not an instant with offset, such as 2026-11-21T08:00:00Z"
        ) from error
    return since // timedelta(microseconds=1)
