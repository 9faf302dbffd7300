"""Failures that providers state: error bodies, errors inside streams, and finish reasons, in all their forms."""

import html
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from isochrone_common.dialects.signals import Failed, Finished, Signal
from isochrone_wire.model import SECOND_US, Outcome
from isochrone_wire.workloads import TOKEN_LIMITS

_RETRY_INFO = "google.rpc.RetryInfo"
# Up to eleven days; no provider asks for a longer wait.
_PROTOBUF_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")
# The names of a rate-limit error at OpenAI, Anthropic, Google, Volcengine, DashScope and AWS, without separators, and
# the numbers of Zhipu's.
_THROTTLED = re.compile(
    r"(?<!\d)429(?!\d)|ratelimit|resourceexhausted|throttl|toomanyrequests|limit(requests|burst)|^130[235]$"
)
# MiniMax's numbers of a rate limit, in `base_resp` only: elsewhere they mean other things.
_MINIMAX_LIMITS = (1002, 1039)
# Those of an error of the content filter at OpenAI, Azure and DashScope.
_FILTER_ERROR = re.compile(
    r"contentfilter|contentpolicy|responsibleai|datainspection|moderationblocked|prohibitedcontent|guardrail"
)
_SEPARATORS = re.compile(r"[\s._-]+")
# The sentence decides only if nothing else states the kind of the error.
_RATE_LIMIT_SENTENCE = re.compile(r"too many requests|rate.?limit\w* (reached|exceeded)|exceeded your", re.IGNORECASE)
ERROR_EVENT = b"error"
# The fields that state an error's text and kind, over all providers. An object of nothing else is an error.
# The first are those of an error that nothing else marks as one.
_BARE_TEXTS = ("message", "msg", "detail", "details", "error_msg", "error_message", "errorMessage", "Message")
_TEXTS = (*_BARE_TEXTS, "error_description", "status_msg", "title", "text", "faultstring", "reason")
# Further fields that may contain the text of a refusal.
_PLACES = (*_TEXTS, "error", "errors", "data", "result")
_CODES = ("code", "error_code", "errorCode", "status_code", "statusCode", "Code")
_KINDS = (*_CODES, "type", "status", "error_type", "__type")
# The parts of a message in which an error may be, beside the message itself.
_HOLDERS = ("x_groq", "response", "data", "detail", "message", "result", "body")
# The names of a field whose value is an error; AWS names it after the exception.
_ERROR_NAME = re.compile(r"errors?|err|fault|exception|\w+Exception")
# The fields of content and metadata: an object that has one of them states no error by its text alone.
_CONTENT = ("choices", "candidates", "delta", "usage", "usageMetadata", "content", "output")
_ERROR_FIELDS = frozenset((*_TEXTS, *_KINDS)) | {
    *("id", "object", "param", "reason", "request_id", "requestId", "sid", "success", "timestamp", "path", "event_id"),
}
_SUCCESS = ("", "0", "200", "20000", "ok", "success")
# Finish reasons that are errors of the provider, and those of its content filter, of all dialects, without separators.
FAILED_REASON = re.compile(
    r"abort|error|fail|cancel|timeout|exception|overload|insufficient|malformed|unexpected|other$|unspecified|preempt"
    r"|interrupt|disconnect|kill|evict|crash|lost|unhealthy|unavailable|missing|toomany|noimage"
)
_FILTER_REASON = re.compile(
    r"filter|safe|recitation|block|prohibited|spii|refus|sensitive|toxic|guardrail|^language$|moderation|policy|modelarmor"
    r"|risk|harm|censor|violation"
)
_NO_REASON = ("", "none", "null")
_EVENT = re.compile(rb"\s*(?:(?:event|id|retry)?:[^\n]*\n)*data:([^\n]*)")
_TITLE = re.compile(rb"<(title|h[1-4]|pre|message)[^>]*>\s*([^<\s][^<]*)</", re.IGNORECASE)
_PYTHON_PROBLEM = re.compile(r"'loc': ([(\[][^)\]]{1,200}[)\]]|'[^']{1,200}'), 'msg': (['\"])(.{1,400}?)\2[,}]")
_SENTENCE_CHARS = 400
_MAX_LINES = 3
# A text in another encoding than UTF-8 has few bytes that are not valid in it.
_READABLE_SHARE = 4
_LIKE_AN_ERROR = re.compile(
    r"error|exception|throttl|fail|limit|quota|denied|unavailable|exceed|time.?out|invalid|forbidden|overload"
    r"|not found|unauthorized|too many requests|bad gateway",
    re.IGNORECASE,
)
# The beginning of a text that states an error, as `[ERROR] …`, `RuntimeError: …` or Python's `{'error': …}`.
_BEGINS_AS_ERROR = re.compile(r"\W{0,3}\w*(error|exception)\b[\]\s:]*", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"unsupported|not (supported|permitted|allowed|expected)|unknown|unrecogni|unexpected|extra|deprecated",
    re.IGNORECASE,
)
_SECRET_LIKE = re.compile(r"\b(sk|gsk|xai|key|AIza)[-_A-Za-z0-9*.]{6,}")


