"""What faults do to a script: each function takes a healthy script and returns one that went its own way."""

from collections.abc import Callable
from dataclasses import replace

from isochrone_sim.exchange.refusal import Refusal
from isochrone_sim.exchange.script import Beat, Channel, Cut, Ending, Kind, Page, Script, Style
from isochrone_sim.exchange.words import multibyte_prose

TOKENS_BEFORE = 5
HUGE_LINE_BYTES = 10_000_000
SLOW_HEADERS_NS = 1_500_000_000
_PAUSE_NS = 1_000_000
_HTML = b"<!doctype html>\n<title>Welcome</title>\n<h1>It works!</h1>\n"

Distortion = Callable[[Script], Script]


def nothing(script: Script) -> Script:
    """The script as it is."""
    return script


def refusing(status: int, code: str, message: str, *, retry_after_us: int | None = None) -> Distortion:
    """An error response in place of the stream."""
    refusal = Refusal(status=status, code=code, message=message, retry_after_us=retry_after_us)
    return lambda script: replace(script, instead=refusal)


def styled(style: Style) -> Distortion:
    """The same events, put on the wire in another way."""
    return lambda script: replace(script, style=style)


def no_usage(script: Script) -> Script:
    """The same stream without any count, wherever the dialect would have stated one."""
    return replace(script.without(Kind.USAGE), usage=None)


def flooded(kind: Kind, text: str, *, tokens: int = 0) -> Distortion:
    """Five tokens, and then this beat again and again."""
    flood = Beat(0, kind, text, tokens)
    return lambda script: replace(script.until_token(TOKENS_BEFORE), flood=flood, ending=Ending.CLOSE)


def without(*kinds: Kind) -> Distortion:
    """The same stream without the beats of these kinds."""
    return lambda script: script.without(*kinds)


def ending(ending: Ending) -> Distortion:
    """Five tokens, and then the connection ends in this way."""
    return lambda script: replace(script.until_token(TOKENS_BEFORE), ending=ending)


def interrupted(kind: Kind, text: str) -> Distortion:
    """Five tokens, then a beat that does not belong there, then the rest of the stream."""

    def reshape(script: Script) -> Script:
        index = script.index_after(TOKENS_BEFORE)
        stray = Beat(script.beats[index - 1].offset_ns + _PAUSE_NS, kind, text)
        return replace(script, beats=(*script.beats[:index], stray, *script.beats[index:]))

    return reshape


def huge_line(script: Script) -> Script:
    """Five tokens, then a data line of ten megabytes, then the rest."""
    return interrupted(Kind.RAW, '{"padding":"' + "x" * HUGE_LINE_BYTES + '"}')(script)


def silent(script: Script) -> Script:
    """Not even a head, and the connection stays open."""
    return replace(script, head_ns=None, beats=(), ending=Ending.HANG)


def headers_only(script: Script) -> Script:
    """A head, and the connection stays open."""
    return replace(script, beats=(), ending=Ending.HANG)


def html(script: Script) -> Script:
    """A web page of status 200, as a wrong base URL gives."""
    return replace(script, instead=Page(content_type="text/html; charset=utf-8", body=_HTML))


def error_in_band(script: Script) -> Script:
    """Five tokens, then an error inside the stream, then its usual end marker."""
    start = script.until_token(TOKENS_BEFORE)
    at_ns = start.end_ns + _PAUSE_NS
    error = Beat(at_ns, Kind.ERROR, "The server had an error while processing your request.")
    return replace(start, beats=(*start.beats, error, Beat(at_ns, Kind.DONE)))


def error_in_band_first(script: Script) -> Script:
    """An error inside the stream where the first token should be, and nothing after it."""
    message = "The engine is currently overloaded, please try again later."
    error = Beat(_first_token_ns(script), Kind.ERROR, message)
    return replace(script, beats=(*script.of_kind(Kind.ROLE), error))


def commented(script: Script) -> Script:
    """A comment half-way to the first token, and one after every fifth beat."""
    half_ns = ((script.head_ns or 0) + _first_token_ns(script)) // 2
    beats = [*script.of_kind(Kind.ROLE), Beat(half_ns, Kind.COMMENT, "keep-alive")]
    for number, beat in enumerate(script.without(Kind.ROLE).beats, 1):
        beats.append(beat)
        if number % TOKENS_BEFORE == 0:
            beats.append(Beat(beat.offset_ns, Kind.COMMENT, "keep-alive"))
    return replace(script, beats=tuple(beats))


def bundled_first(script: Script) -> Script:
    """The first five tokens come at the instant of the first; the rest moves up, so the rate after them stays true."""
    index = script.index_after(TOKENS_BEFORE)
    tokens = _tokens(script.beats[:index])
    others = [beat for beat in script.beats[:index] if not beat.tokens]
    gained_ns = tokens[-1].offset_ns - tokens[0].offset_ns
    rest = [_moved(beat, -gained_ns) for beat in script.beats[index:]]
    return replace(script, beats=(*others, _joined(tokens, tokens[0].offset_ns), *rest))


