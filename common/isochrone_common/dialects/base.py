"""The interface of a dialect, and the helpers that dialects share."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import quote

from isochrone_common.dialects import failures
from isochrone_common.dialects.signals import DONE, HEAD_CHARS, REASONING_ENDS, Answer, Signal, Unknown, Usage
from isochrone_common.sse import Event
from isochrone_wire.model import Target
from isochrone_wire.text import endpoint_url
from isochrone_wire.workloads import OPTIONAL_FIELDS, omissible

NONCE_CHARS = 12
_DONE = DONE.reason.encode()
# The names of frames without content: the type of an event or of its object, or a frame of nothing else.
_KEEP_ALIVE = ("ping", "keepalive", "keep-alive", "keep_alive", "heartbeat")
_DEFAULT_EVENT = ("", "message")
# The errors raised for JSON of an unexpected shape: wrong types, missing parts, huge numbers, deep nesting.
_SHAPE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_MAX_COUNT = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One POST request; `omissible` are the fields it could be without. Headers, with the key, are not in `repr`."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    omissible: tuple[str, ...] = ()


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
        # A plan may leave out only what is optional: never the token limit, which its budget relies on.
        body = _without(body, {*OPTIONAL_FIELDS[self.name]} & {*target.omit})
        headers = dict(self.headers)
        if key:
            headers[self.key_header] = f"Bearer {key}" if self.key_header == "authorization" else key
        return Request(
            url=endpoint_url(target.base_url, path),
            headers=headers,
            body=json.dumps(body).encode(),
            omissible=tuple(name for name in omissible(self.name) if _has(body, name)),
        )

    @abstractmethod
    def body(self, target: Target, prompt: str, quirks: Quirks) -> dict[str, Any]:
        """Return the body of the request for this prompt."""

    @abstractmethod
    def read(self, message: dict[str, Any]) -> list[Signal] | None:
        """Return the signals of one JSON object, in order; `None` if it is neither content nor metadata."""

    def interpret(self, event: Event) -> list[Signal]:
        """Return the signals of an event, in order; empty for a frame without content. Raises nothing."""
        data, name = event.data.strip(), event.name.decode(errors="replace")
        if not event.is_framed:
            return [failures.unframed_failure(data) or Unknown(failures.error_text(data))]
        if data.strip(b'"') == _DONE:
            return [DONE]
        is_enclosed = len(data) > 1 and data[:1] + data[-1:] in (b"[]", b"{}", b'""')
        word = (data[1:-1] if is_enclosed else data).decode(errors="replace").strip().lower()
        if not word or word in _KEEP_ALIVE:
            return [failures.in_band_failure("")] if event.name == failures.ERROR_EVENT else []
        try:
            message = failures.parse_json(data)
        except ValueError:
            if event.name == failures.ERROR_EVENT:
                return [failures.in_band_failure(data.decode(errors="replace"))]
            return [] if name in _KEEP_ALIVE else [failures.text_failure(data) or Unknown(failures.error_text(data))]
        # The name of an event states its type where the object has none.
        return self._judge(message if name in _DEFAULT_EVENT else {"type": name} | message, event)

    def _judge(self, message: dict[str, Any], event: Event) -> list[Signal]:
        """Return the failure that the object states, or else what it has of the answer."""
        try:
            failure = failures.stated_failure(message, event.name)
            if failure:
                return [failure]
            signals = self.read(message)
        except _SHAPE_ERRORS:
            signals = None
        kinds = (message.get("type"), message.get("object"), message.get("event"))
        if signals is None and not any(kind in _KEEP_ALIVE for kind in kinds):
            return [Unknown()]
        return signals or []


def _has(fields: Mapping[str, Any], name: str) -> bool:
    return name in fields or any(_has(value, name) for value in fields.values() if isinstance(value, dict))


def _without(fields: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the fields of a body without these, at any depth of objects."""
    return {
        name: _without(value, names) if isinstance(value, dict) else value
        for name, value in fields.items()
        if name not in names
    }


def given(**values: object) -> dict[str, object]:
    """Return the values that are not `None`."""
    return {name: value for name, value in values.items() if value is not None}


def make_nonce(*, target_id: int, round_at: int, vantage: str, stream: int = 0) -> str:
    """Return twelve characters that differ by round, vantage and stream, so that no cache answers."""
    text = f"{target_id}:{round_at}:{vantage}:{stream}"
    return hashlib.sha256(text.encode()).hexdigest()[:NONCE_CHARS]


def count(value: object) -> int | None:
    """Validate a token count; `None` if it is missing, negative, implausible or no whole number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MAX_COUNT:
        return None
    return int(value) if value == int(value) else None


def fields_of(value: object) -> dict[str, Any]:
    """Return the fields of an object; none of anything else."""
    return value if isinstance(value, dict) else {}


def call_text(function: object) -> str:
    """Return the name and the arguments of a call, as servers write them: text, or an object."""
    fields = fields_of(function)
    arguments = fields.get("arguments") or fields.get("input") or ""
    return text_of(fields.get("name")) + (arguments if isinstance(arguments, str) else json.dumps(arguments))


def text_of(value: object) -> str:
    """Return the text of content in any of its forms: a string, a list of parts, an object with a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(text_of, value))
    if isinstance(value, dict):
        names = ("text", "thinking", "content", "parts", "summary", "reasoning", "reasoning_content", "refusal")
        return next(filter(None, (text_of(value.get(name)) for name in names)), "")
    return ""


def answer(text: str, *, is_whole: bool = False) -> list[Signal]:
    """Return the signal of a piece of the answer, or of all of it; none for an empty one."""
    if not text:
        return []
    ends_reasoning = any(end in text for end in REASONING_ENDS)
    return [Answer(len(text), text[:HEAD_CHARS], text[-HEAD_CHARS:], ends_reasoning=ends_reasoning, is_whole=is_whole)]


def with_hidden_tokens(usage: Usage, total: object) -> Usage:
    """Add the tokens that only the total states: xAI counts reasoning beside the output, gateways hide thoughts."""
    prompt, output, reasoning = usage.prompt_tokens, usage.output_tokens, usage.reasoning_tokens
    if prompt is None or output is None:
        return usage
    hidden = (count(total) or 0) - prompt - output
    if hidden <= 0 or hidden == usage.cached_tokens or (reasoning and reasoning != hidden):
        return usage
    return replace(usage, output_tokens=output + hidden, reasoning_tokens=hidden)
