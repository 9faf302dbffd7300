"""Second requests: when one is sent while the first has returned no content, and how many. Pure.

The collector publishes a delay only if a second request helps; members that stall together have none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from isochrone_wire.routes import RouteEntry, RouteState, RouteTable


class NoHedge(StrEnum):
    """The reasons for not sending a second request."""

    NOT_STREAMED = "not_streamed"
    TOOL_CALL = "tool_call"
    STATE = "state"
    NOT_PUBLISHED = "not_published"
    TARGET_AWAY = "target_away"


@dataclass(frozen=True, slots=True)
class HedgePlan:
    """Send a second request to `entry` if there is no content after `delay_us` microseconds."""

    delay_us: int
    entry: RouteEntry


def plan_hedge(
    table: RouteTable, order: Sequence[RouteEntry], *, is_streamed: bool, has_tools: bool, allow_tools: bool = False
) -> HedgePlan | NoHedge:
    """Decide on a second request beside the one to the first member of the `order`.

    A table that is not `ok` doubles no traffic. A request with tools may have effects in the world, so it needs leave.
    """
    if not is_streamed:
        return NoHedge.NOT_STREAMED
    if has_tools and not allow_tools:
        return NoHedge.TOOL_CALL
    if table.state is not RouteState.OK:
        return NoHedge.STATE
    hedge = order[0].hedge
    if hedge is None or hedge.delay_us is None:
        return NoHedge.NOT_PUBLISHED
    second = next((entry for entry in order[1:] if entry.target == hedge.target), None)
    return HedgePlan(hedge.delay_us, second) if second else NoHedge.TARGET_AWAY


DEFAULT_RATIO = 0.06
"""The delay is a 95th percentile, so one in 20 requests needs a second one; a smaller budget is often empty."""


@dataclass(slots=True)
class HedgeBudget:
    """A token bucket: each request adds `ratio` tokens, up to `burst`, and a second request takes one."""

    ratio: float = DEFAULT_RATIO
    burst: float = 10.0
    tokens: float = 1.0

    def add_request(self) -> None:
        """Count a request that could be hedged."""
        self.tokens = min(self.burst, self.tokens + self.ratio)

    def take(self) -> bool:
        """Take a token; return whether there was one."""
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True
