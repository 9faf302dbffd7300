"""Request handling: a request and an instant give a timeline, and the fields of its ground-truth record.

Pure except for the rate limits, which it counts; instants are passed in.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from isochrone_sim.dialects import DEFAULT_DIALECT, DIALECTS, Dialect, ResponseMetadata, model_list
from isochrone_sim.dialects.base import to_json
from isochrone_sim.errors import RequestRefused
from isochrone_sim.requests import (
    RateLimits,
    Request,
    RequestParameters,
    throttled,
    unknown_model,
    unknown_route,
    unsupported_budget,
    unsupported_effort,
    unsupported_temperature,
    wrong_key,
)
from isochrone_sim.response import Frame, Timeline, complete_response, error_timeline, timeline, wants_gzip
from isochrone_sim.world import Model, World

_MODEL_PATH = re.compile(r"/v1/models/([^/]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The arrival of a request: the region of the client, the instant of its last byte (monotonic nanoseconds, and
    wall-clock microseconds), and its id.
    """

    region: str
    at_ns: int
    at: int
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A timeline, and the fields of its record. `dialect` is `None` if the request was not for a model."""

    timeline: Timeline
    dialect: str | None = None
    model: str | None = None
    provider: str | None = None
    nonce: str | None = None
    stream: bool = False


class Service:
    """Answers requests in one world. With `api_key`, requests must carry it."""

    def __init__(self, world: World, *, api_key: str | None = None) -> None:
        self._world = world
        self._api_key = api_key
        self._rate_limits = RateLimits()
        self._pages: dict[str, Callable[[Request, Arrival], Reply]] = {
            "/healthz": self._health,
            "/v1/models": self._model_list,
        }

    def answer(self, request: Request, arrival: Arrival) -> Reply:
        """Return the reply to any request; no client input raises an exception."""
        dialect = _dialect(request)
        if dialect is not None:
            return self._exchange(dialect, request, arrival)
        try:
            return self._page(request, arrival)
        except RequestRefused as error:
            return Reply(timeline=error_timeline(error.response, _metadata(arrival), DIALECTS[DEFAULT_DIALECT]))

    def _exchange(self, dialect: Dialect, request: Request, arrival: Arrival) -> Reply:
        parameters: RequestParameters | None = None
        model: Model | None = None
        try:
            self._authenticate(dialect, request)
            parameters = replace(dialect.read(request), gzip=wants_gzip(request.headers.get("accept-encoding", "")))
            model = self._model(parameters.model)
            _check_restrictions(model, parameters)
            played = self._play(model, parameters, request, arrival, dialect)
        except RequestRefused as error:
            played = error_timeline(error.response, _metadata(arrival, parameters.model if parameters else ""), dialect)
        return Reply(
            timeline=played,
            dialect=dialect.name,
            model=parameters.model if parameters else None,
            provider=model.provider if model else None,
            nonce=parameters.nonce if parameters else None,
            stream=parameters.stream if parameters else False,
        )

    def _play(
        self, model: Model, parameters: RequestParameters, request: Request, arrival: Arrival, dialect: Dialect
    ) -> Timeline:
        rate_limit = self._rate_limits.take(
            model.id,
            tokens=parameters.prompt_tokens + min(model.answer_tokens, parameters.max_tokens or model.answer_tokens),
            at=arrival.at,
            limits=(model.requests_per_minute, model.tokens_per_minute),
        )
        metadata = replace(_metadata(arrival, model.id), rate_limit=rate_limit)
        for what, level in (("requests", rate_limit.requests), ("tokens", rate_limit.tokens)):
            if level.wait_us:
                response = throttled(model.id, what, retry_after_us=level.wait_us)
                return error_timeline(response, metadata, dialect)
        region, content = arrival.region, request.body
        return timeline(model, self._world, parameters, metadata, dialect=dialect, region=region, content=content)

    def _authenticate(self, dialect: Dialect, request: Request) -> None:
        key = dialect.key(request)
        if self._api_key is not None and key != self._api_key:
            raise RequestRefused(wrong_key(key))

    def _model(self, name: str) -> Model:
        """Return the model. Every model answers in every dialect; its own dialect is only a recommendation."""
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
            return self._model_list(request, arrival, only=named[1])
        raise RequestRefused(unknown_route(request.method, request.path))

    def _health(self, _: Request, arrival: Arrival) -> Reply:
        return _page_of({"status": "ok", "world": self._world.title, "region": arrival.region}, arrival)

    def _model_list(self, request: Request, arrival: Arrival, *, only: str | None = None) -> Reply:
        self._authenticate(DIALECTS[DEFAULT_DIALECT], request)
        models = [self._model(only)] if only else list(self._world.models.values())
        return _body(model_list(models), arrival)


def _dialect(request: Request) -> Dialect | None:
    if request.method != "POST":
        return None
    return next((dialect for dialect in DIALECTS.values() if dialect.serves(request.path)), None)


def _check_restrictions(model: Model, parameters: RequestParameters) -> None:
    """Raise `RequestRefused` for parameters that the model does not accept."""
    if model.fixed_temperature and parameters.temperature not in (None, 1):
        raise RequestRefused(unsupported_temperature(model.id, parameters.temperature or 0))
    if model.efforts and parameters.has_thinking_budget:
        raise RequestRefused(unsupported_budget(model.id))
    if model.efforts and parameters.reasoning_effort not in (None, *model.efforts):
        raise RequestRefused(unsupported_effort(model.id, parameters.reasoning_effort or "", model.efforts))


def _metadata(arrival: Arrival, model: str = "") -> ResponseMetadata:
    return ResponseMetadata(request_id=arrival.request_id, model=model, created_at=arrival.at)


def _page_of(value: object, arrival: Arrival) -> Reply:
    return _body(to_json(value), arrival)


def _body(body: bytes, arrival: Arrival) -> Reply:
    response = complete_response(200, body, {"x-request-id": arrival.request_id}, at=arrival.at)
    return Reply(timeline=Timeline(status=200, frames=(Frame(0, response),)))