def parse_json(data: bytes) -> dict[str, Any]:
    """Parse the JSON object in an event or body, which may be in a list, as Google sends it. Raises `ValueError`."""
    try:
        parsed = json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise ValueError("the stream contains data that is not JSON") from error
    if isinstance(parsed, str) and parsed[:1] == "{":  # encoded twice
        return parse_json(parsed.encode(errors="replace"))
    parsed = parsed[0] if isinstance(parsed, list) and parsed else parsed
    if not isinstance(parsed, dict):
        raise ValueError("the stream contains JSON that is not an object")  # noqa: TRY004  # one error for all malformed data
    return parsed


def error_sentence(body: bytes) -> str:
    """Extract one sentence from the body of a refusal in any of the known shapes; empty if it has none."""
    stated = _stated(body)
    try:
        return sentence_of(stated) if stated else title_of(body) or _plain_sentence(body)
    except RecursionError:
        return ""


def omission_hint(body: bytes, sent: Iterable[str]) -> str:
    """Return which of these optional fields to try without, if the body of a refusal names them; else nothing."""
    stated = _stated(body)
    text = f"{error_sentence(body)} {stated.get('param') if isinstance(stated, dict) else ''}"
    named = [name for name in sent if re.search(rf"(?<!\w){name}(?!\w)", text)]
    # The value of a token limit may be refused, too.
    named = [name for name in named if name not in TOKEN_LIMITS or _UNSUPPORTED.search(text)]
    options = " ".join(f"--omit {name}" for name in named)
    return f"try {options}, or omit: [{', '.join(named)}] in the plan" if named else ""


def stated_wait_us(body: bytes) -> int | None:
    """Extract the wait in microseconds from an error body, where Google states it (`google.rpc.RetryInfo`)."""
    return _retry_info_us(_stated(body))


def tidy(sentence: str) -> str:
    """Put a provider's error text on one line, and mask anything that looks like a key."""
    return _SECRET_LIKE.sub("***", " ".join(sentence.split()))


def in_band_failure(error: object, outer: Mapping[str, object] = MappingProxyType({})) -> Failed:
    """Build the failure for `{"error": …}` inside a stream of status 200, by its kind (rate limit, filter, other)."""
    try:
        return _in_band_failure(error, outer)
    except RecursionError:
        return Failed(outcome=Outcome.STREAM_ERROR, error="error inside the stream: no message")


def _in_band_failure(error: object, outer: Mapping[str, object]) -> Failed:
    fields = error if isinstance(error, dict) else {"message": None if error is True else error}
    nested = fields.get("error")
    places = [one for one in (nested, fields, outer) if isinstance(one, Mapping)]
    words = [str(one.get(name) or "").lower() for one in places for name in _KINDS]
    sentence = next(filter(None, (sentence_of(one.get(name)) for one in places for name in _TEXTS)), "")
    sentence = sentence or ("" if isinstance(nested, dict) else sentence_of(nested))
    if isinstance(error, str) and sentence:
        sentence = _explained(sentence, outer)
    stated = sentence or " ".join(filter(None, words))
    return Failed(
        outcome=_outcome(words, sentence),
        error=f"error inside the stream: {stated or 'no message'}",
        retry_after_us=_retry_info_us(fields),
        has_reason=bool(stated),
    )


def _outcome(words: list[str], sentence: str) -> Outcome:
    kinds = [_SEPARATORS.sub("", word) for word in words]
    if any(map(_THROTTLED.search, kinds)) or (not any(words) and _RATE_LIMIT_SENTENCE.search(sentence)):
        return Outcome.THROTTLED
    return Outcome.FILTERED if any(map(_FILTER_ERROR.search, kinds)) else Outcome.STREAM_ERROR


