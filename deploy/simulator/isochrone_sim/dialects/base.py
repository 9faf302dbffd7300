"""What every dialect offers. A new one is a module that implements `Dialect`, and a line in `DIALECTS`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from isochrone_sim.allowance import Allowance
from isochrone_sim.asked import Asked
from isochrone_sim.errors import RequestRefused
from isochrone_sim.refusal import Refusal, invalid
from isochrone_sim.script import Beat, Script, Usage
from isochrone_sim.world import Model


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


class Voice(Protocol):
    """Renders the beats of one response."""

    def event(self, beat: Beat) -> bytes:
        """The lines of one server-sent event, joined by LF and without the blank line; empty for nothing to say."""
        ...

    def whole(self, script: Script) -> bytes:
        """The body of a response that is not streamed."""
        ...


class Dialect(Protocol):
    """One API shape. Implementations are stateless."""

    name: str

    def serves(self, path: str) -> bool:
        """Whether a POST to this path asks for an answer in this dialect."""
        ...

    def key(self, headers: Mapping[str, str]) -> str | None:
        """The API key in a request's headers (names in lower case), if there is one."""
        ...

    def read(self, path: str, body: bytes) -> Asked:
        """What the request asks for. Raises `RequestRefused`."""
        ...

    def voice(self, asked: Asked, facts: Facts, usage: Usage) -> Voice:
        """Who renders the response."""
        ...

    def headers(self, facts: Facts) -> dict[str, str]:
        """The provider's own headers."""
        ...

    def refusal(self, refusal: Refusal) -> bytes:
        """The body of an error response."""
        ...

    def catalogue(self, models: list[Model]) -> bytes:
        """The body that lists the models."""
        ...


def parse_body(body: bytes) -> dict[str, Any]:
    """The JSON object of a request. Raises `RequestRefused`."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(invalid("We could not parse the JSON body of your request.")) from error
    if not isinstance(parsed, dict):
        raise RequestRefused(invalid("The body of your request is not a JSON object."))
    return parsed


def plain(value: object) -> bytes:
    """Compact JSON; text that is not ASCII stays as it is."""
    return encode(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def encode(text: str) -> bytes:
    """UTF-8, in which a fault may have hidden bytes that are none."""
    return text.encode("utf-8", "surrogateescape")
