"""Estimate of a request's tokens and cost before it is sent, for the agent's budgets and the collector's forecasts.

A prompt is estimated at one token per four bytes of UTF-8, and the output at its maximum: the workload's limit plus the
thinking tokens that the effort adds. The provider's own counts replace both. Pure.
"""

from dataclasses import dataclass

from isochrone_wire.model import Price, Target
from isochrone_wire.reasoning_effort import thinking_tokens

_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEstimate:
    """The estimated tokens of one request and its response."""

    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """The sum of prompt and output tokens."""
        return self.prompt_tokens + self.output_tokens

    def cost_usd(self, price: Price) -> float:
        """Return the cost in US dollars."""
        return price.cost_usd(prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens)


def estimate_prompt_tokens(prompt: str) -> int:
    """Return the estimated number of tokens of a prompt."""
    return -(-len(prompt.encode()) // _BYTES_PER_TOKEN)


def estimate_request(target: Target) -> RequestEstimate:
    """Return the upper estimate for one request to `target`."""
    workload = target.workload
    thinking = thinking_tokens(target.dialect, workload.reasoning_effort)
    return RequestEstimate(
        prompt_tokens=estimate_prompt_tokens(workload.prompt), output_tokens=workload.max_output_tokens + thinking
    )
