"""A whole response as bytes with instants: what the player plays, and what the truth is compared with.

`timeline` is where everything meets: the model's pace, what it says, what goes wrong, and how the dialect puts it.
"""

from dataclasses import dataclass, replace

from isochrone_sim.dialects import Dialect, Facts, Voice
from isochrone_sim.exchange.refusal import Refusal
from isochrone_sim.exchange.request_parameters import Asked
from isochrone_sim.exchange.script import Ending, Page, Script
from isochrone_sim.faults.faults import FAULTS
from isochrone_sim.response.compression import Gzip, Identity
from isochrone_sim.response.frames import Flood, Frame, body_frames, flood_of, stream_frames
from isochrone_sim.response.http_heads import STREAM, document, head
from isochrone_sim.response.speech import speak
from isochrone_sim.world.pace import pace
from isochrone_sim.world.randomness import generator
from isochrone_sim.world.world import Model, World

OK = 200
REFUSAL_NS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A response: its frames in order, what floods the client after them, and what becomes of the connection then.

    `ttft_us` (microseconds) and `tokens_per_second` are what is planned, `None` when no token will come. `fault` is
    what was made to go wrong.
    """

    status: int
    frames: tuple[Frame, ...]
    ending: Ending = Ending.KEEP_ALIVE
    ttft_us: int | None = None
    tokens_per_second: float | None = None
    fault: str | None = None
    flood: Flood | None = None


def timeline(
    model: Model, world: World, asked: Asked, facts: Facts, *, dialect: Dialect, region: str, content: bytes = b""
) -> Timeline:
    """The response of `model`, in `dialect`, to a request from `region` that came at `facts.created_at` (microseconds).

    `content` is the request's body: noise and words follow from it, so equal requests get equal answers.
    """
    draw = generator(world.seed, model.id, region, content=content)
    fault = model.fault if draw.random() < model.fault_share else None
    paced = pace(model, world, region=region, at=facts.created_at, draw=draw)
    script = FAULTS[fault or "none"].reshape(speak(model, asked, paced, draw))
    facts = replace(facts, processing_us=(script.head_ns or 0) // 1000)
    voice = dialect.voice(asked, facts, script.usage)
    frames = _frames(script, asked, facts, dialect, voice)
    first_ns = next((frame.offset_ns for frame in frames if frame.said), None)
    return Timeline(
        status=script.instead.status if isinstance(script.instead, Refusal) else OK,
        frames=frames,
        ending=script.ending,
        ttft_us=None if first_ns is None else first_ns // 1000,
        tokens_per_second=None if first_ns is None else paced.tokens_per_second,
        fault=fault,
        flood=flood_of(script, voice) if asked.stream else None,
    )


def refused(refusal: Refusal, facts: Facts, dialect: Dialect) -> Timeline:
    """An error response, five milliseconds after the request."""
    frame = Frame(REFUSAL_NS, _refusal(refusal, facts, dialect))
    return Timeline(status=refusal.status, frames=(frame,))


def _frames(script: Script, asked: Asked, facts: Facts, dialect: Dialect, voice: Voice) -> tuple[Frame, ...]:
    headers = dialect.headers(facts)
    if isinstance(script.instead, Refusal):
        return (Frame(script.head_ns or 0, _refusal(script.instead, facts, dialect)),)
    if isinstance(script.instead, Page):
        page = script.instead
        typed = {**headers, "content-type": page.content_type}
        return (Frame(script.head_ns or 0, document(OK, page.body, typed, at=facts.created_at)),)
    if asked.stream:
        return _stream(script, voice, headers, at=facts.created_at, gzip=asked.gzip)
    return body_frames(script, document(OK, voice.whole(script), headers, at=facts.created_at))


def _stream(script: Script, voice: Voice, headers: dict[str, str], *, at: int, gzip: bool) -> tuple[Frame, ...]:
    # A flood repeats one write, which compression would not.
    encoding = Gzip() if gzip and script.flood is None else Identity()
    encoded = {"content-encoding": encoding.name, "vary": "accept-encoding"} if encoding.name else {}
    first = head(OK, {**STREAM, **headers, **encoded}, at=at)
    return stream_frames(script, voice, head=first, encoding=encoding)


def _refusal(refusal: Refusal, facts: Facts, dialect: Dialect) -> bytes:
    wait_us = refusal.retry_after_us
    if wait_us is None:
        headers = dialect.headers(facts)
    else:
        spent = facts.allowance.spent(wait_us) if facts.allowance else None
        seconds = max(1, -(-wait_us // 1_000_000))
        waits = {"retry-after": str(seconds), "retry-after-ms": str(wait_us // 1000)}
        headers = dialect.headers(replace(facts, allowance=spent)) | (waits if dialect.retry_after else {})
    return document(refusal.status, dialect.refusal(refusal), headers, at=facts.created_at)
