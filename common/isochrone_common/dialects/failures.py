"""Failures that providers state: error bodies, errors inside streams, and finish reasons, in all their forms."""

import html
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from isochrone_common.dialects.signals import Failed, Finished, Signal
from isochrone_wire.model import SECOND_US, Outcome

_RETRY_INFO = "google.rpc.RetryInfo"
# Up to eleven days; no provider asks for a longer wait.
_PROTOBUF_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")
# The names of a rate-limit error at OpenAI, Anthropic, Google, Volcengine, DashScope and AWS, without separators.
_THROTTLED = re.compile(r"(?<!\d)429(?!\d)|ratelimit|resourceexhausted|throttl|toomanyrequests|limit(requests|burst)")
_SEPARATORS = re.compile(r"[\s._-]+")
# The sentence decides only if nothing else states the kind of the error.
_RATE_LIMIT_SENTENCE = re.compile(r"too many requests|rate.?limit\w* (reached|exceeded)|exceeded your", re.IGNORECASE)
ERROR_EVENT = b"error"
# The fields that state an error's text and kind, over all providers. An object of nothing else is an error.
_TEXTS = ("message", "msg", "detail", "details", "error_msg", "errorMessage", "Message", "status_msg", "title", "text")
# Those of an error that nothing else marks as one.
_BARE_TEXTS = ("message", "msg", "detail", "details", "error_msg", "errorMessage", "Message")
_KINDS = ("code", "type", "status", "error_code", "error_type", "status_code", "statusCode", "Code", "__type")
_ERROR_FIELDS = frozenset((*_TEXTS, *_KINDS)) | {
    *("id", "object", "param", "reason", "request_id", "requestId", "sid", "success", "timestamp", "path", "event_id"),
}
_SUCCESS = ("", "0", "200", "20000", "ok", "success")
# Finish reasons that are errors of the provider, and those of its content filter, over all dialects.
_FAILED_REASONS = (
    *("abort", "aborted", "cancelled", "error", "error_limit", "failed", "insufficient_system_resource", "timeout"),
    *("network_error", "malformed_function_call", "unexpected_tool_call", "model_error", "engine_error"),
)
_FILTERS = (
    *("content_filter", "content_filtered", "safety", "image_safety", "recitation", "blocklist", "prohibited_content"),
    *("spii", "refusal", "sensitive", "error_toxic", "guardrail_intervened", "language", "moderation"),
)
_TITLE = re.compile(rb"<(title|h1)[^>]*>([^<]*\S[^<]*)</", re.IGNORECASE)
_SENTENCE_BYTES = 400
_LIKE_AN_ERROR = re.compile(
    rb"error|exception|throttl|fail|limit|quota|denied|unavailable|exceed|time.?out|invalid|forbidden|overload"
    rb"|not found|unauthorized",
    re.IGNORECASE,
)
_SECRET_LIKE = re.compile(r"\b(sk|gsk|xai|key|AIza)[-_A-Za-z0-9*.]{6,}")


def parse_json(data: bytes) -> dict[str, Any]:
    """Parse the JSON object in an event or body. Raises `ValueError`, whose message does not quote the content."""
    try:
        parsed = json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise ValueError("the stream contains data that is not JSON") from error
    if not isinstance(parsed, dict):
        raise ValueError("the stream contains JSON that is not an object")  # noqa: TRY004  # one error for all malformed data
    return parsed


def error_sentence(body: bytes) -> str:
    """Extract one sentence from the body of a refusal in any of the known shapes; empty if it has none."""
    stated = _stated(body)
    return sentence_of(stated) if stated else title_of(body) or _plain_sentence(body)


def stated_wait_us(body: bytes) -> int | None:
    """Extract the wait in microseconds from an error body, where Google states it (`google.rpc.RetryInfo`)."""
    return _retry_info_us(_stated(body))


def tidy(sentence: str) -> str:
    """Put a provider's error text on one line, and mask anything that looks like a key."""
    return _SECRET_LIKE.sub("***", " ".join(sentence.split()))


def in_band_failure(error: object, outer: Mapping[str, object] = MappingProxyType({})) -> Failed:
    """Build the failure for `{"error": …}` inside a stream of status 200; rate limits become `throttled`."""
    fields = error if isinstance(error, dict) else {"message": error}
    words = [str(one.get(name) or "").lower() for one in (fields, outer) for name in _KINDS]
    sentence = next(filter(None, (sentence_of(one.get(name)) for one in (fields, outer) for name in _TEXTS)), "")
    throttled = any(_THROTTLED.search(_SEPARATORS.sub("", word)) for word in words)
    throttled = throttled or (not any(words) and _RATE_LIMIT_SENTENCE.search(sentence) is not None)
    return Failed(
        outcome=Outcome.THROTTLED if throttled else Outcome.STREAM_ERROR,
        error=f"error inside the stream: {sentence or ' '.join(filter(None, words)) or 'no message'}",
        retry_after_us=_retry_info_us(fields),
    )


