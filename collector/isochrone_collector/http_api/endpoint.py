"""Descriptions of the paths that answer queries: their routes, their parsing and the OpenAPI document follow from them.

Pure. The parameters are the options of the commands, by the same names.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from isochrone_collector.errors import BadRequest
from isochrone_collector.http_api import query_parameters
from isochrone_collector.http_api.query_parameters import QueryParameters
from isochrone_collector.http_api.schemas import Schema
from isochrone_wire.answers import Selection, Window
from isochrone_wire.text import same_name, unknown

_FLAG = ("true", "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A query parameter. One whose schema is an array may be repeated."""

    name: str
    schema: Schema
    description: str


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
        return query_parameters.window(self.query, now_at=self.now_at)

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
        return query_parameters.count(self.query.one(name), name=name)

    def seconds_us(self, name: str) -> int:
        """Return a number of seconds as microseconds, 0 if missing."""
        return query_parameters.seconds_us(self.query.one(name), name=name)

    def number(self, name: str) -> float:
        """Return a positive number, 0 if missing."""
        return query_parameters.number(self.query.one(name), name=name)

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
        parameters = query_parameters.parse(query, known=[one.name for one in self.parameters])
        query_parameters.require_json(parameters.one("format"))
        return ParsedRequest(path=path, query=parameters, now_at=now_at)
