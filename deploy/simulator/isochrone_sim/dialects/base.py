"""The base of the dialects. To add one, write a module with a subclass of `Dialect` and add it to `DIALECTS`."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

from isochrone_sim import requests
from isochrone_sim.errors import RequestRefused
from isochrone_sim.script import Channel, Kind, Script, Step, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseMetadata:
    """Metadata of a response. `created_at` is the wall-clock instant of the request in microseconds, `processing_us`
    the processing time that the provider reports.
    """

    request_id: str
    model: str
    created_at: int
    processing_us: int = 0
    rate_limit: requests.RateLimitStatus | None = None


EventRenderers = Mapping[Kind, Callable[[Step], bytes]]

# Steps that are rendered the same in all dialects.
RAW_EVENTS: EventRenderers = {
    Kind.COMMENT: lambda step: b": " + encode(step.text),
    Kind.RAW: lambda step: b"data: " + encode(step.text),
}


class Renderer:
    """Renders the steps of one response in order; it may keep state. `newline` ends its lines unless a fault sets
    another; steps of a kind that `renderers` lacks have no event.
    """

    newline = b"\n"
    renderers: EventRenderers

    def __init__(self, parameters: requests.RequestParameters, metadata: ResponseMetadata, usage: Usage | None) -> None:
        self.parameters, self.metadata, self.usage = parameters, metadata, usage
        self.number = metadata.request_id.removeprefix("req_")  # for other ids

    def event(self, step: Step) -> bytes:
        """Return the lines of server-sent events, joined by LF and without the final blank line; empty for no event."""
        render = self.renderers.get(step.kind)
        return render(step) if render else b""

    def body(self, script: Script) -> bytes:
        """Return the body of a response that is not streamed."""
        raise NotImplementedError


class ItemRenderer(Renderer):
    """Renders an answer that is a list of items, such as reasoning, text and a tool call, and tracks the open one."""

    def __init__(self, parameters: requests.RequestParameters, metadata: ResponseMetadata, usage: Usage | None) -> None:
        super().__init__(parameters, metadata, usage)
        self.index = -1
        self.channel: Channel | None = None
        self.before = b""
        """The constant part of a delta, before its text."""
        self.renderers: EventRenderers = {
            **RAW_EVENTS,
            Kind.NULL: lambda _: self.opened(Channel.ANSWER),
            Kind.EMPTY: self.delta,
            Kind.TOKENS: self.delta,
            Kind.CALL: lambda step: self.opened(Channel.TOOL, step.text),
            Kind.FINISH: self.finish,
            Kind.FINISH_WITH_USAGE: self.finish,
        }

    def delta(self, step: Step) -> bytes:
        """Return the events of a piece of text."""
        raise NotImplementedError

    def opening(self, channel: Channel, tool: str) -> bytes:
        """Return the events that open the item `index`; sets `before`."""
        raise NotImplementedError

    def closing(self, channel: Channel) -> bytes:
        """Return the events that close the open item."""
        raise NotImplementedError

    def ending(self, reason: str) -> bytes:
        """Return the last event."""
        raise NotImplementedError

    def opened(self, channel: Channel, tool: str = "") -> bytes:
        """Return the events that open an item for the channel; empty if it is already open."""
        if channel is self.channel:
            return b""
        closing = self.closing(self.channel) if self.channel else b""
        self.channel = channel
        self.index += 1
        return events(closing, self.opening(channel, tool))

    def finish(self, step: Step) -> bytes:
        """Return the events of the end, after an empty answer if there is none."""
        opening = b"" if self.channel else self.opened(Channel.ANSWER)
        assert self.channel is not None
        return events(opening, self.closing(self.channel), self.ending(step.text))


class Dialect:
    """One API format, stateless: the pattern of the paths of its requests; the fields of a request with the limit of
    output tokens, of which the first one counts, and with the messages; and the field of a message with its content.
    `retry_after`: a temporary error response has a `retry-after` header.
    """

    name: str
    path: str
    limits: tuple[str, ...] = ("max_tokens",)
    messages, content = "messages", "content"
    retry_after = True
    renderer: type[Renderer]

    def serves(self, path: str) -> bool:
        """Return true if a POST to this path is a request in this dialect."""
        return re.fullmatch(self.path, path) is not None

    def key(self, request: requests.Request) -> str | None:
        """Return the API key of a request, if any: a bearer token."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" and token.strip() else None

    def read(self, request: requests.Request) -> requests.RequestParameters:
        """Return the parameters of a request. Raises `RequestRefused`."""
        fields = self.fields(request)
        texts = _message_texts(fields.get(self.messages), param=self.messages, content=self.content)
        model, temperature = fields.get("model"), fields.get("temperature")
        if not (isinstance(model, str) and model):
            raise RequestRefused(requests.invalid("you must provide a model parameter", param="model"))
        if temperature is not None and not (type(temperature) in (int, float) and 0 <= temperature <= 2):  # noqa: PLR2004  # the range of every API
            raise RequestRefused(requests.invalid("temperature must be a number from 0 to 2", param="temperature"))
        return requests.RequestParameters(
            max_tokens=_token_limit(fields, self.limits),
            # The name is quoted in responses, so it must be encodable.
            model=model.encode("utf-8", "replace").decode(),
            stream=fields.get("stream") is True,
            temperature=temperature,
            prompt_tokens=requests.count_prompt_tokens(texts),
            nonce=requests.find_nonce(texts),
            **self.more(fields),
        )

    def fields(self, request: requests.Request) -> dict[str, Any]:
        """Return the fields of a request: those of its body. Raises `RequestRefused`."""
        try:
            parsed = json.loads(request.body)
        except (ValueError, RecursionError) as error:
            raise RequestRefused(requests.invalid("We could not parse the JSON body of your request.")) from error
        if not isinstance(parsed, dict):
            raise RequestRefused(requests.invalid("The body of your request is not a JSON object."))
        return parsed

    def more(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters that this dialect states in its own way."""
        raise NotImplementedError

    def headers(self, metadata: ResponseMetadata) -> dict[str, str]:
        """Return the provider's own headers."""
        raise NotImplementedError

    def error_body(self, response: requests.ErrorResponse) -> bytes:
        """Return the body of an error response."""
        raise NotImplementedError


def to_json(value: object) -> bytes:
    """Return compact JSON; text outside ASCII is not escaped."""
    return encode(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def encode(text: str) -> bytes:
    """Encode as UTF-8, including invalid bytes that a fault has put into the text."""
    return text.encode("utf-8", "surrogateescape")


def quoted(text: str) -> bytes:
    """Return the text as a JSON string."""
    return encode(encode_basestring(text))


def data_event(value: object) -> bytes:
    """Return an event with data only."""
    return b"data: " + to_json(value)


def typed_event(kind: str, **fields: object) -> bytes:
    """Return an event with its type both in the `event` line and in the data."""
    return b"event: %b\ndata: %b" % (kind.encode(), to_json({"type": kind, **fields}))


def events(*rendered: bytes) -> bytes:
    """Join the events that are not empty into one write."""
    return b"\n\n".join(filter(None, rendered))


def _token_limit(fields: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    name = next((name for name in names if fields.get(name) is not None), "")
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise RequestRefused(requests.invalid(f"{name} must be a whole number of at least 1", param=name))


def object_or_empty(value: object) -> dict[str, Any]:
    """Return the object, or an empty one."""
    return value if isinstance(value, dict) else {}


def _message_texts(messages: object, *, param: str, content: str) -> list[str]:
    if not isinstance(messages, list) or not messages:
        raise RequestRefused(requests.invalid(f"{param} must be a list with at least one message", param=param))
    return [_text(object_or_empty(message).get(content)) for message in messages]


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def effort_of_budget(budget: object, budgets: tuple[tuple[int, str], ...]) -> str | None:
    """Return the effort for a thinking budget in tokens, from (least budget, effort), largest first."""
    return next((effort for least, effort in budgets if isinstance(budget, int) and budget >= least), None)


def limit_headers(
    rate_limit: requests.RateLimitStatus | None, name: str, reset: Callable[[int], str]
) -> dict[str, str]:
    """Return the headers of both rate limits. `name` has the places `{what}` and `{field}`; `reset` writes the
    microseconds until a limit is full again.
    """
    headers: dict[str, str] = {}
    for what in ("requests", "tokens") if rate_limit else ():
        level = getattr(rate_limit, what)
        values = {"limit": str(level.limit), "remaining": str(level.remaining), "reset": reset(level.reset_us)}
        headers |= {name.format(what=what, field=field): value for field, value in values.items()}
    return headers
