"""The corpus of streams in `wire/`: what providers send, as frames with offsets, and what a sample must say of it."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isochrone_wire.model import Outcome, Sample

FOLDER = Path(__file__).parent / "wire"
Reads = Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The sample of a stream, times in ms after the request; `first_content` and `complete` are indices of frames.

    A stream that ends before the frame `complete` is no success. `client` is what a routing client does: pass the
    stream on (`content`), or try another member (`failed`).
    """

    outcome: Outcome
    error: str | None
    ttft_ms: int | None
    ttfat_ms: int | None
    e2e_ms: int | None
    chunks: int
    output_tokens: int | None
    token_source: str | None
    has_speed: bool
    frames_unknown: int
    client: str
    first_content: int | None
    complete: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One file of the corpus; `frames` are the offsets in ms and the bytes of what the provider sends."""

    name: str
    situation: str
    provider: str
    source: str
    origin: str
    dialect: str
    status: int
    headers: dict[str, str]
    in_docs: bool
    frames: Reads
    expected: Expected

    def __repr__(self) -> str:
        return f"<Stream {self.name}>"

    @property
    def is_stream(self) -> bool:
        """True if the answer is read as a stream of events; others are refusals."""
        return self.status == 200 and not self.headers["content-type"].endswith(("/json", "/html"))


def load(path: Path) -> Stream:
    document: dict[str, Any] = json.loads(path.read_text())
    frames = [(at_ms, _bytes_of(data)) for at_ms, data in document.pop("frames")]
    expected = document.pop("expected")
    expected = Expected(**expected | {"outcome": Outcome[expected["outcome"].upper()]})
    name = f"{path.parent.name}/{path.stem}"
    return Stream(name=name, frames=frames, expected=expected, **{"in_docs": False} | document)


def _bytes_of(data: Any) -> bytes:
    return data.encode() if isinstance(data, str) else base64.b64decode(data["base64"])


CORPUS = [load(path) for path in sorted(FOLDER.glob("*/*.json"))]


def facts(sample: Sample) -> dict[str, Any]:
    """Return the values of a sample that the corpus states, except those that depend on a network."""
    return {
        "outcome": sample.outcome,
        "chunks": sample.chunks,
        "output_tokens": sample.output_tokens,
        "token_source": sample.token_source and sample.token_source.name.lower(),
        "frames_unknown": sample.frames_unknown,
    }


def table() -> str:
    """Return the table of docs/agent.md: what the provider sent, and what the sample states."""
    rows = ["| Dialect | The provider sent | The sample states |", "|---|---|---|"]
    return "\n".join(
        [*rows, *(f"| {s.dialect} | {s.situation.rstrip('.')} | {_stated(s)} |" for s in CORPUS if s.in_docs)]
    )


def _stated(stream: Stream) -> str:
    expected = stream.expected
    parts = [f"`{expected.outcome.value}`" + (f": “{expected.error}”" if expected.error else "")]
    if expected.ttft_ms is not None and expected.ttfat_ms is None and expected.outcome is Outcome.OK:
        parts.append("TTFAT unknown")
    elif expected.ttft_ms != expected.ttfat_ms:
        parts.append("TTFT at the reasoning, TTFAT at the answer")
    if expected.token_source == "estimated" and expected.outcome is Outcome.OK:
        parts.append("tokens estimated")
    if expected.outcome is Outcome.OK and not expected.has_speed:
        parts.append("no speed")
    if expected.frames_unknown:
        parts.append(f"`frames_unknown` {expected.frames_unknown}")
    return ", ".join(parts)
