"""Scripts into writes: events are framed as SSE and HTTP chunks, and cut where a fault wants them cut."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from isochrone_sim.dialects import Voice
from isochrone_sim.exchange.script import Beat, Channel, Cut, Ending, Script, Style
from isochrone_sim.response.compression import Encoding, Identity
from isochrone_sim.response.http_heads import LAST_CHUNK, chunk

_FLOOD_WRITE_BYTES = 1 << 16
_LATER_NS = 5_000_000
_APART_NS = 300_000
_CUT_TOKENS = 5
_FIRST_CONTINUATION, _LAST_CONTINUATION = 0x80, 0xBF

Said = tuple[tuple[Channel, int], ...]


class Frame(NamedTuple):
    """One write, `offset_ns` after the request, and how many output tokens of which channels it completes.

    A tuple and no dataclass: hundreds are made while other streams wait for their next token.
    """

    offset_ns: int
    data: bytes
    said: Said = ()


@dataclass(frozen=True, slots=True)
class Flood:
    """A write that is repeated as fast as the client reads, and what each time it says."""

    data: bytes
    said: Said


def stream_frames(script: Script, voice: Voice, *, head: bytes, encoding: Encoding | None = None) -> tuple[Frame, ...]:
    """The writes of a streamed response, whose `head` goes out first. Empty when not even the head does."""
    if script.head_ns is None:
        return ()
    encoding = encoding or Identity()
    frames = [Frame(script.head_ns, head), *_events(script, voice, encoding)]
    frames += _last(script, encoding.end())
    return tuple(_cut(_merged(frames), script.style))


def flood_of(script: Script, voice: Voice) -> Flood | None:
    """What is repeated behind the frames, if anything is: as many events as fit a good write. `voice` has rendered the
    frames before.
    """
    if script.flood is None:
        return None
    block = b""
    count = 0
    while len(block) < _FLOOD_WRITE_BYTES:
        block += _event(script.flood, script, voice)
        count += 1
    tokens = count * script.flood.tokens
    return Flood(chunk(block), ((script.flood.channel, tokens),) if tokens else ())


def body_frames(script: Script, response: bytes) -> tuple[Frame, ...]:
    """The writes of a response that is not streamed: all at once, with the last token. Half of it when the script does
    not end well, nothing when not even its head goes out.
    """
    if script.head_ns is None:
        return ()
    if script.ending is not Ending.KEEP_ALIVE:
        return (Frame(script.end_ns, response[: len(response) // 2]), *_last(script, b""))
    said: Counter[Channel] = Counter()
    for beat in script.beats:
        said[beat.channel] += beat.tokens
    return (Frame(script.end_ns, response, tuple((+said).items())),)


def _events(script: Script, voice: Voice, encoding: Encoding) -> Iterator[Frame]:
    """A frame for every beat that has an event; tokens without one are said by the next that has."""
    untold: Said = ()
    for beat in script.beats:
        event = _event(beat, script, voice)
        said = _with(untold, beat)
        untold = () if event else said
        if event:
            yield Frame(beat.offset_ns, chunk(encoding.event(event)), said)


def _event(beat: Beat, script: Script, voice: Voice) -> bytes:
    lines = voice.event(beat)
    if not lines:
        return b""
    newline = voice.newline if script.style.newline is None else script.style.newline
    event = lines + b"\n\n"
    return event if newline == b"\n" else event.replace(b"\n", newline)


def _with(said: Said, beat: Beat) -> Said:
    if not beat.tokens:
        return said
    if not said:
        return ((beat.channel, beat.tokens),)
    counted = Counter(dict(said))
    counted[beat.channel] += beat.tokens
    return tuple(counted.items())


def _last(script: Script, rest: bytes) -> tuple[Frame, ...]:
    """What ends the response, behind the `rest` of its body; a connection that will be broken gives the last token a
    moment to arrive.
    """
    if script.ending is Ending.KEEP_ALIVE:
        return (Frame(script.end_ns, (chunk(rest) if rest else b"") + LAST_CHUNK),)
    if script.ending is Ending.HANG:
        return ()
    return (Frame(script.end_ns + _LATER_NS, b""),)


def _merged(frames: Iterable[Frame]) -> list[Frame]:
    """What goes out at the same instant and completes no token is one write."""
    merged: list[Frame] = []
    for frame in frames:
        before = merged[-1] if merged else frame
        if merged and before.offset_ns == frame.offset_ns and not (before.said or frame.said):
            merged[-1] = before._replace(data=before.data + frame.data)
        else:
            merged.append(frame)
    return merged


def _cut(frames: list[Frame], style: Style) -> Iterator[Frame]:
    cut = _CUTS.get(style.cut)
    left = _CUT_TOKENS if style.cut is Cut.BYTES else len(frames)
    for frame in frames:
        if cut and frame.said and left > 0:
            left -= 1
            yield from cut(frame)
        else:
            yield frame


def _into_bytes(frame: Frame) -> Iterator[Frame]:
    """One write per byte; the last one, which completes the event, is on time."""
    last = len(frame.data) - 1
    for index in range(last):
        yield Frame(frame.offset_ns - _APART_NS, frame.data[index : index + 1])
    yield frame._replace(data=frame.data[last:])


def _inside_character(frame: Frame) -> Iterator[Frame]:
    """Two writes, cut before the first continuation byte; the second, which completes the event, is on time."""
    inside = (i for i, byte in enumerate(frame.data) if _FIRST_CONTINUATION <= byte <= _LAST_CONTINUATION)
    index = next(inside, len(frame.data) // 2)
    yield Frame(frame.offset_ns - _APART_NS, frame.data[:index])
    yield frame._replace(data=frame.data[index:])


_CUTS = {Cut.BYTES: _into_bytes, Cut.CODE_POINTS: _inside_character}
