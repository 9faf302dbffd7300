"""Timelines: complete responses as bytes with instants, which the player plays and the ground truth is compared with.

`timeline` combines the token timing of the model, the script of the answer, the fault and the dialect. Events are
framed as SSE and HTTP chunks, and split where a fault requires it. Heads are built as bytes, so that faults can send
anything. With compression every event is flushed, so that the client can decode it at once.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from http import HTTPStatus
from random import Random
from typing import NamedTuple

from isochrone_sim.dialects import Dialect, Renderer, ResponseMetadata
from isochrone_sim.faults import FAULTS
from isochrone_sim.requests import ErrorResponse, RequestParameters
from isochrone_sim.script import Channel, Cut, Ending, Kind, Page, Script, Step, Usage, filler_tokens
from isochrone_sim.world import Model, TokenTiming, World, generator, token_timing

_FLOOD_WRITE_BYTES = 1 << 16
_CLOSE_DELAY_NS = 5_000_000
_CUT_GAP_NS = 300_000
_CUT_TOKENS = 5
_FIRST_CONTINUATION, _LAST_CONTINUATION = 0x80, 0xBF
TokenCounts = tuple[tuple[Channel, int], ...]
SERVER = "isochrone-sim"
STREAM = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "transfer-encoding": "chunked",
}
LAST_CHUNK = b"0\r\n\r\n"
# Providers send the head well before the first token.
_HEAD_SHARE = 0.3
_HEAD_MAX_NS = 200_000_000
_TRAILER_NS = 200_000
_REASONING_TOKENS = {"none": 0, "minimal": 8, "low": 16, "medium": 32, "high": 64}
_USUAL_EFFORT = "medium"
# Makes zlib add gzip's header and trailer.
_GZIP_BITS = 31
# Other streams wait while one is compressed: prefer speed and little memory over a small size.
_LEVEL, _MEMORY = 1, 5
OK = 200
ERROR_RESPONSE_NS = 5_000_000


class Frame(NamedTuple):
    """One write, `offset_ns` after the request, and the number of output tokens per channel that it completes.

    A named tuple instead of a dataclass, because hundreds are created while other streams wait for their next token.
    """

    offset_ns: int
    data: bytes
    token_counts: TokenCounts = ()


def head(status: int, headers: Mapping[str, str], *, at: int) -> bytes:
    """Return the status line and headers up to the blank line; `at` is the wall-clock instant in microseconds."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"server: {SERVER}"]
    lines.append(f"date: {formatdate(at / 1e6, usegmt=True)}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def complete_response(status: int, body: bytes, headers: Mapping[str, str], *, at: int) -> bytes:
    """Return a response with a body of known length, JSON unless `headers` state another type."""
    measured = {"content-type": "application/json", **headers, "content-length": str(len(body))}
    return head(status, measured, at=at) + body


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def wants_gzip(accept_encoding: str) -> bool:
    """Return true if the client's `Accept-Encoding` names gzip and allows it."""
    for offer in accept_encoding.lower().split(","):
        name, _, quality = offer.partition(";")
        if name.strip() == "gzip":
            return quality.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def answer_script(model: Model, parameters: RequestParameters, timing: TokenTiming, rng: Random) -> Script:
    """Return the script of a healthy answer, with everything that the request asks for.

    A reasoning model reasons only if the request asks for it (`reasoning_effort` other than "none"). Reasoning then
    comes first, at the same rate, and counts towards the limit. So the first token of a default request, at the
    published time, is a token of the answer.
    """
    effort = parameters.reasoning_effort if model.reasoning else "none"
    reasoning = _REASONING_TOKENS.get(effort or "none", _REASONING_TOKENS[_USUAL_EFFORT])
    wanted = reasoning + model.answer_tokens
    count = min(wanted, parameters.max_tokens or wanted)
    reasoning = min(reasoning, count)
    offsets = timing.offsets_ns(rng, count)
    channels = [Channel.REASONING] * reasoning + [Channel.ANSWER] * (count - reasoning)
    texts = filler_tokens(rng, reasoning) + filler_tokens(rng, count - reasoning)
    tokens = [
        Step(at, Kind.TOKENS, text, 1, channel) for at, text, channel in zip(offsets, texts, channels, strict=True)
    ]
    head_ns, end_ns = min(round(timing.ttft_ns * _HEAD_SHARE), _HEAD_MAX_NS), offsets[-1] + _TRAILER_NS
    finish = Step(end_ns, Kind.FINISH, "length" if count < wanted else "stop")
    counts = [Step(end_ns, Kind.USAGE)] if parameters.include_usage else []
    return Script(
        head_ns=head_ns,
        steps=(Step(head_ns, Kind.ROLE), *tokens, finish, *counts, Step(end_ns, Kind.DONE)),
        usage=Usage(prompt_tokens=parameters.prompt_tokens, output_tokens=count, reasoning_tokens=reasoning),
    )


def stream_frames(script: Script, renderer: Renderer, *, head: bytes, gzip: bool = False) -> tuple[Frame, ...]:
    """Return the writes of a streamed response, which begins with `head`. Empty if the script sends no head."""
    if script.head_ns is None:
        return ()
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_BITS, _MEMORY) if gzip else None
    frames = [Frame(script.head_ns, head), *_events(script, renderer, packer)]
    frames += _final_frames(script, packer.flush() if packer else b"")
    return tuple(_cut(_merged(frames), script.cut))


