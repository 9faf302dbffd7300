"""The interface of a dialect, and the helpers that dialects share."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

from isochrone_common.dialects.failures import ERROR_EVENT, in_band_failure, parse_json, stated_failure
from isochrone_common.dialects.signals import HEAD_CHARS, Answer, Finished, Signal, Unknown
from isochrone_common.sse import Event
from isochrone_wire.model import Target
from isochrone_wire.text import endpoint_url

NONCE_CHARS = 12
_DONE = b"[DONE]"
# The errors raised for JSON of an unexpected shape: wrong types, missing parts, huge numbers, deep nesting.
_SHAPE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_MAX_COUNT = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One POST request. Headers, which contain the key, and body are not in `repr`."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """Deviations of a provider: the field that limits the output, and whether usage must be requested."""

    token_limit: str = "max_tokens"
    usage_option: bool = True


NO_QUIRKS = Quirks()


class Dialect(ABC):
    """The format of an API. Dialects are stateless: the signals of an event depend on the event only."""

    name: ClassVar[str]
    path: ClassVar[str]
    """The path below the base URL; `{model}` stands for the model."""
    key_header: ClassVar[str] = "authorization"
    headers: ClassVar[Mapping[str, str]] = {}

    def request(self, target: Target, *, nonce: str, key: str | None, quirks: Quirks) -> Request:
        """Build the request for the target's workload; it is byte-identical on all vantages except for the nonce."""
        # A model is one name: it must not begin the query or the fragment of the URL.
        path = self.path.format(model=quote(target.model, safe="/:@"))
        # Before the prompt, the nonce defeats prefix caches.
        body = self.body(target, f"[{nonce}] {target.workload.prompt}", quirks)
        headers = dict(self.headers)
        if key:
            headers[self.key_header] = f"Bearer {key}" if self.key_header == "authorization" else key
        return Request(url=endpoint_url(target.base_url, path), headers=headers, body=json.dumps(body).encode())

    @abstractmethod
    def body(self, target: Target, prompt: str, quirks: Quirks) -> dict[str, Any]:
        """Return the body of the request for this prompt."""

    @abstractmethod
    def read(self, message: dict[str, Any]) -> list[Signal] | None:
        """Return the signals of one JSON object, in order; `None` if it is neither content nor metadata."""

    def interpret(self, event: Event) -> list[Signal]:
        """Return the signals of an event, in order; empty for a frame without content. Raises nothing."""
        data = event.data.strip()
        if not data:
            return []
        if data == _DONE:
            return [Finished("[DONE]", final=True)]
        try:
            message = parse_json(data)
        except ValueError:
            return [in_band_failure(data.decode(errors="replace"))] if event.name == ERROR_EVENT else [Unknown()]
        if failure := stated_failure(message, event.name):
            return [failure]
        try:
            signals = self.read(message)
        except _SHAPE_ERRORS:
            signals = None
        return [Unknown()] if signals is None else signals


def given(**values: object) -> dict[str, object]:
    """Return the values that are not `None`."""
    return {name: value for name, value in values.items() if value is not None}


def make_nonce(*, target_id: int, round_at: int, vantage: str, stream: int = 0) -> str:
    """Return twelve characters that differ by round, vantage and stream, so that no cache answers."""
    text = f"{target_id}:{round_at}:{vantage}:{stream}"
    return hashlib.sha256(text.encode()).hexdigest()[:NONCE_CHARS]


def count(value: object) -> int | None:
    """Validate a token count; `None` if it is missing, negative, implausible or not an integer."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT:
        return value
    return None


def text_of(value: object) -> str:
    """Return the text of content in any of its forms: a string, a list of parts, an object with a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(text_of, value))
    if isinstance(value, dict):
        names = ("text", "thinking", "content", "summary", "reasoning", "refusal")
        return next(filter(None, (text_of(value.get(name)) for name in names)), "")
    return ""


def answer(text: str) -> list[Signal]:
    """Return the signal of a piece of the answer, none for an empty one."""
    return [Answer(len(text), text[:HEAD_CHARS])] if text else []
