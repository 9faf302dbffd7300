"""What a healthy provider says: a pace and a request give the script of the answer.

A reasoning model thinks aloud only when the request asks for it (`reasoning_effort`, and not "none"); then its
reasoning comes first, at the same pace, and counts towards the limit. So the first token that a default request meets
at the published time is one of the answer.
"""

from random import Random

from isochrone_sim.exchange.request_parameters import Asked
from isochrone_sim.exchange.script import Beat, Channel, Kind, Script, Usage
from isochrone_sim.exchange.words import prose
from isochrone_sim.world.pace import Pace
from isochrone_sim.world.world import Model

# Providers send the head well before the first token.
_HEAD_SHARE = 0.3
_HEAD_MAX_NS = 200_000_000
_TRAILER_NS = 200_000
_REASONING_TOKENS = {"none": 0, "minimal": 8, "low": 16, "medium": 32, "high": 64}
_USUAL_EFFORT = "medium"


def speak(model: Model, asked: Asked, pace: Pace, draw: Random) -> Script:
    """The script of the answer, with everything that the request asked for."""
    reasoning = _reasoning_tokens(model, asked)
    wanted = reasoning + model.answer_tokens
    count = min(wanted, asked.max_tokens or wanted)
    reasoning = min(reasoning, count)
    offsets = pace.offsets_ns(draw, count)
    channels = [Channel.REASONING] * reasoning + [Channel.ANSWER] * (count - reasoning)
    texts = prose(draw, reasoning) + prose(draw, count - reasoning)
    said = [Beat(at, Kind.TOKENS, text, 1, channel) for at, text, channel in zip(offsets, texts, channels, strict=True)]
    head_ns = min(round(pace.ttft_ns * _HEAD_SHARE), _HEAD_MAX_NS)
    return Script(
        head_ns=head_ns,
        beats=(
            Beat(head_ns, Kind.ROLE),
            *said,
            *_trailer(offsets[-1] + _TRAILER_NS, "length" if count < wanted else "stop", usage=asked.include_usage),
        ),
        usage=Usage(prompt_tokens=asked.prompt_tokens, output_tokens=count, reasoning_tokens=reasoning),
    )


def _trailer(at_ns: int, reason: str, *, usage: bool) -> list[Beat]:
    counts = [Beat(at_ns, Kind.USAGE)] if usage else []
    return [Beat(at_ns, Kind.FINISH, reason), *counts, Beat(at_ns, Kind.DONE)]


def _reasoning_tokens(model: Model, asked: Asked) -> int:
    if not model.reasoning or asked.reasoning_effort is None:
        return 0
    return _REASONING_TOKENS.get(asked.reasoning_effort, _REASONING_TOKENS[_USUAL_EFFORT])