def stated_failure(message: Mapping[str, Any], event_name: bytes = b"") -> Failed | None:
    """Return the failure that an object states in any of the known forms; `None` if it states none."""
    places: list[Any] = [message, *map(message.get, _HOLDERS)]
    for holder in (one for one in places if isinstance(one, dict)):
        for name, error in holder.items():
            if _ERROR_NAME.fullmatch(name) and _is_error(error):
                named = {"__type": name} if name.endswith("Exception") else {}
                return in_band_failure(error, {**named, **message, **holder})
    base = message.get("base_resp")
    if isinstance(base, dict) and not _is_success(base.get("status_code")):
        return in_band_failure(base, {"type": "rate_limit"} if base["status_code"] in _MINIMAX_LIMITS else {})
    has_code = not all(_is_success(message.get(name)) for name in ("error_code", "error_type"))
    # The name of an exception's event states its kind, as AWS sends it.
    kind = event_name.decode(errors="replace") if event_name.lower().endswith(b"exception") else ""
    is_stated = _is_named(message, event_name) or has_code or _is_bare(message)
    return in_band_failure(message, {"type": kind}) if is_stated else None


def _is_error(error: object) -> bool:
    """Return true for the value of an error's field unless it is empty, or states a success."""
    values = error.values() if isinstance(error, dict) else (error,)
    return any(value is True or (value and not _is_success(value)) for value in values)


def _is_named(message: Mapping[str, Any], event_name: bytes) -> bool:
    """Return true if the name of the event, or the type or status of its object, is that of an error."""
    names = (event_name.decode(errors="replace"), message.get("object"), message.get("type"))
    is_error = any(str(name).lower().endswith(("error", "exception")) for name in names)
    return is_error or str(message.get("status")).lower() == "error" or message.get("success") is False


def _is_bare(message: Mapping[str, Any]) -> bool:
    """Return true for an object without content that has the text of an error, and no code of success."""
    texts = [message[name] for name in _BARE_TEXTS if message.get(name)]
    if not texts or any(message.get(name) for name in _CONTENT):
        return False
    codes = [message[name] for name in _CODES if message.get(name) is not None]
    if codes:
        return not all(map(_is_success, codes))
    kinds = [message[name] for name in _KINDS if message.get(name) is not None]
    return _ERROR_FIELDS.issuperset(message) and (not kinds or any(map(_is_error_kind, kinds)))


def filtered(reason: str) -> Failed:
    """Return the failure of an answer that the provider's content filter cut or refused."""
    return Failed(outcome=Outcome.FILTERED, error=f"the provider's filter ended the answer: {tidy(reason)}")


def _is_success(code: object) -> bool:
    return code is None or code is True or str(code).lower() in _SUCCESS


def _is_error_kind(kind: object) -> bool:
    word = str(kind)
    return not _is_success(kind) and (word.isdecimal() or _LIKE_AN_ERROR.search(word) is not None)


def sentence_of(stated: object) -> str:
    """Return an error's text in any of its forms as one sentence: a string, an object, a list of FastAPI's problems."""
    if isinstance(stated, list):
        return "; ".join(filter(None, map(sentence_of, stated)))
    if isinstance(stated, str):
        return _unwrapped(stated)
    if not isinstance(stated, dict):
        return "" if stated is None or stated is True else tidy(str(stated))
    text = next(filter(None, (sentence_of(stated.get(name)) for name in _PLACES)), "")
    # OpenRouter quotes the answer of the provider beside a text of its own.
    metadata = stated.get("metadata")
    raw = sentence_of(metadata.get("raw")) if isinstance(metadata, dict) else ""
    text = ": ".join(filter(None, (text, raw)))
    place = stated.get("loc")
    if isinstance(place, list) and text:
        return f"{'.'.join(map(str, place))}: {text}"
    return text or _other_sentence(stated)


def _other_sentence(stated: Mapping[str, object]) -> str:
    """Return the first text of several words in an object without a known field, else its kind."""
    texts = (one for one in stated.values() if isinstance(one, dict) or (isinstance(one, str) and " " in one))
    kinds = " ".join(str(stated[name]) for name in _KINDS if stated.get(name))
    return next(filter(None, map(sentence_of, texts)), "") or tidy(kinds)


def _unwrapped(text: str) -> str:
    """Return a text on one line; for one that is JSON, or Python's notation of FastAPI's problems, what that states."""
    if problems := _PYTHON_PROBLEM.findall(text):
        places = (".".join(re.findall(r"[^', ()\[\]]+", place)) for place, _, _ in problems)
        return "; ".join(f"{place}: {tidy(problem)}" for place, (_, _, problem) in zip(places, problems, strict=True))
    try:
        inner = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        inner = None
    return (sentence_of(inner) if inner else "") or tidy(text)


