"""Faults: failures and unusual but valid behaviour of providers, each with its script transform.

A client must count responses with `fine` faults as successes, and all others as failures. Every fault works in every
dialect, in the format of that dialect. For requests without `stream`, error responses, pages and delays stay the same;
a fault that ends a stream early sends half of the body; faults in the format of a stream have no effect.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from isochrone_sim.requests import ErrorResponse
from isochrone_sim.script import Channel, Cut, Ending, Kind, Page, Script, Step, multibyte_tokens
from isochrone_sim.world import Model

TOKENS_BEFORE = 5
HUGE_LINE_BYTES = 10_000_000
SLOW_HEADERS_NS = 1_500_000_000
_PAUSE_NS = 1_000_000
_HTML = Page(
    content_type="text/html; charset=utf-8", body=b"<!doctype html>\n<title>Welcome</title>\n<h1>It works!</h1>\n"
)
ScriptTransform = Callable[[Script], Script]
RETRY_AFTER_US = 2_000_000
# Two bytes that never occur in UTF-8, in the form of `surrogateescape`.
_NOT_UTF8 = " caf\udcff\udcfe"


def flooded(kind: Kind, text: str, *, tokens: int = 0) -> ScriptTransform:
    """Send five tokens, then repeat this step as fast as the client reads."""
    flood = Step(0, kind, text, tokens)
    return lambda script: replace(script.until_token(TOKENS_BEFORE), flood=flood, ending=Ending.CLOSE)


def without(*kinds: Kind) -> ScriptTransform:
    """Leave out the steps of these kinds."""
    return lambda script: script.without(*kinds)


def ending(ending: Ending) -> ScriptTransform:
    """Send five tokens, then end the connection in this way."""
    return lambda script: replace(script.until_token(TOKENS_BEFORE), ending=ending)


def interrupted(kind: Kind, text: str) -> ScriptTransform:
    """Send five tokens, then an unexpected step, then the rest of the stream."""

    def transform(script: Script) -> Script:
        index = script.index_after(TOKENS_BEFORE)
        stray = Step(script.steps[index - 1].offset_ns + _PAUSE_NS, kind, text)
        return replace(script, steps=(*script.steps[:index], stray, *script.steps[index:]))

    return transform


def huge_line(script: Script) -> Script:
    """Send five tokens, then a data line of ten megabytes, which is not made before it is needed, then the rest."""
    return interrupted(Kind.RAW, '{"padding":"' + "x" * HUGE_LINE_BYTES + '"}')(script)


def error_in_band(script: Script) -> Script:
    """Send five tokens, then an error inside the stream, then the usual end marker."""
    start = script.until_token(TOKENS_BEFORE)
    at_ns = start.end_ns + _PAUSE_NS
    error = Step(at_ns, Kind.ERROR, "The server had an error while processing your request.")
    return replace(start, steps=(*start.steps, error, Step(at_ns, Kind.DONE)))


def error_in_band_first(script: Script) -> Script:
    """Send an error inside the stream in place of the first token, and nothing after it."""
    error = Step(_first_token_ns(script), Kind.ERROR, _OVERLOADED)
    return replace(script, steps=(*script.of_kind(Kind.ROLE), error))


def kept_alive(kind: Kind, text: str) -> ScriptTransform:
    """Add a step without meaning half-way to the first token, and one after every fifth step."""

    def transform(script: Script) -> Script:
        half_ns = ((script.head_ns or 0) + _first_token_ns(script)) // 2
        steps = [*script.of_kind(Kind.ROLE), Step(half_ns, kind, text)]
        for number, step in enumerate(script.without(Kind.ROLE).steps, 1):
            steps.append(step)
            if number % TOKENS_BEFORE == 0:
                steps.append(Step(step.offset_ns, kind, text))
        return replace(script, steps=tuple(steps))

    return transform


def bundled_first(script: Script) -> Script:
    """Send the first five tokens with the first; later tokens move forward, so that the rate after them stays true."""
    index = script.index_after(TOKENS_BEFORE)
    tokens = _tokens(script.steps[:index])
    others = [step for step in script.steps[:index] if not step.tokens]
    gained_ns = tokens[-1].offset_ns - tokens[0].offset_ns
    rest = [_moved(step, -gained_ns) for step in script.steps[index:]]
    return replace(script, steps=(*others, _joined(tokens, tokens[0].offset_ns), *rest))


def one_chunk(script: Script) -> Script:
    """Send all tokens in one delta at the instant of the last: a server that does not really stream."""
    tokens = _tokens(script.steps)
    first = script.steps.index(tokens[0])
    rest = script.steps[first + len(tokens) :]
    return replace(script, steps=(*script.steps[:first], _joined(tokens, tokens[-1].offset_ns), *rest))


def null_content(script: Script) -> Script:
    """Send a null and an empty delta before the first token."""
    start_ns = script.head_ns or 0
    between_ns = _first_token_ns(script) - start_ns
    void = (Step(start_ns + between_ns // 3, Kind.NULL), Step(start_ns + between_ns * 2 // 3, Kind.EMPTY))
    return replace(script, steps=(*script.of_kind(Kind.ROLE), *void, *script.without(Kind.ROLE).steps))


def usage_in_choice(script: Script) -> Script:
    """Send usage with the finish reason, requested or not, and no end marker."""
    rest = script.without(Kind.USAGE, Kind.DONE).steps
    steps = tuple(step._replace(kind=Kind.FINISH_WITH_USAGE) if step.kind is Kind.FINISH else step for step in rest)
    return replace(script, steps=steps)


def split_code_points(script: Script) -> Script:
    """Send text outside ASCII, with every write split inside a character."""
    texts = multibyte_tokens(len(_tokens(script.steps)))
    multibyte = iter(texts)
    steps = tuple(step._replace(text=next(multibyte)) if step.tokens else step for step in script.steps)
    return replace(script, steps=steps, cut=Cut.CODE_POINTS)


def after_end(script: Script) -> Script:
    """Send one more delta after the end marker. It counts no token, because it is not part of the answer."""
    stray = Step(script.end_ns + _PAUSE_NS, Kind.TOKENS, " and")
    return replace(script, steps=(*script.steps, stray))


def reasoning(script: Script) -> Script:
    """Send the first quarter of the tokens as reasoning."""
    tokens = _tokens(script.steps)
    thoughts = len(tokens) // 4
    thought = tuple(step._replace(channel=Channel.REASONING) for step in tokens[:thoughts])
    reshaped = replace(script, steps=_with_tokens(script, (*thought, *tokens[thoughts:])))
    return _counting(reshaped, reasoning_tokens=thoughts)


def tool_call(script: Script) -> Script:
    """Send a tool call: the first token names the tool, the others are pieces of its arguments, a JSON text."""
    first, *rest = _tokens(script.steps)
    pieces = [step.text for step in rest]
    if pieces:
        pieces[0] = '{"query":"' + pieces[0]
        pieces[-1] += '"}'
    call = first._replace(kind=Kind.CALL, text="look_up", channel=Channel.TOOL)
    arguments = (step._replace(text=text, channel=Channel.TOOL) for step, text in zip(rest, pieces, strict=True))
    steps = _with_tokens(script, (call, *arguments))
    return replace(script, steps=tuple(b._replace(text="tool_calls") if b.kind is Kind.FINISH else b for b in steps))


def slow_headers(script: Script) -> Script:
    """Delay a healthy stream, including its head, by 1.5 seconds."""
    steps = tuple(_moved(step, SLOW_HEADERS_NS) for step in script.steps)
    return replace(script, head_ns=(script.head_ns or 0) + SLOW_HEADERS_NS, steps=steps)


def _counting(script: Script, **counts: int) -> Script:
    """Return the script with changed counts in its usage, if it has any."""
    return replace(script, usage=replace(script.usage, **counts)) if script.usage else script


def _tokens(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(step for step in steps if step.tokens)


def _with_tokens(script: Script, tokens: tuple[Step, ...]) -> tuple[Step, ...]:
    new = iter(tokens)
    return tuple(next(new) if step.tokens else step for step in script.steps)


def _moved(step: Step, by_ns: int) -> Step:
    return step._replace(offset_ns=step.offset_ns + by_ns)


def _joined(steps: tuple[Step, ...], at_ns: int) -> Step:
    tokens = sum(step.tokens for step in steps)
    return steps[0]._replace(offset_ns=at_ns, text="".join(step.text for step in steps), tokens=tokens)


def _first_token_ns(script: Script) -> int:
    return next((step.offset_ns for step in script.steps if step.tokens), script.end_ns)


class Fault(NamedTuple):
    """One fault. `fine` if a client should still count the response as a success."""

    name: str
    sentence: str
    transform: ScriptTransform
    fine: bool


def fault_models() -> list[Model]:
    """Return a fast, steady model `fault-NAME` per fault: first token after 50 ms, then 40 tokens at 200 per second."""
    return [
        Model(
            id=f"fault-{fault.name}",
            title=fault.sentence,
            provider="faults",
            ttft_us=50_000,
            tokens_per_second=200.0,
            answer_tokens=40,
            steady=True,
            fault=fault.name,
        )
        for fault in FAULTS.values()
    ]


_OVERLOADED = "The engine is currently overloaded, please try again later."
# status: (what happens, code, message)
_ERRORS = {
    401: ("The key is refused.", "invalid_api_key", "Incorrect API key provided."),
    403: (
        "The caller's country or account may not use the model.",
        "unsupported_country_region_territory",
        "Country, region, or territory not supported.",
    ),
    404: ("The model does not exist.", "model_not_found", "The model does not exist or you do not have access to it."),
    429: (
        "The rate limit is reached: retry-after and rate-limit headers.",
        "rate_limit_exceeded",
        "Rate limit reached: too many requests.",
    ),
    500: ("The server fails.", "server_error", "The server had an error while processing your request."),
    503: ("The server is overloaded.", "overloaded", _OVERLOADED),
}


def _error(status: int, sentence: str, code: str, message: str) -> Fault:
    retry_after_us = RETRY_AFTER_US if code == "rate_limit_exceeded" else None
    response = ErrorResponse(status=status, code=code, message=message, retry_after_us=retry_after_us)
    return _bad(str(status), sentence, partial(replace, instead=response))


_fine, _bad = partial(Fault, fine=True), partial(Fault, fine=False)
_hanging = partial(replace, steps=(), ending=Ending.HANG)
_silent = partial(_hanging, head_ns=None)
_TABLE = (
    _fine("none", "A healthy stream, for comparison.", replace),
    *(_error(status, *about) for status, about in _ERRORS.items()),
    _bad("html", "Status 200 and a web page, as from a wrong base URL.", partial(replace, instead=_HTML)),
    _bad("silence", "The request is accepted but never answered; the connection stays open.", _silent),
    _bad("headers-only", "The head of a response, then nothing; the connection stays open.", _hanging),
    _fine("slow-headers", "Nothing at all for 1.5 s, then a healthy stream.", slow_headers),
    _bad("stall", "Five tokens, then nothing; the connection stays open.", ending(Ending.HANG)),
    _bad("cut", "Five tokens, then the connection is closed without a terminal chunk.", ending(Ending.CLOSE)),
    _bad("reset", "Five tokens, then the connection is reset.", ending(Ending.RESET)),
    _bad("truncated", "Five tokens, then the response ends without finish or end marker.", ending(Ending.KEEP_ALIVE)),
    _bad("in-band-error", "Five tokens, then an error event under status 200, and [DONE] if any.", error_in_band),
    _bad("in-band-error-first", "An error event in place of the first token, under status 200.", error_in_band_first),
    _fine(
        "garbage",
        "Five tokens, then broken JSON in a data line, then the rest.",
        interrupted(Kind.RAW, '{"choices":[{"delta":{"content":'),
    ),
    _fine(
        "invalid-utf8",
        "Five tokens, then a delta with bytes that are not UTF-8, then the rest.",
        interrupted(Kind.TOKENS, _NOT_UTF8),
    ),
    _bad("huge-line", "Five tokens, then a data line of 10 MB, then the rest.", huge_line),
    _bad(
        "role-only",
        "An opening and a finish without tokens.",
        lambda script: _counting(script.without(Kind.TOKENS), output_tokens=0, reasoning_tokens=0),
    ),
    _fine("after-end", "A content delta after the end marker.", after_end),
    _bad(
        "flood",
        "Five tokens, then content as fast as it is read, up to 1 GiB.",
        flooded(Kind.TOKENS, " and on", tokens=1),
    ),
    _bad(
        "endless-comments",
        "Five tokens, then comments as fast as they are read, up to 1 GiB.",
        flooded(Kind.COMMENT, "keep-alive"),
    ),
    _fine("crlf", "Lines end in CR LF.", partial(replace, newline=b"\r\n")),
    _fine("cr", "Lines end in a lone CR.", partial(replace, newline=b"\r")),
    _fine(
        "comments",
        "Comment lines (: keep-alive) before the first token and after others.",
        kept_alive(Kind.COMMENT, "keep-alive"),
    ),
    _fine("empty-data", "Empty data lines before the first token and after others.", kept_alive(Kind.RAW, "")),
    _fine("bundled-first", "The first chunk carries five tokens.", bundled_first),
    _fine("one-chunk", "The complete answer in one delta.", one_chunk),
    _fine("null-content", "Null and empty deltas before the first token.", null_content),
    _fine("split-code-points", "Text outside ASCII, every write split inside a character.", split_code_points),
    _fine(
        "byte-by-byte",
        "Every byte of the first five tokens' events in a separate write.",
        partial(replace, cut=Cut.BYTES),
    ),
    _fine(
        "no-usage",
        "No usage, even when requested.",
        lambda script: replace(script.without(Kind.USAGE), usage=None),
    ),
    _fine("no-done", "A finish, but no [DONE]; healthy in dialects without [DONE].", without(Kind.DONE)),
    _fine("usage-in-choice", "Usage with the finish reason, requested or not; no [DONE].", usage_in_choice),
    _fine(
        "absurd-usage",
        "Usage counts -1 prompt tokens and 10^12 output tokens.",
        lambda script: _counting(script, prompt_tokens=-1, output_tokens=10**12),
    ),
    _fine("reasoning", "The first quarter of the tokens is reasoning.", reasoning),
    _fine("tool-call", "A tool call, with arguments in pieces (from Gemini at once).", tool_call),
)
FAULTS: dict[str, Fault] = {fault.name: fault for fault in _TABLE}
