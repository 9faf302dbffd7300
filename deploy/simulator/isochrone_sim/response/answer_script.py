"""The script of a healthy answer, from the token timing and the request.

A reasoning model emits its reasoning only if the request asks for it (`reasoning_effort` other than "none"). Reasoning
then comes first, at the same rate, and counts towards the limit. So the first token of a default request, at the
published time, is a token of the answer.
"""

from random import Random

from isochrone_sim.exchange.filler_text import filler_tokens
from isochrone_sim.exchange.request_parameters import RequestParameters
from isochrone_sim.exchange.script import Channel, Kind, Script, Step, Usage
from isochrone_sim.world.token_timing import TokenTiming
from isochrone_sim.world.world import Model

# Providers send the head well before the first token.
_HEAD_SHARE = 0.3
_HEAD_MAX_NS = 200_000_000
_TRAILER_NS = 200_000
_REASONING_TOKENS = {"none": 0, "minimal": 8, "low": 16, "medium": 32, "high": 64}
_USUAL_EFFORT = "medium"


def answer_script(model: Model, parameters: RequestParameters, timing: TokenTiming, rng: Random) -> Script:
    """Return the script of the answer, with everything that the request asks for."""
    reasoning = _reasoning_tokens(model, parameters)
    wanted = reasoning + model.answer_tokens
    count = min(wanted, parameters.max_tokens or wanted)
    reasoning = min(reasoning, count)
    offsets = timing.offsets_ns(rng, count)
    channels = [Channel.REASONING] * reasoning + [Channel.ANSWER] * (count - reasoning)
    texts = filler_tokens(rng, reasoning) + filler_tokens(rng, count - reasoning)
    tokens = [
        Step(at, Kind.TOKENS, text, 1, channel) for at, text, channel in zip(offsets, texts, channels, strict=True)
    ]
    head_ns = min(round(timing.ttft_ns * _HEAD_SHARE), _HEAD_MAX_NS)
    return Script(
        head_ns=head_ns,
        steps=(
            Step(head_ns, Kind.ROLE),
            *tokens,
            *_trailer(
                offsets[-1] + _TRAILER_NS, "length" if count < wanted else "stop", usage=parameters.include_usage
            ),
        ),
        usage=Usage(prompt_tokens=parameters.prompt_tokens, output_tokens=count, reasoning_tokens=reasoning),
    )


def _trailer(at_ns: int, reason: str, *, usage: bool) -> list[Step]:
    counts = [Step(at_ns, Kind.USAGE)] if usage else []
    return [Step(at_ns, Kind.FINISH, reason), *counts, Step(at_ns, Kind.DONE)]


def _reasoning_tokens(model: Model, parameters: RequestParameters) -> int:
    if not model.reasoning or parameters.reasoning_effort is None:
        return 0
    return _REASONING_TOKENS.get(parameters.reasoning_effort, _REASONING_TOKENS[_USUAL_EFFORT])
