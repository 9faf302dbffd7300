"""What every dialect offers. A new one is a module that implements `Dialect`, and a line in `DIALECTS`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Protocol

from isochrone_sim.exchange.allowance import Allowance
from isochrone_sim.exchange.refusal import Refusal
from isochrone_sim.exchange.request_parameters import Asked
from isochrone_sim.exchange.requests import Request
from isochrone_sim.exchange.script import Beat, Channel, Kind, Script, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a response says of itself beside the answer. `created_at` is the wall instant of the request in
    microseconds, `processing_us` the time the provider claims to have worked before the head went out.
    """

    request_id: str
    model: str
    created_at: int
    processing_us: int = 0
    allowance: Allowance | None = None

    @property
    def number(self) -> str:
        """The request id without its prefix, for ids of other things."""
        return self.request_id.removeprefix("req_")


class Voice(Protocol):
    """Renders the beats of one response, in order; it may remember what it has said. `newline` ends its lines where
    no fault wants another.
    """

    newline: bytes

    def event(self, beat: Beat) -> bytes:
        """The lines of server-sent events, joined by LF and without the last blank line; empty for nothing to say."""
        ...

    def whole(self, script: Script) -> bytes:
        """The body of a response that is not streamed."""
        ...


class Dialect(Protocol):
    """One API shape. Implementations are stateless. `retry_after`: whether a refusal that will pass says when, in a
    header of that name.
    """

    name: str
    retry_after: bool

    def serves(self, path: str) -> bool:
        """Whether a POST to this path asks for an answer in this dialect."""
        ...

    def key(self, request: Request) -> str | None:
        """The API key that a request carries, if there is one."""
        ...

    def read(self, request: Request) -> Asked:
        """What the request asks for. Raises `RequestRefused`."""
        ...

    def voice(self, asked: Asked, facts: Facts, usage: Usage | None) -> Voice:
        """Who renders the response; without `usage` it never states any."""
        ...

    def headers(self, facts: Facts) -> dict[str, str]:
        """The provider's own headers."""
        ...

    def refusal(self, refusal: Refusal) -> bytes:
        """The body of an error response."""
        ...


Renderers = Mapping[Kind, Callable[[Beat], bytes]]

# What stands in a stream as it is, whichever the dialect.
PLAIN_BEATS: Renderers = {
    Kind.COMMENT: lambda beat: b": " + encode(beat.text),
    Kind.RAW: lambda beat: b"data: " + encode(beat.text),
}


def plain(value: object) -> bytes:
    """Compact JSON; text that is not ASCII stays as it is."""
    return encode(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def encode(text: str) -> bytes:
    """UTF-8, in which a fault may have hidden bytes that are none."""
    return text.encode("utf-8", "surrogateescape")


def quoted(text: str) -> bytes:
    """The text as a JSON string."""
    return encode(encode_basestring(text))


def data_event(value: object) -> bytes:
    """An event that is only data."""
    return b"data: " + plain(value)


def typed_event(kind: str, **fields: object) -> bytes:
    """An event that says its type twice, in its `event` line and in its data."""
    return b"event: %b\ndata: %b" % (kind.encode(), plain({"type": kind, **fields}))


def events(*rendered: bytes) -> bytes:
    """Several events in one write, without those that say nothing."""
    return b"\n\n".join(filter(None, rendered))


def arguments_in(text: str) -> object:
    """The arguments of a tool call, where they stand in JSON as they are and not as text."""
    return json.loads(text) if text else {}


def said_in(script: Script) -> dict[Channel, str]:
    """All the text of a script by channel; what counts as no token is no part of it."""
    return {c: "".join(b.text for b in script.of_kind(Kind.TOKENS) if b.channel is c and b.tokens) for c in Channel}


def reason_of(script: Script) -> str | None:
    """Why the script is finished, or `None` when it is not."""
    finish = script.of_kind(Kind.FINISH, Kind.FINISH_WITH_USAGE)
    return finish[0].text if finish else None


def tool_of(script: Script) -> str | None:
    """The tool that the script calls, if it calls one."""
    calls = script.of_kind(Kind.CALL)
    return calls[0].text if calls else None
