"""The interface of a dialect, and the helpers that dialects share."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

from isochrone_common.dialects.signals import Failed, Signal
from isochrone_common.sse import Event
from isochrone_wire.model import SECOND_US, Outcome, Target

NONCE_CHARS = 12
_MAX_COUNT = 10_000_000
_RETRY_INFO = "google.rpc.RetryInfo"
# Up to eleven days; no provider asks for a longer wait.
_PROTOBUF_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")
# The names of a rate-limit error at OpenAI, Anthropic, Google, Volcengine, DashScope and AWS, without separators.
_THROTTLED = re.compile(r"(?<!\d)429(?!\d)|ratelimit|resourceexhausted|throttl|toomanyrequests|limit(requests|burst)")
_SEPARATORS = re.compile(r"[\s._-]+")
_SECRET_LIKE = re.compile(r"\b(sk|gsk|xai|key|AIza)[-_A-Za-z0-9*.]{6,}")


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
        return Request(url=f"{target.base_url.rstrip('/')}/{path}", headers=headers, body=json.dumps(body).encode())

    @abstractmethod
    def body(self, target: Target, prompt: str, quirks: Quirks) -> dict[str, Any]:
        """Return the body of the request for this prompt."""

    @abstractmethod
    def interpret(self, event: Event) -> list[Signal]:
        """Return the signals of an event, in order; empty if it has none. Raises `ValueError` if it is malformed."""


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


def parse_json(data: bytes) -> dict[str, Any]:
    """Parse the JSON object in an event or body. Raises `ValueError`, whose message does not quote the content."""
    try:
        parsed = json.loads(data)
    except ValueError as error:
        raise ValueError("the stream contains data that is not JSON") from error
    if not isinstance(parsed, dict):
        raise ValueError("the stream contains JSON that is not an object")  # noqa: TRY004  # one error for all malformed data
    return parsed


def error_sentence(body: bytes) -> str:
    """Extract one sentence from an error body in any of the known shapes; empty if it has none."""
    stated = _stated(body)
    if isinstance(stated, dict):
        stated = stated.get("message") or stated.get("code") or ""
    return tidy(str(stated))


def stated_wait_us(body: bytes) -> int | None:
    """Extract the wait in microseconds from an error body, where Google states it (`google.rpc.RetryInfo`)."""
    return _retry_info_us(_stated(body))


def tidy(sentence: str) -> str:
    """Put a provider's error text on one line, and mask anything that looks like a key."""
    return _SECRET_LIKE.sub("***", " ".join(sentence.split()))


def in_band_failure(error: object) -> Failed:
    """Build the failure for `{"error": …}` inside a stream of status 200; rate limits become `throttled`."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    words = [str(fields.get(name) or "").lower() for name in ("code", "type", "status")]
    throttled = any(_THROTTLED.search(_SEPARATORS.sub("", word)) for word in words)
    sentence = tidy(str(fields.get("message") or " ".join(words).strip() or "no message"))
    outcome = Outcome.THROTTLED if throttled else Outcome.HTTP_ERROR
    wait_us = _retry_info_us(fields)
    return Failed(outcome=outcome, error=f"error inside the stream: {sentence}", retry_after_us=wait_us)


def _stated(body: bytes) -> object:
    """Return the error in a body, an object or a string; empty if there is none."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return ""
    # Google sends a list with one element.
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
