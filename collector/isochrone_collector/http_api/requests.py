"""Paths and their requests: each path is one `Endpoint`, from which its route, the parsing of its query string and its
part of the OpenAPI document follow.

The parameters are the options of the commands, by the same names. All functions raise `BadRequest`.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, partial
from inspect import signature
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.routing import Route

from isochrone_collector.analysis.time_series import MAX_POINTS
from isochrone_collector.errors import BadRequest
from isochrone_wire import durations
from isochrone_wire.answers import Metric, Selection, Window
from isochrone_wire.durations import MAX_INSTANT_AT
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.queries.windows import WindowError, parse_window
from isochrone_wire.text import same_name, shortened, unknown

Schema = dict[str, Any]
Values = Mapping[str, tuple[str, ...]]
"""The values of a query string by the name of the parameter."""

MIN_WAIT_US, MAX_WAIT_US = SECOND_US, 60 * SECOND_US
MILLISECOND_US = 1_000
JSON, LINES, EVENTS = "application/json", "application/x-ndjson", "text/event-stream"
_MAX_FIELDS = 500
_MAX_SHOWN = 200
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_DIGITS = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def one(values: Values, name: str) -> str:
    """Return the value of a parameter, empty if missing."""
    found = values.get(name, ())
    if len(found) > 1:
        raise BadRequest(f"{name} is given {len(found)} times; give it once")
    return found[0] if found else ""


def choice(values: Values, name: str, known: Collection[str]) -> str | None:
    """Return one of the `known` values, in any case and with `-` for `_`; `None` if missing."""
    text = one(values, name)
    found = same_name(text, known)
    if text and found is None:
        raise BadRequest(unknown(name, text, known))
    return found


def count(text: str, *, name: str, what: str = "a whole number", most: int = 2**63 - 1) -> int:
    """Parse a whole number from 0 to `most`."""
    if _DIGITS.fullmatch(text) is None or int(text) > most:
        raise BadRequest(f"{name}: {text[:40]!r} is not {what}")
    return int(text)


generation = partial(count, what="a generation (a whole number)")
"""Parse the number of a table as `count` does."""
microseconds = partial(count, what="an instant (microseconds since 1970)", most=MAX_INSTANT_AT)
"""Parse an instant in microseconds since the epoch as `count` does."""


def seconds_us(text: str, *, name: str) -> int:
    """Parse a number of seconds from 0.001 to a day, into microseconds."""
    found = round(SECOND_US * float(text)) if _NUMBER.fullmatch(text) else 0
    if not MILLISECOND_US <= found <= DAY_US:
        raise BadRequest(f"{name}: {text[:40]!r} is not a number of seconds from 0.001 to {DAY_US // SECOND_US}")
    return found


def number(text: str, *, name: str) -> float:
    """Parse a positive number."""
    if _NUMBER.fullmatch(text) is None or not float(text):
        raise BadRequest(f"{name}: {text[:40]!r} is not a positive number")
    return float(text)


def wait_us(text: str, *, name: str) -> int:
    """Parse the time to wait for a newer table, in microseconds."""
    try:
        wait = durations.parse_us(text)
    except ValueError as error:
        raise BadRequest(f"{name}: {error}") from error
    if not MIN_WAIT_US <= wait <= MAX_WAIT_US:
        raise BadRequest(f"{name}={text} is outside 1s to 60s")
    return wait


def instant(text: str, *, name: str) -> int:
    """Parse an RFC 3339 instant as microseconds since the epoch; a space stands for an unescaped `+`."""
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        at = (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRequest(
            f"{name}: {text[:40]!r} is not an instant with offset, such as 2026-11-21T08:00:00Z"
        ) from error
    if not 0 <= at <= MAX_INSTANT_AT:
        raise BadRequest(f"{name}: {text[:40]!r} is not between the years 1970 and 9999")
    return at


def parsed(parse: Callable[..., Any]) -> Callable[[Values, str], Any]:
    """Return the reader of a parameter whose text, if there is one, is parsed by one of the functions above."""
    return lambda values, name: parse(text, name=name) if (text := one(values, name)) else 0


def member(kind: type[StrEnum], default: StrEnum) -> Callable[[Values, str], Any]:
    """Return the reader of a parameter that names a member of `kind`."""
    return lambda values, name: kind(choice(values, name, list(map(str, kind))) or default)


def _reader(schema: Schema) -> Callable[[Values, str], Any]:
    """Return the reader of a parameter with this schema."""
    match schema:
        case {"type": "array", "items": {"enum": known}}:
            return lambda values, name: tuple(choice({name: (text,)}, name, known) for text in values.get(name, ()))
        case {"type": "array"}:
            return lambda values, name: values.get(name, ())
        case {"type": "boolean"}:
            return lambda values, name: choice(values, name, ("true", "false")) == "true"
        case {"type": "integer", "maximum": most}:
            return parsed(partial(count, what=f"a whole number from 0 to {most}", most=most))
        case {"type": "integer"}:
            return parsed(count)
        case {"type": "number"}:
            return parsed(number)
        case {"enum": known}:
            return lambda values, name: choice(values, name, known)
    return one


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter and the reader of its `argument`. One whose schema is an array may be repeated."""

    name: str
    schema: Schema
    description: str
    argument: str = ""
    read: Callable[[Values, str], Any] | None = None

    def value(self, values: Values) -> Any:  # noqa: ANN401  # of the type of the argument
        """Return the value of the argument."""
        return (self.read or _reader(self.schema))(values, self.name)


TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
INSTANT: Schema = {"type": "string", "format": "date-time"}
SEVERAL: Schema = {"type": "array", "items": TEXT}
FLAG: Schema = {"type": "boolean"}
FORMAT = Parameter("format", {"type": "string", "enum": ["json"]}, "Only json.")
TARGET = Parameter("target", SEVERAL, "Names or shell patterns; all if missing.")
REGION = Parameter("region", SEVERAL, "Regions; all if missing.")
ROUTE = Parameter("route", TEXT, "One route; all if missing.")
FILTER = Parameter("filter", TEXT, "Words that all hold, such as `ttft>500 outcome:timed_out region:eu-*`.", "matching")
WINDOW = (
    Parameter(
        "window",
        {"type": "string", "examples": ["24h", "7d", "today", "2026-11-01..2026-11-08"]},
        "As the commands' --window; 24h if missing.",
    ),
    Parameter("from", INSTANT, "Instead of window."),
    Parameter("until", INSTANT, "With from; now if missing."),
)
SELECTION = (TARGET, REGION, *WINDOW, FORMAT)
_SELECTING = frozenset(parameter.name for parameter in SELECTION)


def enum(values: Iterable[str]) -> Schema:
    """Return the schema of one of some texts."""
    return {"type": "string", "enum": list(map(str, values))}


METRIC = Parameter("metric", enum(Metric), "ttft if missing.", read=member(Metric, Metric.TTFT))


def limit(description: str) -> Parameter:
    """A limit on a latency in seconds, at most a day."""
    schema = {"type": "number", "minimum": 0.001, "maximum": DAY_US // SECOND_US}
    return Parameter("limit", schema, description, "limit_us", parsed(seconds_us))


def points(usual: int) -> Parameter:
    """The number of points of a series; `usual` is that of requests without it."""
    description = f"Maximum number of points of a series; {usual} if 0 or missing."
    return Parameter("points", {**COUNT, "maximum": MAX_POINTS}, description)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A path. Its `work` is a query function, or a method that gets the request. Its arguments are the parameters,
    those of the path, and a `selection` or a `window` if it takes one. The query string of a path without
    `parameters` is ignored. `answer` is the type of the answer or of its events, by default that which `work` returns.
    `request_headers`, the `headers` of the answer, `other` statuses and the `body` are for the OpenAPI document.
    """

    path: str
    summary: str
    work: Callable[..., Awaitable[Any]]
    parameters: tuple[Parameter, ...] | None = ()
    answer: Any = None
    method: str = "GET"
    media_type: str = JSON
    request_headers: Mapping[str, str] = field(default_factory=dict)
    headers: Schema = field(default_factory=dict)
    other: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    def arguments(self, request: Request, *, now_at: int) -> dict[str, Any]:
        """Return the arguments of `work` in a request. Raises `BadRequest`."""
        if self.parameters is None:
            return dict(request.path_params)
        values = parse(request.scope["query_string"], known=[parameter.name for parameter in self.parameters])
        if (text := one(values, FORMAT.name)) not in ("", "json"):
            raise BadRequest(f"{unknown('format', text, ['json'])}; `isochrone routes export` writes others")
        own = [parameter for parameter in self.parameters if parameter.name not in _SELECTING]
        found = {parameter.argument or parameter.name: parameter.value(values) for parameter in own}
        wanted = _wanted(self.work)
        if "selection" in wanted:
            targets, regions = values.get(TARGET.name, ()), values.get(REGION.name, ())
            found["selection"] = Selection(window=window(values, now_at=now_at), targets=targets, regions=regions)
        if "window" in wanted:
            found["window"] = window(values, now_at=now_at)
        return found | request.path_params


@cache
def _wanted(work: Callable[..., Any]) -> Collection[str]:
    return frozenset(signature(work).parameters)


def routes(endpoints: Iterable[Endpoint], owner: object, clock: Callable[[], int]) -> list[Route]:
    """Return the routes of paths whose `work` is a method of the class of `owner`."""

    def handler(endpoint: Endpoint) -> Callable[[Request], Awaitable[Any]]:
        async def handle(request: Request) -> Any:  # noqa: ANN401  # a response
            return await endpoint.work(owner, request, **endpoint.arguments(request, now_at=clock()))

        return handle

    return [Route(endpoint.path, handler(endpoint), methods=[endpoint.method]) for endpoint in endpoints]


def parse(query: bytes, *, known: Collection[str]) -> dict[str, tuple[str, ...]]:
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
    return values


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


def window(values: Values, *, now_at: int) -> Window:
    """Parse `window` as commands do, or `from=…&until=…` as RFC 3339; the last 24 hours by default."""
    begin, end, span = one(values, "from"), one(values, "until"), one(values, "window")
    if not begin and not end:
        try:
            return parse_window(span or "24h", now_at=now_at)
        except WindowError as error:
            raise BadRequest(shortened(str(error), _MAX_SHOWN), hint=error.hint) from error
    if span:
        raise BadRequest("window and from/until exclude each other")
    if not begin:
        raise BadRequest("until needs from, the beginning of the window")
    found = Window(from_at=instant(begin, name="from"), until_at=instant(end, name="until") if end else now_at)
    if found.from_at >= found.until_at:
        raise BadRequest("the window is empty: until must be after from")
    return found
