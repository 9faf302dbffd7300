"""Script transforms: each function takes a healthy script and returns a faulty or unusual one."""

from collections.abc import Callable
from dataclasses import replace

from isochrone_sim.exchange.error_response import ErrorResponse
from isochrone_sim.exchange.filler_text import multibyte_tokens
from isochrone_sim.exchange.script import Channel, Cut, Ending, Kind, Page, Script, Step, Style

TOKENS_BEFORE = 5
HUGE_LINE_BYTES = 10_000_000
SLOW_HEADERS_NS = 1_500_000_000
_PAUSE_NS = 1_000_000
_HTML = b"<!doctype html>\n<title>Welcome</title>\n<h1>It works!</h1>\n"

ScriptTransform = Callable[[Script], Script]


def nothing(script: Script) -> Script:
    """Return the script unchanged."""
    return script


def error_response(status: int, code: str, message: str, *, retry_after_us: int | None = None) -> ScriptTransform:
    """Send an error response in place of the stream."""
    response = ErrorResponse(status=status, code=code, message=message, retry_after_us=retry_after_us)
    return lambda script: replace(script, instead=response)


def styled(style: Style) -> ScriptTransform:
    """Send the same events in another format."""
    return lambda script: replace(script, style=style)


def no_usage(script: Script) -> Script:
    """Report no usage, wherever the dialect would."""
    return replace(script.without(Kind.USAGE), usage=None)


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
    """Send five tokens, then a data line of ten megabytes, then the rest."""
    return interrupted(Kind.RAW, '{"padding":"' + "x" * HUGE_LINE_BYTES + '"}')(script)


def silent(script: Script) -> Script:
    """Send nothing, and leave the connection open."""
    return replace(script, head_ns=None, steps=(), ending=Ending.HANG)


def headers_only(script: Script) -> Script:
    """Send the head only, and leave the connection open."""
    return replace(script, steps=(), ending=Ending.HANG)


def html(script: Script) -> Script:
    """Send a web page with status 200, as a wrong base URL does."""
    return replace(script, instead=Page(content_type="text/html; charset=utf-8", body=_HTML))


def error_in_band(script: Script) -> Script:
    """Send five tokens, then an error inside the stream, then the usual end marker."""
    start = script.until_token(TOKENS_BEFORE)
    at_ns = start.end_ns + _PAUSE_NS
    error = Step(at_ns, Kind.ERROR, "The server had an error while processing your request.")
    return replace(start, steps=(*start.steps, error, Step(at_ns, Kind.DONE)))


def error_in_band_first(script: Script) -> Script:
    """Send an error inside the stream in place of the first token, and nothing after it."""
    message = "The engine is currently overloaded, please try again later."
    error = Step(_first_token_ns(script), Kind.ERROR, message)
    return replace(script, steps=(*script.of_kind(Kind.ROLE), error))


def commented(script: Script) -> Script:
    """Add a comment half-way to the first token, and one after every fifth step."""
    half_ns = ((script.head_ns or 0) + _first_token_ns(script)) // 2
    steps = [*script.of_kind(Kind.ROLE), Step(half_ns, Kind.COMMENT, "keep-alive")]
    for number, step in enumerate(script.without(Kind.ROLE).steps, 1):
        steps.append(step)
        if number % TOKENS_BEFORE == 0:
            steps.append(Step(step.offset_ns, Kind.COMMENT, "keep-alive"))
    return replace(script, steps=tuple(steps))


def bundled_first(script: Script) -> Script:
    """Send the first five tokens together with the first; later tokens move forward, so that the rate after them stays
    true.
    """
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


def role_only(script: Script) -> Script:
    """Send the opening and the finish without tokens."""
    return _counting(script.without(Kind.TOKENS), output_tokens=0, reasoning_tokens=0)


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


def absurd_usage(script: Script) -> Script:
    """Report impossible token counts."""
    return _counting(script, prompt_tokens=-1, output_tokens=10**12)


def split_code_points(script: Script) -> Script:
    """Send text outside ASCII, with every write split inside a character."""
    texts = multibyte_tokens(len(_tokens(script.steps)))
    multibyte = iter(texts)
    steps = tuple(step._replace(text=next(multibyte)) if step.tokens else step for step in script.steps)
    return replace(script, steps=steps, style=Style(cut=Cut.CODE_POINTS))


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
    """Send a tool call: the first token names the tool, the others are pieces of its arguments, which together are
    JSON.
    """
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
    """Return the script's steps with its tokens replaced one for one."""
    new = iter(tokens)
    return tuple(next(new) if step.tokens else step for step in script.steps)


def _moved(step: Step, by_ns: int) -> Step:
    return step._replace(offset_ns=step.offset_ns + by_ns)


def _joined(steps: tuple[Step, ...], at_ns: int) -> Step:
    tokens = sum(step.tokens for step in steps)
    return steps[0]._replace(offset_ns=at_ns, text="".join(step.text for step in steps), tokens=tokens)


def _first_token_ns(script: Script) -> int:
    return next((step.offset_ns for step in script.steps if step.tokens), script.end_ns)
