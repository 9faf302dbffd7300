"""Recordings of streams: files of the corpus in tests/testdata/wire, without texts and keys.

Every character of a text becomes `x`, except white space and the markers of reasoning. Field names, numbers, types,
finish reasons and the messages of errors stay, the latter without secrets and without the prompt. Events are redacted
whole, at the offset of the read that completes them, so that no text is hidden by the boundaries of reads.
"""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from isochrone_agent.probe.measurement import Measurement
from isochrone_common.dialects import DIALECTS
from isochrone_common.dialects.failures import stated_failure, tidy, unframed_failure
from isochrone_common.dialects.reader import ResponseReader
from isochrone_common.dialects.signals import Opened, Sent
from isochrone_common.sse import FIELDS
from isochrone_wire.model import Outcome, Sample, Target
from isochrone_wire.text import redact

NS_PER_MS = 1_000_000
_HEADERS = ("content-type", "content-encoding", "retry-after")
_MARKER = re.compile(r"(</?(?:think|thinking|reasoning|thought|seed:think)>|<\|[a-z]+\|>|\[/?THINK\]|\s+)|.", re.DOTALL)
# Their texts are words of the protocol.
_WORDS = {
    *("type", "object", "role", "status", "finish_reason", "stop_reason", "finishReason", "blockReason", "reason"),
    *("code", "error_code", "error_type", "status_code", "@type", "retryDelay"),
}
# The texts of an error, and the objects that never are a part of one.
_ERRORS = {"error", "errors", "message", "msg", "detail", "details", "error_msg", "error_message", "status_msg", "text"}
_CONTENT = {"choices", "candidates", "content", "delta", "output", "item", "input", "instructions", "metadata"}
_LONGEST_WORD = 64
# What the prober appends to a refusal that names an optional field of its request.
_HINT = re.compile(r" \(try --omit [^)]*\)$")
_FIELD = re.compile(rb"(?m)^(%b)?:" % b"|".join(FIELDS))
_END_OF_EVENT = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class Recorder:
    """Collects the head and the reads of one response."""

    def __init__(self) -> None:
        self.status = 0
        self.sent_ns = 0
        self.headers: dict[str, str] = {}
        self.reads: list[tuple[int, bytes]] = []

    def open(self, status: int, headers: Mapping[str, str], sent_ns: int) -> None:
        """Record the head of the response; a later one replaces it."""
        self.status, self.sent_ns, self.reads = status, sent_ns, []
        self.headers = {name: headers[name] for name in _HEADERS if name in headers}

    def read(self, data: bytes, at_ns: int) -> None:
        """Record a read at a time of the monotonic clock."""
        self.reads.append((at_ns, data))

    def document(self, target: Target, sample: Sample, *, key: str | None) -> dict[str, Any]:
        """Return the file of the corpus for this response and its sample."""
        hide = _Redaction(
            target.workload.prompt, key or "", refusal=sample.error if self.status != HTTPStatus.OK else None
        )
        frames = [((at_ns - self.sent_ns) // NS_PER_MS, hide.event(data)) for at_ns, data in _events(self.reads)]
        return {
            "situation": f"recorded: {sample.outcome.value}",
            "provider": target.provider or "unknown",
            "source": "isochrone-agent probe --record",
            "origin": "recorded",
            "dialect": target.dialect,
            "status": self.status,
            "headers": self.headers,
            "frames": frames,
            "expected": _expected(target.dialect, sample, frames, hide),
        }


class _Redaction:
    def __init__(self, prompt: str, key: str, *, refusal: str | None) -> None:
        self._secrets = (key, prompt)
        self._refusal = refusal or ""

    def event(self, data: bytes) -> str:
        """Return an event, or other text of a response, without its texts."""
        text = data.decode(errors="replace")
        name = next((line[6:].strip() for line in text.splitlines() if line.startswith("event:")), "")
        body = text.strip()
        if body.startswith("{"):
            return text.replace(body, self._payload(body, name))
        if not _FIELD.search(data) and (unframed_failure(data) or tidy(text) in self._refusal):
            return self.error(text) or ""
        return "".join(self._line(line, name) for line in re.split(r"(\r\n|\n|\r)", text))

    def error(self, text: str | None) -> str | None:
        """Return the message of an error without secrets, and without what it quotes of the prompt."""
        for secret in self._secrets:
            text = text and redact(text, secret)
        return text and tidy(text)

    def _line(self, line: str, name: str) -> str:
        field, colon, value = line.partition(":")
        if field in ("data", "error") and colon:
            space = value[: len(value) - len(value.lstrip())]
            return f"{field}:{space}{self._payload(value.strip(), name or field.replace('data', ''))}"
        if field in ("event", "retry"):
            return line
        return f"{field if field == 'id' else _mask(field)}{colon}{_mask(value)}"

    def _payload(self, payload: str, name: str) -> str:
        try:
            message = json.loads(payload)
        except (ValueError, RecursionError):
            if unframed_failure(payload.encode()):
                return self.error(payload) or ""
            return payload if payload == "[DONE]" else _mask(payload)
        fails = isinstance(message, dict) and stated_failure(message, name.encode()) is not None
        fails = fails or bool(self._refusal)
        return json.dumps(self._value(message, "", fails=fails), ensure_ascii=False, separators=(",", ":"))

    def _value(self, value: Any, field: str, *, fails: bool) -> Any:  # noqa: ANN401  # JSON of any shape
        if isinstance(value, dict):
            return {name: self._value(one, name, fails=fails and name not in _CONTENT) for name, one in value.items()}
        if isinstance(value, list):
            return [self._value(one, field, fails=fails) for one in value]
        if not isinstance(value, str):
            return value
        if fails and (field in _ERRORS or (tidy(value) and tidy(value) in self._refusal)):
            return self.error(value)
        is_word = field in _WORDS and len(value) <= _LONGEST_WORD and " " not in value
        return self.error(value) if is_word else _mask(value)


def _mask(text: str) -> str:
    return _MARKER.sub(lambda found: found[1] or "x", text)


def _events(reads: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Return each event with the time of the read that completes it, and what is left with that of the last read."""
    events, rest = [], b""
    for at_ns, data in reads:
        rest += data
        while end := _END_OF_EVENT.search(rest):
            events.append((at_ns, rest[: end.end()]))
            rest = rest[end.end() :]
    return [*events, (reads[-1][0], rest)] if rest else events


def _expected(dialect: str, sample: Sample, frames: list[tuple[int, str]], hide: _Redaction) -> dict[str, Any]:
    times = {f"{name}_ms": _ms(getattr(sample, f"{name}_us")) for name in ("ttft", "ttfat", "e2e")}
    has_content = [_replayed(dialect, frames[: end + 1]) for end in range(len(frames))]
    passes = sample.chunks or sample.outcome in (Outcome.OK, Outcome.FILTERED, Outcome.EMPTY)
    return {
        "outcome": sample.outcome.value,
        "error": hide.error(sample.error and _HINT.sub("", sample.error)),
        **times,
        "chunks": sample.chunks,
        "output_tokens": sample.output_tokens,
        "token_source": sample.token_source and sample.token_source.name.lower(),
        "has_speed": sample.tokens_per_second is not None,
        "frames_unknown": sample.frames_unknown,
        "client": "content" if passes else "failed",
        "first_content": next((at for at, one in enumerate(has_content) if one.chunks), None),
        "complete": next((at for at, one in enumerate(has_content) if one.outcome is Outcome.OK), None),
    }


def _ms(us: int | None) -> int | None:
    return None if us is None else us // 1000


def _replayed(dialect: str, frames: list[tuple[int, str]]) -> Sample:
    measurement, reader = Measurement(), ResponseReader(DIALECTS[dialect])
    measurement.observe(Sent(), 0)
    measurement.observe(Opened(status=200), 0)
    signals = [signal for _, text in frames for signal in reader.receive(text.encode())]
    for signal in [*signals, *reader.end()]:
        measurement.observe(signal, 1)
    return measurement.sample(target_id=1, round_at=0, dispatched_at=0)
