"""What a request is taken to cost before it is sent: by the agent against its budgets, by the collector in forecasts.

A prompt is taken to have a token for every four bytes of UTF-8, and an answer to use all it may: the workload's limit
and, where the effort adds to it, the tokens to think with. What a provider counts takes the place of both. Pure.
"""

from dataclasses import dataclass

from isochrone_wire.model import Price, Target
from isochrone_wire.reasoning_effort import thinking_tokens

_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEstimate:
    """The tokens of one request and its answer."""

    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.output_tokens

    def cost_usd(self, price: Price) -> float:
        """What it costs in US dollars."""
        return price.cost_usd(prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens)


def estimate_prompt_tokens(prompt: str) -> int:
    """The tokens that a prompt is taken to have."""
    return -(-len(prompt.encode()) // _BYTES_PER_TOKEN)


def estimate_request(target: Target) -> RequestEstimate:
    """The most that one request of `target` is taken to come to."""
    workload = target.workload
    thinking = thinking_tokens(target.dialect, workload.reasoning_effort)
    return RequestEstimate(
        prompt_tokens=estimate_prompt_tokens(workload.prompt), output_tokens=workload.max_output_tokens + thinking
    )
