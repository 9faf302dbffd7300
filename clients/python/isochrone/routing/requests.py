"""Requests to providers: their route, their form for a member, and the first content of their responses. Pure.

The model of a request is the name of a route. Only the model, the address and the key change.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import quote, unquote_plus, urlsplit, urlunsplit

from isochrone_common.dialects import DIALECTS
from isochrone_common.dialects.failures import stated_failure
from isochrone_common.dialects.reader import ResponseReader
from isochrone_common.dialects.signals import DONE, Answer, Failed, Finished, Reasoning, Signal, Unknown
from isochrone_common.sse import SseOverflow
from isochrone_wire.model import Outcome
from isochrone_wire.routes import RouteEntry
from isochrone_wire.text import endpoint_url

Headers = list[tuple[bytes, bytes]]
_DIALECT_OF = {"/chat/completions": "openai-chat", "/responses": "openai-responses", "/messages": "anthropic"}
# The accounts that the caller's key belongs to go with it.
KEY_HEADERS = (
    *(b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key"),
    *(b"openai-organization", b"openai-project"),
)
# The ends of the names of parameters that are keys in the query of an address, such as `key` in Google's dialect.
_KEY_PARAMETER = re.compile(r"(key|token|secret|sig|signature|credential|auth|authorization|password)$", re.IGNORECASE)
# Parts of the names of fields by which models call tools, search or run code, and providers keep what is said.
_EFFECTS = re.compile(r"tools|functions|mcp|plugin|search|store|conversation|previous|background|container")
_TOOLS = {"tools", "functions", "mcp_servers"}
_UNSET: tuple[object, ...] = (None, False, "", "none", [])
_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_CONTENT = frozenset(("choices", "content", "output"))
_REPLACED = (b"host", b"content-length", b"transfer-encoding", b"cookie")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """A request with JSON in a `dialect`; `endpoint` is its path after the base URL, with the query."""

    dialect: str
    endpoint: str
    document: Mapping[str, Any]

    @property
    def route(self) -> str:
        """The model of the request."""
        model = self.document.get("model")
        return model if isinstance(model, str) else ""

    @property
    def is_streamed(self) -> bool:
        """True if the response is to be a stream of events."""
        return self.document.get("stream") is True

    @property
    def max_tokens(self) -> int | None:
        """The largest number of tokens that the caller asks for; `None` without one."""
        found = (self.document.get(name) for name in _TOKEN_LIMITS)
        return next((limit for limit in found if isinstance(limit, int)), None)

    @property
    def has_effects(self) -> bool:
        """True if the request does more than ask for an answer: twice, it would be done and billed twice."""
        given = {name.lower() for name, value in self.document.items() if value not in _UNSET}
        choice = self.document.get("tool_choice")
        if choice == "none" or (isinstance(choice, dict) and choice.get("type") == "none"):
            given -= _TOOLS
        # The Responses API stores what does not ask otherwise.
        is_stored = self.dialect == "openai-responses" and self.document.get("store") is not False
        return is_stored or any(map(_EFFECTS.search, given))


def read_request(method: str, url: str, body: bytes) -> ProviderRequest | None:
    """Read a request; `None` if it cannot be routed."""
    parts = urlsplit(url)
    end = next((end for end in _DIALECT_OF if method == "POST" and parts.path.endswith(end)), None)
    try:
        document = json.loads(body) if end else None
    except (ValueError, RecursionError):
        return None
    if end is None or not isinstance(document, dict):
        return None
    endpoint = end + (f"?{parts.query}" if parts.query else "")
    return ProviderRequest(dialect=_DIALECT_OF[end], endpoint=endpoint, document=document)


def has_key(url: str, given: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the caller sends a key, in the query or in a header."""
    return without_keys(url) != url or any(name.lower() in KEY_HEADERS for name, _ in given)


def without_keys(url: str) -> str:
    """The URL without the keys in its query."""
    path, mark, query = url.partition("?")
    kept = [pair for pair in query.split("&") if not _KEY_PARAMETER.search(unquote_plus(pair.partition("=")[0]))]
    return f"{path}{mark}{'&'.join(kept)}"


