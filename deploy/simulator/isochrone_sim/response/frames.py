"""Conversion of scripts to writes: events are framed as SSE and HTTP chunks, and split where a fault requires it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from isochrone_sim.dialects import Renderer
from isochrone_sim.exchange.script import Channel, Cut, Ending, Script, Step, Style
from isochrone_sim.response.compression import Encoding, Identity
from isochrone_sim.response.http_heads import LAST_CHUNK, chunk

_FLOOD_WRITE_BYTES = 1 << 16
_CLOSE_DELAY_NS = 5_000_000
_CUT_GAP_NS = 300_000
_CUT_TOKENS = 5
_FIRST_CONTINUATION, _LAST_CONTINUATION = 0x80, 0xBF

TokenCounts = tuple[tuple[Channel, int], ...]


class Frame(NamedTuple):
    """One write, `offset_ns` after the request, and the number of output tokens per channel that it completes.

    A named tuple instead of a dataclass, because hundreds are created while other streams wait for their next token.
    """

    offset_ns: int
    data: bytes
    token_counts: TokenCounts = ()


@dataclass(frozen=True, slots=True)
class Flood:
    """A write that is repeated as fast as the client reads, and its tokens per repetition."""

    data: bytes
    token_counts: TokenCounts


def stream_frames(
    script: Script, renderer: Renderer, *, head: bytes, encoding: Encoding | None = None
) -> tuple[Frame, ...]:
    """Return the writes of a streamed response, which begins with `head`. Empty if the script sends no head."""
    if script.head_ns is None:
        return ()
    encoding = encoding or Identity()
    frames = [Frame(script.head_ns, head), *_events(script, renderer, encoding)]
    frames += _final_frames(script, encoding.end())
    return tuple(_cut(_merged(frames), script.style))


def repeated_flood(script: Script, renderer: Renderer) -> Flood | None:
    """Return the write repeated after the frames, if any, with enough events for an efficient write. `renderer` must
    have rendered the frames before.
    """
    if script.flood is None:
        return None
    block = b""
    count = 0
    while len(block) < _FLOOD_WRITE_BYTES:
        block += _event(script.flood, script, renderer)
        count += 1
    tokens = count * script.flood.tokens
    return Flood(chunk(block), ((script.flood.channel, tokens),) if tokens else ())


def body_frames(script: Script, response: bytes) -> tuple[Frame, ...]:
    """Return the writes of a response that is not streamed: one write at the instant of the last token. Half of the
    body if the script does not end normally, nothing if it sends no head.
    """
    if script.head_ns is None:
        return ()
    if script.ending is not Ending.KEEP_ALIVE:
        return (Frame(script.end_ns, response[: len(response) // 2]), *_final_frames(script, b""))
    token_counts: Counter[Channel] = Counter()
    for step in script.steps:
        token_counts[step.channel] += step.tokens
    return (Frame(script.end_ns, response, tuple((+token_counts).items())),)


def _events(script: Script, renderer: Renderer, encoding: Encoding) -> Iterator[Frame]:
    """Yield a frame per step with an event; tokens of steps without one belong to the next frame."""
    pending: TokenCounts = ()
    for step in script.steps:
        event = _event(step, script, renderer)
        token_counts = _add_tokens(pending, step)
        pending = () if event else token_counts
        if event:
            yield Frame(step.offset_ns, chunk(encoding.event(event)), token_counts)


def _event(step: Step, script: Script, renderer: Renderer) -> bytes:
    lines = renderer.event(step)
    if not lines:
        return b""
    newline = renderer.newline if script.style.newline is None else script.style.newline
    event = lines + b"\n\n"
    return event if newline == b"\n" else event.replace(b"\n", newline)


def _add_tokens(token_counts: TokenCounts, step: Step) -> TokenCounts:
    if not step.tokens:
        return token_counts
    if not token_counts:
        return ((step.channel, step.tokens),)
    counted = Counter(dict(token_counts))
    counted[step.channel] += step.tokens
    return tuple(counted.items())


def _final_frames(script: Script, rest: bytes) -> tuple[Frame, ...]:
    """Return the end of the response after the `rest` of its body; before a connection is broken, the last token gets
    some time to arrive.
    """
    if script.ending is Ending.KEEP_ALIVE:
        return (Frame(script.end_ns, (chunk(rest) if rest else b"") + LAST_CHUNK),)
    if script.ending is Ending.HANG:
        return ()
    return (Frame(script.end_ns + _CLOSE_DELAY_NS, b""),)


def _merged(frames: Iterable[Frame]) -> list[Frame]:
    """Merge frames of the same instant that complete no token into one write."""
    merged: list[Frame] = []
    for frame in frames:
        before = merged[-1] if merged else frame
        if merged and before.offset_ns == frame.offset_ns and not (before.token_counts or frame.token_counts):
            merged[-1] = before._replace(data=before.data + frame.data)
        else:
            merged.append(frame)
    return merged


def _cut(frames: list[Frame], style: Style) -> Iterator[Frame]:
    cut = _CUTS.get(style.cut)
    left = _CUT_TOKENS if style.cut is Cut.BYTES else len(frames)
    for frame in frames:
        if cut and frame.token_counts and left > 0:
            left -= 1
            yield from cut(frame)
        else:
            yield frame


def _into_bytes(frame: Frame) -> Iterator[Frame]:
    """One write per byte; the last one, which completes the event, is on time."""
    last = len(frame.data) - 1
    for index in range(last):
        yield Frame(frame.offset_ns - _CUT_GAP_NS, frame.data[index : index + 1])
    yield frame._replace(data=frame.data[last:])


def _inside_character(frame: Frame) -> Iterator[Frame]:
    """Two writes, split before the first continuation byte; the second, which completes the event, is on time."""
    inside = (i for i, byte in enumerate(frame.data) if _FIRST_CONTINUATION <= byte <= _LAST_CONTINUATION)
    index = next(inside, len(frame.data) // 2)
    yield Frame(frame.offset_ns - _CUT_GAP_NS, frame.data[:index])
    yield frame._replace(data=frame.data[index:])


_CUTS = {Cut.BYTES: _into_bytes, Cut.CODE_POINTS: _inside_character}