def one_chunk(script: Script) -> Script:
    """All tokens in one delta, at the instant of the last: a server that streams only in name."""
    tokens = _tokens(script.beats)
    first = script.beats.index(tokens[0])
    rest = script.beats[first + len(tokens) :]
    return replace(script, beats=(*script.beats[:first], _joined(tokens, tokens[-1].offset_ns), *rest))


def role_only(script: Script) -> Script:
    """The opening and the finish, and no token between."""
    return _counting(script.without(Kind.TOKENS), output_tokens=0, reasoning_tokens=0)


def null_content(script: Script) -> Script:
    """A null and an empty delta on the way to the first token."""
    start_ns = script.head_ns or 0
    between_ns = _first_token_ns(script) - start_ns
    void = (Beat(start_ns + between_ns // 3, Kind.NULL), Beat(start_ns + between_ns * 2 // 3, Kind.EMPTY))
    return replace(script, beats=(*script.of_kind(Kind.ROLE), *void, *script.without(Kind.ROLE).beats))


def usage_in_choice(script: Script) -> Script:
    """Usage beside the finish reason, asked for or not, and no end marker."""
    rest = script.without(Kind.USAGE, Kind.DONE).beats
    beats = tuple(beat._replace(kind=Kind.FINISH_WITH_USAGE) if beat.kind is Kind.FINISH else beat for beat in rest)
    return replace(script, beats=beats)


def absurd_usage(script: Script) -> Script:
    """Token counts that cannot be."""
    return _counting(script, prompt_tokens=-1, output_tokens=10**12)


def split_code_points(script: Script) -> Script:
    """Text outside ASCII, with every write cut inside a character."""
    texts = multibyte_prose(len(_tokens(script.beats)))
    multibyte = iter(texts)
    beats = tuple(beat._replace(text=next(multibyte)) if beat.tokens else beat for beat in script.beats)
    return replace(script, beats=beats, style=Style(cut=Cut.CODE_POINTS))


def after_end(script: Script) -> Script:
    """One more delta behind the end marker. It counts no token, being no part of the answer."""
    stray = Beat(script.end_ns + _PAUSE_NS, Kind.TOKENS, " and")
    return replace(script, beats=(*script.beats, stray))


def reasoning(script: Script) -> Script:
    """The first quarter of the tokens is reasoning aloud."""
    tokens = _tokens(script.beats)
    thoughts = len(tokens) // 4
    thought = tuple(beat._replace(channel=Channel.REASONING) for beat in tokens[:thoughts])
    reshaped = replace(script, beats=_with_tokens(script, (*thought, *tokens[thoughts:])))
    return _counting(reshaped, reasoning_tokens=thoughts)


def tool_call(script: Script) -> Script:
    """The first token names a tool, the others are pieces of its arguments, which together are JSON."""
    first, *rest = _tokens(script.beats)
    pieces = [beat.text for beat in rest]
    if pieces:
        pieces[0] = '{"query":"' + pieces[0]
        pieces[-1] += '"}'
    call = first._replace(kind=Kind.CALL, text="look_up", channel=Channel.TOOL)
    said = (beat._replace(text=text, channel=Channel.TOOL) for beat, text in zip(rest, pieces, strict=True))
    beats = _with_tokens(script, (call, *said))
    return replace(script, beats=tuple(b._replace(text="tool_calls") if b.kind is Kind.FINISH else b for b in beats))


def slow_headers(script: Script) -> Script:
    """A healthy stream of which nothing, not even the head, comes for 1.5 seconds more."""
    beats = tuple(_moved(beat, SLOW_HEADERS_NS) for beat in script.beats)
    return replace(script, head_ns=(script.head_ns or 0) + SLOW_HEADERS_NS, beats=beats)


def _counting(script: Script, **counts: int) -> Script:
    """The script with other counts in its usage, if it has any."""
    return replace(script, usage=replace(script.usage, **counts)) if script.usage else script


def _tokens(beats: tuple[Beat, ...]) -> tuple[Beat, ...]:
    return tuple(beat for beat in beats if beat.tokens)


def _with_tokens(script: Script, tokens: tuple[Beat, ...]) -> tuple[Beat, ...]:
    """The script's beats with these in place of its tokens, one for one."""
    new = iter(tokens)
    return tuple(next(new) if beat.tokens else beat for beat in script.beats)


def _moved(beat: Beat, by_ns: int) -> Beat:
    return beat._replace(offset_ns=beat.offset_ns + by_ns)


def _joined(beats: tuple[Beat, ...], at_ns: int) -> Beat:
    tokens = sum(beat.tokens for beat in beats)
    return beats[0]._replace(offset_ns=at_ns, text="".join(beat.text for beat in beats), tokens=tokens)


def _first_token_ns(script: Script) -> int:
    return next((beat.offset_ns for beat in script.beats if beat.tokens), script.end_ns)