def is_same_origin(url: str, other: str) -> bool:
    """Return whether two addresses have the same scheme, host and port."""
    return _origin(url) == _origin(other)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def address(request: ProviderRequest, entry: RouteEntry, *, key: str | None) -> str:
    """The URL of the request at a member, without the caller's keys if the member has its own: the host in punycode,
    the path in percent codes.
    """
    base, parts = entry.base_url, urlsplit(entry.base_url)
    if not base.isascii():
        netloc, path = parts.netloc.encode("idna").decode(), quote(parts.path, safe="/%")
        base = urlunsplit(parts._replace(netloc=netloc, path=path))
    return endpoint_url(base, without_keys(request.endpoint) if key else request.endpoint)


def body(request: ProviderRequest, entry: RouteEntry) -> bytes:
    """The body with the model of a member."""
    document = {**request.document, "model": entry.model}
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a character that was cut, which JSON can only escape
        return json.dumps(document, separators=(",", ":")).encode()


def headers(
    given: Iterable[tuple[bytes, bytes]], request: ProviderRequest, entry: RouteEntry, *, key: str | None, size: int
) -> Headers:
    """The headers for a member: its host and, if it has a key, that one instead of the caller's; `size` is that of the
    body in bytes. The events of a stream are read on the way, so they must not be compressed.
    """
    dropped = {*_REPLACED, *(KEY_HEADERS if key else ()), *((b"accept-encoding",) if request.is_streamed else ())}
    kept = [(name, value) for name, value in given if name.lower() not in dropped]
    own = [(b"host", urlsplit(entry.base_url).netloc.encode("idna")), (b"content-length", str(size).encode())]
    if request.is_streamed:
        own.append((b"accept-encoding", b"identity"))
    if key:
        bearer = (b"authorization", f"Bearer {key}".encode())
        own.append((b"x-api-key", key.encode()) if entry.dialect == "anthropic" else bearer)
    return [*own, *kept]


class Progress(Enum):
    """`WAITING`: nothing that a caller would show. `CONTENT`: a token, or a regular end. `FAILED`: an error."""

    WAITING = "waiting"
    CONTENT = "content"
    FAILED = "failed"


class FirstContent:
    """The progress of one stream in a dialect, up to its first content or failure, by the knowledge of the agent."""

    def __init__(self, dialect: str) -> None:
        self._reader = ResponseReader(DIALECTS[dialect])
        self._is_finished = False
        self._is_unread = False

    def receive(self, data: bytes) -> Progress:
        """Feed the next bytes. Frames without content, and those that are not understood, are no progress."""
        try:
            return self._judge(self._reader.receive(data))
        except SseOverflow:
            return Progress.CONTENT  # the caller judges it

    def end(self, last: bytes = b"") -> Progress:
        """Judge the last bytes, and what the end of the stream completes."""
        if _is_answer(last):
            return Progress.WAITING
        progress = self.receive(last) if last else Progress.WAITING
        progress = self._judge(self._reader.end()) if progress is Progress.WAITING else progress
        return Progress.CONTENT if progress is Progress.WAITING and self._is_finished else progress

    def _judge(self, signals: Iterable[Signal]) -> Progress:
        for signal in signals:
            self._is_unread = self._is_unread or isinstance(signal, Unknown)
            if signal == DONE and self._is_unread and not self._is_finished:
                return Progress.FAILED  # after nothing but frames that are not understood, it says no success
            # Some servers state a reason in each chunk: content or a failure may follow.
            self._is_finished = self._is_finished or isinstance(signal, Finished)
            if progress := _progress_of(signal):
                return progress
        return Progress.WAITING


def _is_answer(body: bytes) -> bool:
    """Return whether a whole body is an answer without an error, as most are, without a look at its frames."""
    try:
        message = json.loads(body) if body else None
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and not _CONTENT.isdisjoint(message) and stated_failure(message) is None


def _progress_of(signal: Signal) -> Progress | None:
    match signal:
        case Failed(outcome=outcome):
            # Another member would refuse the prompt as well.
            return Progress.CONTENT if outcome is Outcome.FILTERED else Progress.FAILED
        case Finished(final=True) | Answer():
            return Progress.CONTENT
        case Reasoning(chars):
            return Progress.CONTENT if chars else None
    return None
