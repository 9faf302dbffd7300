"""The interface of a dialect. To add one, write a module that implements `Dialect` and add it to `DIALECTS`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, Protocol

from isochrone_sim.errors import RequestRefused
from isochrone_sim.requests import ErrorResponse, RateLimitStatus, Request, RequestParameters, invalid
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
    rate_limit: RateLimitStatus | None = None

    @property
    def number(self) -> str:
        """The request id without its prefix, for other ids."""
        return self.request_id.removeprefix("req_")


class Renderer(Protocol):
    """Renders the steps of one response in order; it may keep state. `newline` ends its lines unless a fault sets
    another.
    """

    newline: bytes

    def event(self, step: Step) -> bytes:
        """Return the lines of server-sent events, joined by LF and without the final blank line; empty for no event."""
        ...

    def body(self, script: Script) -> bytes:
        """Return the body of a response that is not streamed."""
        ...


class Dialect(Protocol):
    """One API format. Implementations are stateless. `retry_after`: a temporary error response has a `retry-after`
    header.
    """

    name: str
    retry_after: bool

    def serves(self, path: str) -> bool:
        """Return true if a POST to this path is a request in this dialect."""
        ...

    def key(self, request: Request) -> str | None:
        """Return the API key of a request, if any."""
        ...

    def read(self, request: Request) -> RequestParameters:
        """Return the parameters of a request. Raises `RequestRefused`."""
        ...

    def renderer(self, parameters: RequestParameters, metadata: ResponseMetadata, usage: Usage | None) -> Renderer:
        """Return the renderer of the response; without `usage` it reports none."""
        ...

    def headers(self, metadata: ResponseMetadata) -> dict[str, str]:
        """Return the provider's own headers."""
        ...

    def error_body(self, response: ErrorResponse) -> bytes:
        """Return the body of an error response."""
        ...


EventRenderers = Mapping[Kind, Callable[[Step], bytes]]

# Steps that are rendered the same in all dialects.
RAW_EVENTS: EventRenderers = {
    Kind.COMMENT: lambda step: b": " + encode(step.text),
    Kind.RAW: lambda step: b"data: " + encode(step.text),
}


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


def arguments_in(text: str) -> object:
    """Parse the arguments of a tool call, for dialects that send them as JSON instead of text."""
    return json.loads(text) if text else {}


def text_by_channel(script: Script) -> dict[Channel, str]:
    """Return the complete text of a script by channel, without text that counts no token."""
    return {c: "".join(b.text for b in script.of_kind(Kind.TOKENS) if b.channel is c and b.tokens) for c in Channel}


def finish_reason(script: Script) -> str | None:
    """Return the finish reason of the script; `None` if it is not finished."""
    finish = script.of_kind(Kind.FINISH, Kind.FINISH_WITH_USAGE)
    return finish[0].text if finish else None


def tool_name(script: Script) -> str | None:
    """Return the name of the tool that the script calls, if any."""
    calls = script.of_kind(Kind.CALL)
    return calls[0].text if calls else None


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(invalid("We could not parse the JSON body of your request.")) from error
    if not isinstance(parsed, dict):
        raise RequestRefused(invalid("The body of your request is not a JSON object."))
    return parsed


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token, if any."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def model_name(value: object) -> str:
    """Return the requested model."""
    if isinstance(value, str) and value:
        # The name is quoted in responses, so it must be encodable.
        return value.encode("utf-8", "replace").decode()
    raise RequestRefused(invalid("you must provide a model parameter", param="model"))


def token_limit(fields: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of these fields that is present: the limit of output tokens."""
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        raise RequestRefused(invalid(f"{name} must be a whole number of at least 1", param=name))
    return None


def temperature(fields: Mapping[str, Any]) -> float | None:
    """Return the requested temperature."""
    value = fields.get("temperature")
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2):  # noqa: PLR2004  # the range of every API
        return value
    raise RequestRefused(invalid("temperature must be a number from 0 to 2", param="temperature"))


def object_or_empty(value: object) -> dict[str, Any]:
    """Return the object, or an empty one."""
    return value if isinstance(value, dict) else {}


def message_texts(messages: object, *, param: str = "messages", content: str = "content") -> list[str]:
    """Return the text of every message, from its field `content`."""
    if not isinstance(messages, list) or not messages:
        raise RequestRefused(invalid(f"{param} must be a list with at least one message", param=param))
    return [_text(object_or_empty(message).get(content)) for message in messages]


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
