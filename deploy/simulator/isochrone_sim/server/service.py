"""What is served where: a request and an instant give a timeline, and what the truth should remember of it.

Pure but for the allowances, which it counts; instants are handed in.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from isochrone_sim.dialects import DEFAULT_DIALECT, DIALECTS, Dialect, Facts, catalogue
from isochrone_sim.dialects.base import plain
from isochrone_sim.errors import RequestRefused
from isochrone_sim.exchange.allowance import Allowances
from isochrone_sim.exchange.refusal import (
    throttled,
    unknown_model,
    unknown_route,
    unsupported_budget,
    unsupported_effort,
    unsupported_temperature,
    wrong_key,
)
from isochrone_sim.exchange.request_parameters import Asked
from isochrone_sim.exchange.requests import Request
from isochrone_sim.response.compression import wants_gzip
from isochrone_sim.response.frames import Frame
from isochrone_sim.response.http_heads import document
from isochrone_sim.response.timeline import Timeline, refused, timeline
from isochrone_sim.world.world import Model, World

_MODEL_PATH = re.compile(r"/v1/models/([^/]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request's whereabouts: the region it came from, when its last byte had arrived (monotonic nanoseconds, and
    wall microseconds), and the id it was given.
    """

    region: str
    at_ns: int
    at: int
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A timeline, and whose it is. `dialect` is `None` when no model was asked for anything."""

    timeline: Timeline
    dialect: str | None = None
    model: str | None = None
    provider: str | None = None
    nonce: str | None = None
    stream: bool = False


class Service:
    """Answers requests in one world. With `api_key`, only those that carry it."""

    def __init__(self, world: World, *, api_key: str | None = None) -> None:
        self._world = world
        self._api_key = api_key
        self._allowances = Allowances()
        self._pages: dict[str, Callable[[Request, Arrival], Reply]] = {
            "/healthz": self._health,
            "/v1/models": self._catalogue,
        }

    def answer(self, request: Request, arrival: Arrival) -> Reply:
        """The reply to any request; nothing a client sends raises."""
        dialect = _dialect(request)
        if dialect is not None:
            return self._exchange(dialect, request, arrival)
        try:
            return self._page(request, arrival)
        except RequestRefused as error:
            return Reply(timeline=refused(error.refusal, _facts(arrival), DIALECTS[DEFAULT_DIALECT]))

    def _exchange(self, dialect: Dialect, request: Request, arrival: Arrival) -> Reply:
        asked: Asked | None = None
        model: Model | None = None
        try:
            self._admit(dialect, request)
            asked = replace(dialect.read(request), gzip=wants_gzip(request.headers.get("accept-encoding", "")))
            model = self._model(asked.model)
            _agree(model, asked)
            played = self._play(model, asked, request, arrival, dialect)
        except RequestRefused as error:
            played = refused(error.refusal, _facts(arrival, asked.model if asked else ""), dialect)
        return Reply(
            timeline=played,
            dialect=dialect.name,
            model=asked.model if asked else None,
            provider=model.provider if model else None,
            nonce=asked.nonce if asked else None,
            stream=asked.stream if asked else False,
        )

    def _play(self, model: Model, asked: Asked, request: Request, arrival: Arrival, dialect: Dialect) -> Timeline:
        allowance = self._allowances.take(
            model.id,
            tokens=asked.prompt_tokens + min(model.answer_tokens, asked.max_tokens or model.answer_tokens),
            at=arrival.at,
            limits=(model.requests_per_minute, model.tokens_per_minute),
        )
        facts = replace(_facts(arrival, model.id), allowance=allowance)
        for what, level in (("requests", allowance.requests), ("tokens", allowance.tokens)):
            if level.wait_us:
                refusal = throttled(model.id, what, retry_after_us=level.wait_us)
                return refused(refusal, facts, dialect)
        region, content = arrival.region, request.body
        return timeline(model, self._world, asked, facts, dialect=dialect, region=region, content=content)

    def _admit(self, dialect: Dialect, request: Request) -> None:
        key = dialect.key(request)
        if self._api_key is not None and key != self._api_key:
            raise RequestRefused(wrong_key(key))

    def _model(self, name: str) -> Model:
        """Any model can be asked in any dialect; its own is only what the world recommends."""
        model = self._world.models.get(name)
        if model is None:
            raise RequestRefused(unknown_model(name, self._world.models))
        return model

    def _page(self, request: Request, arrival: Arrival) -> Reply:
        page = self._pages.get(request.path)
        if request.method == "GET" and page is not None:
            return page(request, arrival)
        named = _MODEL_PATH.fullmatch(request.path)
        if request.method == "GET" and named:
            return self._catalogue(request, arrival, only=named[1])
        raise RequestRefused(unknown_route(request.method, request.path))

    def _health(self, _: Request, arrival: Arrival) -> Reply:
        return _page_of({"status": "ok", "world": self._world.title, "region": arrival.region}, arrival)

    def _catalogue(self, request: Request, arrival: Arrival, *, only: str | None = None) -> Reply:
        self._admit(DIALECTS[DEFAULT_DIALECT], request)
        models = [self._model(only)] if only else list(self._world.models.values())
        return _body(catalogue(models), arrival)


def _dialect(request: Request) -> Dialect | None:
    if request.method != "POST":
        return None
    return next((dialect for dialect in DIALECTS.values() if dialect.serves(request.path)), None)


def _agree(model: Model, asked: Asked) -> None:
    """Raises `RequestRefused` for what the model does not let itself be told."""
    if model.fixed_temperature and asked.temperature not in (None, 1):
        raise RequestRefused(unsupported_temperature(model.id, asked.temperature or 0))
    if model.efforts and asked.budgeted:
        raise RequestRefused(unsupported_budget(model.id))
    if model.efforts and asked.reasoning_effort not in (None, *model.efforts):
        raise RequestRefused(unsupported_effort(model.id, asked.reasoning_effort or "", model.efforts))


def _facts(arrival: Arrival, model: str = "") -> Facts:
    return Facts(request_id=arrival.request_id, model=model, created_at=arrival.at)


def _page_of(value: object, arrival: Arrival) -> Reply:
    return _body(plain(value), arrival)


def _body(body: bytes, arrival: Arrival) -> Reply:
    response = document(200, body, {"x-request-id": arrival.request_id}, at=arrival.at)
    return Reply(timeline=Timeline(status=200, frames=(Frame(0, response),)))
