"""What every dialect offers, and the few words they all share."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from isochrone_agent.probe.dialects.signals import Failed, Signal
from isochrone_agent.probe.dialects.sse import Event
from isochrone_wire.model import SECOND_US, Outcome, Target

NONCE_CHARS = 12
_MAX_COUNT = 10_000_000
_RETRY_INFO = "google.rpc.RetryInfo"
# Up to eleven days: nobody asks to be left alone for longer.
_PROTOBUF_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")
# What OpenAI and Anthropic, Google, Volcengine, DashScope and AWS call a limit that will pass, written in one word.
_THROTTLED = re.compile(r"(?<!\d)429(?!\d)|ratelimit|resourceexhausted|throttl|toomanyrequests|limit(requests|burst)")
_MARKS = re.compile(r"[\s._-]+")
_SECRET_LIKE = re.compile(r"\b(sk|gsk|xai|key|AIza)[-_A-Za-z0-9*.]{6,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One POST: where to, with which headers (no key in `repr`), and which body."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """What a provider's flavour of a dialect wants otherwise.

    `token_limit` names the field that bounds the answer, `usage_option` says whether usage has to be asked for (and may
    be).
    """

    token_limit: str = "max_tokens"
    usage_option: bool = True


NO_QUIRKS = Quirks()


class Dialect(Protocol):
    """One API shape. Implementations are stateless: an event's signals follow from the event alone."""

    name: str

    def request(self, target: Target, *, nonce: str, key: str | None, quirks: Quirks) -> Request:
        """The request that sends the target's workload; byte-identical everywhere but for the nonce."""
        ...

    def interpret(self, event: Event) -> list[Signal]:
        """What an event says, in order; empty when it says nothing of interest. Raises `ValueError` when garbled."""
        ...

    def error(self, body: bytes) -> str:
        """One sentence from the body of an error response, without keys; empty when it has none."""
        ...


def make_nonce(*, target_id: int, round_at: int, vantage: str, stream: int = 0) -> str:
    """Twelve characters, different for every round, vantage and stream of a burst, so that no cache answers."""
    text = f"{target_id}:{round_at}:{vantage}:{stream}"
    return hashlib.sha256(text.encode()).hexdigest()[:NONCE_CHARS]


def with_nonce(prompt: str, nonce: str) -> str:
    """The prompt with its nonce in front, where it defeats prefix caches."""
    return f"[{nonce}] {prompt}"


def count(value: object) -> int | None:
    """A token count as stated, or `None` when it is missing, negative, absurd or no whole number."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT:
        return value
    return None


def parse_json(data: bytes) -> dict[str, Any]:
    """The JSON object in an event or body. Raises `ValueError` with a sentence that does not quote the content."""
    try:
        parsed = json.loads(data)
    except ValueError as error:
        raise ValueError("the stream holds something that is not JSON") from error
    if not isinstance(parsed, dict):
        raise ValueError("the stream holds JSON that is not an object")  # noqa: TRY004  # one error for all garbling
    return parsed


def error_sentence(body: bytes) -> str:
    """One sentence from an error body in any of the shapes in use; empty when it has none."""
    stated = _stated(body)
    if isinstance(stated, dict):
        stated = stated.get("message") or stated.get("code") or ""
    return tidy(str(stated))


def stated_wait_us(body: bytes) -> int | None:
    """How long to wait, in microseconds, as the body of an error response says it; `None` when it does not.

    Google says it there and in no header, in its own dialect and in the one it borrowed: `google.rpc.RetryInfo`.
    """
    return _retry_info_us(_stated(body))


def tidy(sentence: str) -> str:
    """A provider's error text on one line, with whatever looks like a key taken out."""
    return _SECRET_LIKE.sub("***", " ".join(sentence.split()))


def in_band_failure(error: object) -> Failed:
    """The failure that `{"error": …}` inside a stream of status 200 stands for; rate limits are told apart."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    words = [str(fields.get(name) or "").lower() for name in ("code", "type", "status")]
    throttled = any(_THROTTLED.search(_MARKS.sub("", word)) for word in words)
    sentence = tidy(str(fields.get("message") or " ".join(words).strip() or "no message"))
    outcome = Outcome.THROTTLED if throttled else Outcome.HTTP_ERROR
    wait_us = _retry_info_us(fields)
    return Failed(outcome=outcome, error=f"error inside the stream: {sentence}", retry_after_us=wait_us)


def _stated(body: bytes) -> object:
    """The error that a body holds, an object or a sentence; empty when it holds none."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return ""
    # Google sends a list of one.
    parsed = parsed[0] if isinstance(parsed, list) and parsed else parsed
    if not isinstance(parsed, dict):
        return ""
    return parsed.get("error") or parsed.get("detail") or parsed.get("message") or ""


def _retry_info_us(error: object) -> int | None:
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type")).endswith(_RETRY_INFO):
            delay = _PROTOBUF_DURATION.fullmatch(str(detail.get("retryDelay")))
            return round(float(delay[1]) * SECOND_US) if delay else None
    return None
