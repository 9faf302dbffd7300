"""Google's Gemini: `POST /v1beta/models/MODEL:streamGenerateContent?alt=sse`, and `:generateContent` for no stream.

Every event is a whole response with the parts that are new and the usage so far. Nothing opens the stream, and the
`finishReason` ends it. A function call comes in one piece, when it is complete.
"""

import re
from typing import Any
from urllib.parse import unquote

from isochrone_sim.dialects.base import (
    PLAIN_BEATS,
    Facts,
    Renderers,
    Voice,
    arguments_in,
    data_event,
    plain,
    quoted,
    reason_of,
    said_in,
    tool_of,
)
from isochrone_sim.dialects.fields import model_name, parse_body, table, temperature, texts_of, token_limit
from isochrone_sim.errors import RequestRefused
from isochrone_sim.exchange.refusal import Refusal, invalid
from isochrone_sim.exchange.request_parameters import Asked, count_prompt_tokens, find_nonce
from isochrone_sim.exchange.requests import Request
from isochrone_sim.exchange.script import Beat, Channel, Kind, Script, Usage

_PATH = re.compile(r"/v1beta/models/([^:]+):(streamGenerateContent|generateContent)")
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_REASONS = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP"}
_BUDGETS = ((16_384, "high"), (4096, "medium"), (1, "low"), (0, "none"))
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


class Gemini:
    """See `Dialect`."""

    name = "gemini"
    retry_after = False

    def serves(self, path: str) -> bool:
        """See `Dialect.serves`."""
        return _PATH.fullmatch(path) is not None

    def key(self, request: Request) -> str | None:
        """See `Dialect.key`: the header `x-goog-api-key`, or `key` in the query."""
        return request.headers.get("x-goog-api-key") or request.query.get("key")

    def read(self, request: Request) -> Asked:
        """See `Dialect.read`. A stream without `alt=sse`, which would be one long JSON list, is refused."""
        named = _PATH.fullmatch(request.path)
        stream = named is not None and named[2] == "streamGenerateContent"
        if stream and request.query.get("alt") != "sse":
            raise RequestRefused(invalid("Only alt=sse is streamed here.", param="alt"))
        fields = parse_body(request.body)
        config = table(fields.get("generationConfig"))
        thinking = table(config.get("thinkingConfig"))
        texts = texts_of(fields.get("contents"), param="contents", content="parts")
        return Asked(
            model=model_name(unquote(named[1]) if named else None),
            stream=stream,
            max_tokens=token_limit(config, "maxOutputTokens"),
            temperature=temperature(config),
            reasoning_effort=_effort(thinking),
            silent=bool(thinking) and thinking.get("includeThoughts") is not True,
            prompt_tokens=count_prompt_tokens(texts),
            nonce=find_nonce(texts),
        )

    def voice(self, asked: Asked, facts: Facts, usage: Usage | None) -> Voice:
        """See `Dialect.voice`."""
        return _Voice(facts, usage, silent=asked.silent)

    def headers(self, facts: Facts) -> dict[str, str]:
        """See `Dialect.headers`. Google has no request id of its own; this one leads to the truth."""
        return {"x-request-id": facts.request_id, "server-timing": f"gfet4t7; dur={facts.processing_us // 1000}"}

    def refusal(self, refusal: Refusal) -> bytes:
        """See `Dialect.refusal`."""
        error = _error(refusal.status, refusal.message)
        if refusal.retry_after_us is not None:
            error["details"] = [{"@type": _RETRY_INFO, "retryDelay": f"{refusal.retry_after_us / 1e6:g}s"}]
        return plain({"error": error})