def repeated_flood(script: Script, renderer: Renderer) -> Frame | None:
    """Return the write repeated after the frames, if any, with enough events for an efficient write. `renderer` must
    have rendered the frames before.
    """
    if script.flood is None:
        return None
    block, count = b"", 0
    while len(block) < _FLOOD_WRITE_BYTES:
        block += _event(script.flood, script, renderer)
        count += 1
    tokens = count * script.flood.tokens
    return Frame(0, chunk(block), ((script.flood.channel, tokens),) if tokens else ())


def body_frames(script: Script, response: bytes) -> tuple[Frame, ...]:
    """Return the writes of a response that is not streamed: one write at the instant of the last token. Half of the
    body if the script does not end normally, nothing if it sends no head.
    """
    if script.head_ns is None:
        return ()
    if script.ending is not Ending.KEEP_ALIVE:
        return (Frame(script.end_ns, response[: len(response) // 2]), *_final_frames(script, b""))
    counts = {channel: sum(step.tokens for step in script.steps if step.channel is channel) for channel in Channel}
    return (Frame(script.end_ns, response, tuple(item for item in counts.items() if item[1])),)


def _events(script: Script, renderer: Renderer, packer: "zlib._Compress | None") -> Iterator[Frame]:
    """Yield a frame per step with an event; tokens of steps without one belong to the next frame."""
    pending: dict[Channel, int] = {}
    for step in script.steps:
        if step.tokens:
            pending[step.channel] = pending.get(step.channel, 0) + step.tokens
        if event := _event(step, script, renderer):
            packed = packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH) if packer else event
            yield Frame(step.offset_ns, chunk(packed), tuple(pending.items()))
            pending.clear()


def _event(step: Step, script: Script, renderer: Renderer) -> bytes:
    lines = renderer.event(step)
    if not lines:
        return b""
    newline = renderer.newline if script.newline is None else script.newline
    event = lines + b"\n\n"
    return event if newline == b"\n" else event.replace(b"\n", newline)


def _final_frames(script: Script, rest: bytes) -> tuple[Frame, ...]:
    """Return the end of the response after the `rest` of its body; a connection breaks after the last token arrived."""
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


def _cut(frames: list[Frame], cut: Cut) -> Iterator[Frame]:
    split = _CUTS.get(cut)
    left = _CUT_TOKENS if cut is Cut.BYTES else len(frames)
    for frame in frames:
        if split and frame.token_counts and left > 0:
            left -= 1
            yield from split(frame)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A response: its frames in order, the flood after them, which is repeated as fast as the client reads, and the
    final state of the connection.

    `ttft_us` (microseconds) and `tokens_per_second` are the planned values, `None` without tokens. `fault` is the
    injected fault.
    """

    status: int
    frames: tuple[Frame, ...]
    ending: Ending = Ending.KEEP_ALIVE
    ttft_us: int | None = None
    tokens_per_second: float | None = None
    fault: str | None = None
    flood: Frame | None = None


def timeline(
    model: Model,
    world: World,
    parameters: RequestParameters,
    metadata: ResponseMetadata,
    *,
    dialect: Dialect,
    region: str,
    content: bytes = b"",
) -> Timeline:
    """Return the response of `model`, in `dialect`, to a request from `region` at `metadata.created_at` (microseconds).

    `content` is the request's body; noise and words depend on it, so equal requests get equal answers.
    """
    rng = generator(world.seed, model.id, region, content=content)
    own_fault = model.fault if rng.random() < model.fault_share else None
    episodes = world.episodes_of(model.provider, region, at=metadata.created_at)
    fault = next((episode.fault for episode in episodes if episode.fault), own_fault)
    timing = token_timing(model, world, region=region, at=metadata.created_at, rng=rng)
    script = FAULTS[fault or "none"].transform(answer_script(model, parameters, timing, rng))
    metadata = replace(metadata, processing_us=(script.head_ns or 0) // 1000)
    renderer = dialect.renderer(parameters, metadata, script.usage)
    frames = _frames(script, parameters, metadata, dialect, renderer)
    first_ns = next((frame.offset_ns for frame in frames if frame.token_counts), None)
    return Timeline(
        status=script.instead.status if isinstance(script.instead, ErrorResponse) else OK,
        frames=frames,
        ending=script.ending,
        ttft_us=None if first_ns is None else first_ns // 1000,
        tokens_per_second=None if first_ns is None else timing.tokens_per_second,
        fault=fault,
        flood=repeated_flood(script, renderer) if parameters.stream else None,
    )


def error_timeline(response: ErrorResponse, metadata: ResponseMetadata, dialect: Dialect) -> Timeline:
    """Return an error response, sent five milliseconds after the request."""
    frame = Frame(ERROR_RESPONSE_NS, _error_document(response, metadata, dialect))
    return Timeline(status=response.status, frames=(frame,))


def _frames(
    script: Script, parameters: RequestParameters, metadata: ResponseMetadata, dialect: Dialect, renderer: Renderer
) -> tuple[Frame, ...]:
    headers = dialect.headers(metadata)
    if isinstance(script.instead, ErrorResponse):
        return (Frame(script.head_ns or 0, _error_document(script.instead, metadata, dialect)),)
    if isinstance(script.instead, Page):
        page = script.instead
        typed = {**headers, "content-type": page.content_type}
        return (Frame(script.head_ns or 0, complete_response(OK, page.body, typed, at=metadata.created_at)),)
    if parameters.stream:
        # A flood repeats one write, which is impossible with compression.
        gzip = parameters.gzip and script.flood is None
        encoded = {"content-encoding": "gzip", "vary": "accept-encoding"} if gzip else {}
        first = head(OK, {**STREAM, **headers, **encoded}, at=metadata.created_at)
        return stream_frames(script, renderer, head=first, gzip=gzip)
    return body_frames(script, complete_response(OK, renderer.body(script), headers, at=metadata.created_at))


def _error_document(response: ErrorResponse, metadata: ResponseMetadata, dialect: Dialect) -> bytes:
    wait_us = response.retry_after_us
    if wait_us is None:
        headers = dialect.headers(metadata)
    else:
        spent = metadata.rate_limit
        if spent:  # no request is left until then
            spent = replace(spent, requests=replace(spent.requests, remaining=0, reset_us=wait_us))
        seconds = max(1, -(-wait_us // 1_000_000))
        waits = {"retry-after": str(seconds), "retry-after-ms": str(wait_us // 1000)}
        headers = dialect.headers(replace(metadata, rate_limit=spent)) | (waits if dialect.retry_after else {})
    return complete_response(response.status, dialect.error_body(response), headers, at=metadata.created_at)
