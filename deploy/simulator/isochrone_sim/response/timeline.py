"""Timelines: complete responses as bytes with instants, which the player plays and the ground truth is compared with.

`timeline` combines the token timing of the model, the answer script, the fault and the dialect.
"""

from dataclasses import dataclass, replace

from isochrone_sim.dialects import Dialect, Renderer, ResponseMetadata
from isochrone_sim.exchange.error_response import ErrorResponse
from isochrone_sim.exchange.request_parameters import RequestParameters
from isochrone_sim.exchange.script import Ending, Page, Script
from isochrone_sim.faults.faults import FAULTS
from isochrone_sim.response.answer_script import answer_script
from isochrone_sim.response.compression import Gzip, Identity
from isochrone_sim.response.frames import Flood, Frame, body_frames, repeated_flood, stream_frames
from isochrone_sim.response.http_heads import STREAM, complete_response, head
from isochrone_sim.world.randomness import generator
from isochrone_sim.world.token_timing import token_timing
from isochrone_sim.world.world import Model, World

OK = 200
ERROR_RESPONSE_NS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A response: its frames in order, the flood after them, and the final state of the connection.

    `ttft_us` (microseconds) and `tokens_per_second` are the planned values, `None` without tokens. `fault` is the
    injected fault.
    """

    status: int
    frames: tuple[Frame, ...]
    ending: Ending = Ending.KEEP_ALIVE
    ttft_us: int | None = None
    tokens_per_second: float | None = None
    fault: str | None = None
    flood: Flood | None = None


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
    fault = world.fault_of(model.provider, region, at=metadata.created_at) or own_fault
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
        return _stream(script, renderer, headers, at=metadata.created_at, gzip=parameters.gzip)
    return body_frames(script, complete_response(OK, renderer.body(script), headers, at=metadata.created_at))


def _stream(script: Script, renderer: Renderer, headers: dict[str, str], *, at: int, gzip: bool) -> tuple[Frame, ...]:
    # A flood repeats one write, which is impossible with compression.
    encoding = Gzip() if gzip and script.flood is None else Identity()
    encoded = {"content-encoding": encoding.name, "vary": "accept-encoding"} if encoding.name else {}
    first = head(OK, {**STREAM, **headers, **encoded}, at=at)
    return stream_frames(script, renderer, head=first, encoding=encoding)


def _error_document(response: ErrorResponse, metadata: ResponseMetadata, dialect: Dialect) -> bytes:
    wait_us = response.retry_after_us
    if wait_us is None:
        headers = dialect.headers(metadata)
    else:
        spent = metadata.rate_limit.spent(wait_us) if metadata.rate_limit else None
        seconds = max(1, -(-wait_us // 1_000_000))
        waits = {"retry-after": str(seconds), "retry-after-ms": str(wait_us // 1000)}
        headers = dialect.headers(replace(metadata, rate_limit=spent)) | (waits if dialect.retry_after else {})
    return complete_response(response.status, dialect.error_body(response), headers, at=metadata.created_at)