class _Voice:
    """Counts the tokens it has said, for usage is cumulative; what is the same in every chunk is rendered once."""

    newline = b"\r\n"

    def __init__(self, facts: Facts, usage: Usage | None, *, silent: bool) -> None:
        self._about = {"modelVersion": facts.model, "responseId": facts.number}
        self._after = b"," + plain(self._about)[1:]
        self._usage = usage
        self._silent = silent
        self._counted = dict.fromkeys(Channel, 0)
        self._tool: str | None = None
        self._arguments: list[str] = []
        self._renderers: Renderers = {
            **PLAIN_BEATS,
            Kind.NULL: lambda _: self._chunk([]),
            Kind.EMPTY: lambda _: self._chunk([{"text": ""}]),
            Kind.TOKENS: self._tokens,
            Kind.CALL: self._call,
            Kind.FINISH: self._finish,
            Kind.FINISH_WITH_USAGE: self._finish,
            Kind.ERROR: lambda beat: data_event({"error": _error(500, beat.text)}),
        }

    def event(self, beat: Beat) -> bytes:
        self._counted[beat.channel] += beat.tokens
        render = self._renderers.get(beat.kind)
        return render(beat) if render else b""

    def whole(self, script: Script) -> bytes:
        said = said_in(script)
        thought, answer = "" if self._silent else said[Channel.REASONING], said[Channel.ANSWER]
        parts: list[dict[str, Any]] = [{"text": thought, "thought": True}] if thought else []
        parts += [{"text": answer}] if answer else []
        parts += _function_call(tool_of(script), said[Channel.TOOL])
        return plain(self._response(parts, reason_of(script), self._totals()))

    def _tokens(self, beat: Beat) -> bytes:
        if beat.channel is Channel.TOOL:
            self._arguments.append(beat.text)
            return b""
        if beat.channel is Channel.REASONING and self._silent:
            return b""
        thought = b',"thought":true' if beat.channel is Channel.REASONING else b""
        return b'data: {"candidates":[{"content":{"parts":[{"text":%b%b}],"role":"model"},"index":0}]%b%b' % (
            quoted(beat.text),
            thought,
            self._stated(),
            self._after,
        )

    def _call(self, beat: Beat) -> bytes:
        self._tool = beat.text
        return b""

    def _finish(self, beat: Beat) -> bytes:
        parts = _function_call(self._tool, "".join(self._arguments))
        return data_event(self._response(parts or [{"text": ""}], beat.text, self._totals()))

    def _chunk(self, parts: list[dict[str, Any]]) -> bytes:
        return data_event(self._response(parts, None, self._so_far()))

    def _response(self, parts: list[dict[str, Any]], reason: str | None, usage: dict[str, Any]) -> dict[str, Any]:
        content = {"parts": parts, "role": "model"} if parts else {"role": "model"}
        candidate: dict[str, Any] = {"content": content, "index": 0}
        if reason is not None:
            candidate["finishReason"] = _REASONS.get(reason, reason)
        return {"candidates": [candidate], **usage, **self._about}

    def _stated(self) -> bytes:
        usage = self._so_far()
        return b"," + plain(usage)[1:-1] if usage else b""

    def _so_far(self) -> dict[str, Any]:
        thoughts = self._counted[Channel.REASONING]
        return self._metadata(sum(self._counted.values()) - thoughts, thoughts)

    def _totals(self) -> dict[str, Any]:
        if self._usage is None:
            return {}
        thoughts = self._usage.reasoning_tokens
        return self._metadata(self._usage.output_tokens - thoughts, thoughts)

    def _metadata(self, candidates: int, thoughts: int) -> dict[str, Any]:
        usage = self._usage
        if usage is None:
            return {}
        counts: dict[str, Any] = {"promptTokenCount": usage.prompt_tokens}
        if candidates:
            counts["candidatesTokenCount"] = candidates
        counts["totalTokenCount"] = usage.prompt_tokens + candidates + thoughts
        if usage.cached_tokens:
            counts["cachedContentTokenCount"] = usage.cached_tokens
        if thoughts:
            counts["thoughtsTokenCount"] = thoughts
        return {"usageMetadata": counts}


def _function_call(name: str | None, arguments: str) -> list[dict[str, Any]]:
    if name is None:
        return []
    return [{"functionCall": {"name": name, "args": arguments_in(arguments)}}]


def _effort(thinking: dict[str, Any]) -> str | None:
    budget, level = thinking.get("thinkingBudget"), thinking.get("thinkingLevel")
    if isinstance(budget, int) and budget >= 0:
        return next((effort for least, effort in _BUDGETS if budget >= least), None)
    return level.lower() if isinstance(level, str) else "medium" if thinking else None


def _error(status: int, message: str) -> dict[str, Any]:
    return {"code": status, "message": message, "status": _STATUSES.get(status, "UNKNOWN")}
