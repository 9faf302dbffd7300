"""Requests: the parsing of query strings and paths, and descriptions of the paths of queries, from which their routes,
their parsing and the OpenAPI document follow.

Pure; all functions raise `BadRequest`. The parameters are the options of the commands, by the same names.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

from isochrone_collector.analysis.time_series import MAX_POINTS
from isochrone_collector.errors import BadRequest
from isochrone_wire import durations
from isochrone_wire.answers import Metric, Selection, Window
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.queries.windows import WindowError, parse_window
from isochrone_wire.text import same_name, shortened, unknown

Schema = dict[str, Any]

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
_FLAG = ("true", "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A query parameter. One whose schema is an array may be repeated."""

    name: str
    schema: Schema
    description: str


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """The parameters of a request: those of the path and of the query, and the instant of the request in microseconds
    since the epoch. All methods raise `BadRequest`.
    """

    path: Mapping[str, str] = field(default_factory=dict)
    query: QueryParameters
    now_at: int

    @property
    def window(self) -> Window:
        """The window: `window`, or `from` and `until`."""
        return window(self.query, now_at=self.now_at)

    @property
    def selection(self) -> Selection:
        """The window, with the targets and regions."""
        return Selection(window=self.window, targets=self.query.all("target"), regions=self.query.all("region"))

    def text(self, name: str) -> str:
        """Return a text, empty if missing."""
        return self.query.one(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return all values of a parameter."""
        return self.query.all(name)

    def count(self, name: str) -> int:
        """Return a whole number, 0 if missing."""
        return count(self.query.one(name), name=name)

    def seconds_us(self, name: str) -> int:
        """Return a number of seconds as microseconds, 0 if missing."""
        return seconds_us(self.query.one(name), name=name)

    def number(self, name: str) -> float:
        """Return a positive number, 0 if missing."""
        return number(self.query.one(name), name=name)

    def flag(self, name: str) -> bool:
        """Return a truth value, false if missing."""
        return self.choice(name, _FLAG) == "true"

    def choice(self, name: str, known: Collection[str]) -> str | None:
        """Return one of the `known` values, in any case and with `-` for `_`; `None` if missing."""
        text = self.query.one(name)
        found = same_name(text, known)
        if text and found is None:
            raise BadRequest(unknown(name, text, known))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A path that answers a query. `query` takes the query context and the request, and returns an `answer`."""

    path: str
    summary: str
    answer: type
    query: Callable[[Any, ParsedRequest], Awaitable[object]]
    parameters: tuple[Parameter, ...] = ()

    def parse(self, query: bytes, *, path: Mapping[str, str], now_at: int) -> ParsedRequest:
        """Parse the query string of a request. Raises `BadRequest`."""
        parameters = parse(query, known=[one.name for one in self.parameters])
        require_json(parameters.one("format"))
        return ParsedRequest(path=path, query=parameters, now_at=now_at)


TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
INSTANT: Schema = {"type": "string", "format": "date-time"}
SEVERAL: Schema = {"type": "array", "items": TEXT}
FORMAT = Parameter(name="format", schema={"type": "string", "enum": ["json"]}, description="Only json.")
TARGET = Parameter(name="target", schema=SEVERAL, description="Names or shell patterns; all if missing.")
REGION = Parameter(name="region", schema=SEVERAL, description="Regions; all if missing.")

METRIC = Parameter(
    name="metric",
    schema={"type": "string", "enum": [metric.value for metric in Metric]},
    description="ttft if missing.",
)

WINDOW = (
    Parameter(
        name="window",
        schema={"type": "string", "examples": ["24h", "7d", "today", "2026-11-01..2026-11-08"]},
        description="As the commands' --window; 24h if missing.",
    ),
    Parameter(name="from", schema=INSTANT, description="Instead of window."),
    Parameter(name="until", schema=INSTANT, description="With from; now if missing."),
)

SELECTION = (TARGET, REGION, *WINDOW, FORMAT)
LINES = "application/x-ndjson"

EXPORT = (
    Parameter(
        name="newest",
        schema={**COUNT, "maximum": 10_000},
        description="So many of the newest samples, newest first; all, oldest round first, if 0 or missing.",
    ),
    Parameter(name="after", schema=TEXT, description="Continue after the sample with this id; not with newest."),
    *SELECTION,
)

WATCH = (
    Parameter(name="since", schema=INSTANT, description="Samples received from this instant on; now if missing."),
    TARGET,
    REGION,
)


def limit(description: str) -> Parameter:
    """A limit on a latency in seconds, at most a day."""
    return Parameter(
        name="limit",
        schema={"type": "number", "minimum": 0.001, "maximum": DAY_US // SECOND_US},
        description=description,
    )


def points(usual: int) -> Parameter:
    """The number of points of a series; `usual` is that of requests without it."""
    return Parameter(
        name="points",
        schema={**COUNT, "maximum": MAX_POINTS},
        description=f"Maximum number of points of a series; {usual} if 0 or missing.",
    )


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
        raise BadRequest("the window is empty: until must be after from")
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