def stated_failure(message: Mapping[str, Any], event_name: bytes = b"") -> Failed | None:
    """Return the failure that an object states in any of the known forms; `None` if it states none."""
    for holder in (message, message.get("x_groq"), message.get("response")):
        error = holder.get("error") if isinstance(holder, dict) else None
        if any(error.values()) if isinstance(error, dict) else error:
            return in_band_failure(error, message)
    base = message.get("base_resp")
    if isinstance(base, dict) and not _is_success(base.get("status_code")):
        return in_band_failure(base)
    is_named = event_name == ERROR_EVENT or event_name.lower().endswith(b"exception")
    is_named = is_named or "error" in (message.get("type"), message.get("object"))
    has_code = not _is_success(message.get("error_code"))
    is_bare = _ERROR_FIELDS.issuperset(message) and any(message.get(name) for name in _BARE_TEXTS)
    kinds = [message[name] for name in _KINDS if message.get(name) is not None]
    is_error = is_bare and (not kinds or any(map(_is_error_kind, kinds)))
    return in_band_failure(message) if is_named or has_code or is_error else None


def filtered(reason: str) -> Failed:
    """Return the failure of an answer that the provider's content filter cut or refused."""
    return Failed(outcome=Outcome.FILTERED, error=f"the provider's filter ended the answer: {tidy(reason)}")


def _is_success(code: object) -> bool:
    return code is None or code is True or str(code).lower() in _SUCCESS


def _is_error_kind(kind: object) -> bool:
    word = str(kind)
    return not _is_success(kind) and (word.isdecimal() or _LIKE_AN_ERROR.search(word.encode()) is not None)


def sentence_of(stated: object) -> str:
    """Return an error's text in any of its forms as one sentence: a string, an object, a list of FastAPI's problems."""
    if isinstance(stated, list):
        return "; ".join(filter(None, map(sentence_of, stated)))
    if not isinstance(stated, dict):
        return "" if stated is None else tidy(str(stated))
    text = next(filter(None, (sentence_of(stated.get(name)) for name in _TEXTS)), "")
    place = stated.get("loc")
    return f"{'.'.join(map(str, place))}: {text}" if isinstance(place, list) and text else text or _kind_of(stated)


def _kind_of(stated: Mapping[str, object]) -> str:
    return tidy(" ".join(str(stated[name]) for name in _KINDS if stated.get(name)))


def unframed_failure(body: bytes) -> Failed | None:
    """Judge text that is no event of a stream like the body of an error; `None` if it states none (yet)."""
    for piece in (body, *body.splitlines()[:3]):
        try:
            message = parse_json(piece)
        except ValueError:
            continue
        if failure := stated_failure(message):
            return failure
    is_sentence = len(body) <= _SENTENCE_BYTES and not set(b"{<") & set(body) and _LIKE_AN_ERROR.search(body)
    return in_band_failure(body.decode(errors="replace")) if is_sentence else None


def title_of(body: bytes) -> str:
    """Return the title or first heading of an HTML page, empty if it has none."""
    found = _TITLE.search(body)
    return tidy(html.unescape(found[2].decode(errors="replace"))) if found else ""


def _stated(body: bytes) -> object:
    """Return the error in a body, an object, a list or a string; empty if there is none."""
    try:
        parsed = json.loads(body.decode(errors="replace"))
    except (ValueError, RecursionError):
        return ""
    # Google sends a list with one element.
    parsed = parsed[0] if isinstance(parsed, list) and parsed else parsed
    if not isinstance(parsed, dict):
        return parsed if isinstance(parsed, str) else ""
    return parsed.get("error") or parsed.get("errors") or parsed


def _plain_sentence(body: bytes) -> str:
    """Return the first line of a plain text; empty for markup, JSON and binary data."""
    text = body.decode(errors="replace").strip()
    return (
        ""
        if text[:1] in ("", "<", "{", "[") or (not text.isprintable() and "\ufffd" in text)
        else tidy(text.splitlines()[0])
    )


def _retry_info_us(error: object) -> int | None:
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type")).endswith(_RETRY_INFO):
            delay = _PROTOBUF_DURATION.fullmatch(str(detail.get("retryDelay")))
            return round(float(delay[1]) * SECOND_US) if delay else None
    return None


def finish(reason: object, *, final: bool = False) -> Signal:
    """Return the signal of a finish reason: some are failures of the provider, some those of its content filter."""
    text, word = str(reason), str(reason).lower()
    if word in _FAILED_REASONS:
        return in_band_failure(f"the provider failed: {text}")
    if word in _FILTERS:
        return filtered(text)
    return Finished(text, final=final)
