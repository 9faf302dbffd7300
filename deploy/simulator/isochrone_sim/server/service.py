"""Request handling: a request and an instant give a timeline, and the fields of its ground-truth record.

Pure except for the rate limits, which it counts; instants are passed in.
"""

import re
from dataclasses import dataclass, replace

from isochrone_sim.dialects import DEFAULT_DIALECT, DIALECTS, Dialect, ResponseMetadata, model_list
from isochrone_sim.dialects.base import to_json
from isochrone_sim.errors import RequestRefused
from isochrone_sim.requests import ErrorResponse, RateLimits, Request, RequestParameters, throttled
from isochrone_sim.response import Frame, Timeline, complete_response, error_timeline, timeline, wants_gzip
from isochrone_sim.world import Model, World
from isochrone_wire.text import nearest

_MODEL_PATH = re.compile(r"/v1/models(?:/([^/]+))?")


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

    def answer(self, request: Request, arrival: Arrival) -> Reply:
        """Return the reply to any request; no client input raises an exception."""
        serving = (dialect for dialect in DIALECTS.values() if dialect.serves(request.path))
        if request.method == "POST" and (dialect := next(serving, None)):
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
        if self._api_key is None or key == self._api_key:
            return
        if key is None:
            raise _refused(401, "missing_api_key", "You didn't provide an API key.")
        # Like real providers, the message quotes the ends of the key; shorter keys are hidden completely.
        shown = f"{key[:5]}***{key[-4:]}" if len(key) > 12 else "***"  # noqa: PLR2004  # as above
        raise _refused(401, "invalid_api_key", f"Incorrect API key provided: {shown}.")

    def _model(self, name: str) -> Model:
        """Return the model. Every model answers in every dialect; its own dialect is only a recommendation."""
        if name in self._world.models:
            return self._world.models[name]
        close = nearest(name, self._world.models, cutoff=0.3)
        hint = f" The nearest name is `{close}`." if close else ""
        message = f"The model `{name}` does not exist in this world.{hint}"
        raise _refused(404, "model_not_found", message, param="model")

    def _page(self, request: Request, arrival: Arrival) -> Reply:
        named = _MODEL_PATH.fullmatch(request.path)
        if request.method == "GET" and request.path == "/healthz":
            health = {"status": "ok", "world": self._world.title, "region": arrival.region}
            return _body(to_json(health), arrival)
        if request.method == "GET" and named:
            self._authenticate(DIALECTS[DEFAULT_DIALECT], request)
            models = [self._model(named[1])] if named[1] else list(self._world.models.values())
            return _body(model_list(models), arrival)
        raise _refused(404, "unknown_url", f"Unknown request URL: {request.method} {request.path}.")


def _refused(status: int, code: str, message: str, *, param: str | None = None) -> RequestRefused:
    return RequestRefused(ErrorResponse(status=status, code=code, message=message, param=param))


def _check_restrictions(model: Model, parameters: RequestParameters) -> None:
    effort, value = parameters.reasoning_effort, "unsupported_value"
    if model.fixed_temperature and parameters.temperature not in (None, 1):
        what = f"`temperature` does not support {parameters.temperature:g} with `{model.id}`, only the default (1)."
        raise _refused(400, value, f"Unsupported value: {what}", param="temperature")
    if model.efforts and parameters.has_thinking_budget:
        hint = "use adaptive thinking and `output_config.effort`."
        raise _refused(400, value, f"A thinking budget is not supported with `{model.id}`: {hint}", param="thinking")
    if model.efforts and effort not in (None, *model.efforts):
        what = f"the effort `{effort}` is not supported with `{model.id}`; use {', '.join(model.efforts)}."
        raise _refused(400, value, f"Unsupported value: {what}", param="reasoning_effort")


def _metadata(arrival: Arrival, model: str = "") -> ResponseMetadata:
    return ResponseMetadata(request_id=arrival.request_id, model=model, created_at=arrival.at)


def _body(body: bytes, arrival: Arrival) -> Reply:
    response = complete_response(200, body, {"x-request-id": arrival.request_id}, at=arrival.at)
    return Reply(timeline=Timeline(status=200, frames=(Frame(0, response),)))