def unframed_failure(body: bytes) -> Failed | None:
    """Judge text outside of events as the body of an error; `None` if it states no error yet."""
    if failure := _failure_in(*dict.fromkeys((body, *body.splitlines()[:_MAX_LINES]))):
        return failure
    text = error_text(body)
    return in_band_failure(text) if text else None


def _failure_in(*texts: bytes) -> Failed | None:
    for text in texts:
        with suppress(ValueError):
            if failure := stated_failure(parse_json(text)):
                return failure
    return None


def error_text(body: bytes) -> str:
    """Return a short text that reads like an error, or such a title of a page; empty for anything else."""
    text = title_of(body) or body.decode(errors="replace").strip()
    pattern = _BEGINS_AS_ERROR.match if text[:1] in ("{", "[", "<") else _LIKE_AN_ERROR.search
    return tidy(text) if len(text) <= _SENTENCE_CHARS and pattern(text) else ""


def text_failure(data: bytes) -> Failed | None:
    """Return the failure of a frame that is no JSON: that of one of its lines, or a text that begins as an error."""
    if failure := _failure_in(*data.splitlines()[1:_MAX_LINES]):
        return failure
    text = data.decode(errors="replace").strip()
    named = None if text[:1] == "{" else _BEGINS_AS_ERROR.match(text)
    if not named and not _RATE_LIMIT_SENTENCE.search(error_text(data)):
        return None
    try:
        return in_band_failure(parse_json(text[named.end() :].encode() if named else b""))
    except ValueError:
        return in_band_failure(text[:_SENTENCE_CHARS])


def title_of(body: bytes) -> str:
    """Return the title or first heading of an HTML page, or the message of an XML document; empty if it has none."""
    found = _TITLE.search(body)
    return tidy(html.unescape(found[2].decode(errors="replace"))) if found else ""


def _stated(body: bytes) -> object:
    """Return the error in a body, an object, a list or a string; empty if there is none."""
    try:
        parsed = json.loads(_unframed(body).decode(errors="replace"))
    except (ValueError, RecursionError):
        return ""
    # Google sends a list with one element.
    parsed = parsed[0] if isinstance(parsed, list) and parsed else parsed
    if not isinstance(parsed, dict):
        return parsed if isinstance(parsed, str) else ""
    error, errors = parsed.get("error"), parsed.get("errors")
    if isinstance(errors, dict):
        errors = [{"loc": [name], "msg": problem} for name, problem in errors.items()]
    if isinstance(error, str):
        error = _explained(error, parsed)
    return (error if error is not True else None) or errors or parsed


def _unframed(body: bytes) -> bytes:
    """Return the data of a body that is an event, as some send refusals of streams; other bodies as they are."""
    event = _EVENT.match(body)
    return event[1] if event else body


def _explained(error: str, beside: Mapping[str, object]) -> str:
    """Return an error that is a text, and the sentence beside it, which explains a mere name such as `Bad Request`."""
    text = next(filter(None, (sentence_of(beside.get(name)) for name in _TEXTS)), "")
    return error if text in ("", error) else f"{error}: {text}"


def _plain_sentence(body: bytes) -> str:
    """Return the first line of a plain text; empty for markup, JSON and binary data."""
    text = _unframed(body).decode(errors="replace").strip()
    is_binary = "\ufffd" in text and (not text.isprintable() or text.count("\ufffd") > len(text) // _READABLE_SHARE)
    return "" if text[:1] in ("", "<", "{", "[") or text == "null" or is_binary else tidy(text.splitlines()[0])


def _retry_info_us(error: object) -> int | None:
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type")).endswith(_RETRY_INFO):
            delay = _PROTOBUF_DURATION.fullmatch(str(detail.get("retryDelay")))
            return round(float(delay[1]) * SECOND_US) if delay else None
    return None


def finish(reason: object, *, final: bool = False, error: object = None, detail: object = None) -> list[Signal]:
    """Return the signal of a finish reason: some are failures of the provider, with its error, some of its filter.

    `detail` is the provider's explanation of a reason; by itself it is no reason.
    """
    text = tidy(str(reason or ""))
    word = _SEPARATORS.sub("", text.lower())
    if word in _NO_REASON and not error:
        return [Finished(final=True)] if final else []
    explained = ": ".join(filter(None, (text, sentence_of(detail))))
    if _FILTER_REASON.search(word):
        return [filtered(explained)]
    if error:
        return [in_band_failure({"message": error})]
    if FAILED_REASON.search(word):
        return [replace(in_band_failure(f"the provider failed: {explained}"), has_reason=bool(detail))]
    return [Finished(text, final=final)]
