"""The interface of a dialect. To add one, write a module that implements `Dialect` and add it to `DIALECTS`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Protocol

from isochrone_sim.exchange.error_response import ErrorResponse
from isochrone_sim.exchange.rate_limit import RateLimitStatus
from isochrone_sim.exchange.request_parameters import RequestParameters
from isochrone_sim.exchange.requests import Request
from isochrone_sim.exchange.script import Channel, Kind, Script, Step, Usage


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
