"""The members of a table that one request tries: their order, their rests after failures, and second requests. Pure.

After a 429 a member rests until its `retry-after`; without one, and after a failure, for a second, doubled with each
further one up to a minute, plus a random half. The first success ends it.

A second request is sent while the first has returned no content. The collector publishes a delay only if that helps;
members that stall together have none.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate

from isochrone_wire.durations import SECOND_US
from isochrone_wire.routes import RouteEntry, RouteState, RouteTable

DEFAULT_RATIO = 0.06
"""The delay is a 95th percentile, so one in 20 requests needs a second one; a smaller budget is often empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An endpoint for a request; `is_static` if it follows the plan's static order, because no table may be used."""

    route: str
    target: str
    provider: str
    model: str
    dialect: str
    base_url: str
    credential_ref: str | None
    generation: int
    is_static: bool


def order(
    entries: Sequence[RouteEntry],
    *,
    unassigned: float,
    draw: float,
    throttled: Collection[str] = (),
    failing: Collection[str] = (),
) -> tuple[RouteEntry, ...]:
    """The members to try: one drawn by weight, then the others by rank. `draw` is a random number from 0 to 1
    (excluded). A draw in the `unassigned` share of the traffic gives no member. Weights are relative, because a request
    may have a part of the members only. Members that are `throttled` are left out, and `failing` ones come last.
    """
    if not entries or draw >= 1 - unassigned:
        return ()
    weighted = [entry for entry in entries if entry.weight > 0] or list(entries[:1])
    whole = sum(entry.weight for entry in weighted) or 1.0
    ends = accumulate(entry.weight / whole * (1 - unassigned) for entry in weighted)
    # The last one with a weight for what rounding leaves.
    drawn = next((entry for entry, end in zip(weighted, ends, strict=True) if draw < end), weighted[-1])
    wanted = [drawn, *(entry for entry in entries if entry is not drawn)]
    ready = [entry for entry in wanted if entry.target not in throttled]
    return tuple(sorted(ready, key=lambda entry: entry.target in failing))


@dataclass(frozen=True, slots=True)
class _Rest:
    until_s: float
    count: int
    is_throttled: bool


@dataclass(slots=True)
class Cooldowns:
    """The resting members; all instants are seconds of one monotonic clock, `draw` random numbers from 0 to 1."""

    _rests: dict[str, _Rest] = field(default_factory=dict)

    def fail(
        self, target: str, *, is_throttled: bool = False, retry_after_s: float | None = None, now_s: float, draw: float
    ) -> None:
        """Note a failed connection or a 5xx; or, if it `is_throttled`, a 429 with its `retry-after` in seconds."""
        rest = self._rests.get(target)
        count = rest.count + 1 if rest else 1
        growing_s = min(60.0, 1.0 * 2 ** min(count - 1, 10)) * (1 + draw / 2)
        rest_s = growing_s if retry_after_s is None else min(retry_after_s, 600.0)
        self._rests[target] = _Rest(now_s + rest_s, count, is_throttled)

    def succeed(self, target: str) -> None:
        """Note a response."""
        self._rests.pop(target, None)

    def throttled(self, now_s: float) -> dict[str, float]:
        """The members that asked to wait, with the seconds left."""
        return {
            name: one.until_s - now_s for name, one in self._rests.items() if one.is_throttled and now_s < one.until_s
        }

    def failing(self, now_s: float) -> frozenset[str]:
        """The members that failed a short time ago."""
        return frozenset(name for name, one in self._rests.items() if not one.is_throttled and now_s < one.until_s)


REFUSALS = {
    401: "its key is refused",
    402: "its account cannot pay",
    403: "it forbids the request, as from a blocked region",
    404: "it has no such model or path",
    408: "it timed out",
}
"""The statuses with which a member refuses what another one may answer, and their usual reasons."""


def refusal_text(route: str, entry: RouteEntry, status: int) -> str:
    """The warning after one of these."""
    why = f"{entry.target} (model {entry.model}) returned {status}: {REFUSALS[status]}"
    return f"route {route}: {why}; requests go to the next member first"


class Failure(StrEnum):
    """The kinds of failures of a member that the status of its response states."""

    THROTTLED = "throttled"
    REFUSED = "refused"
    FAILED = "failed"


def failure_of(status: int, *, is_page: bool = False) -> Failure | None:
    """The failure that a status states, or a web page in place of an answer; `None` for one that is the caller's."""
    if status == 429:  # noqa: PLR2004  # Too Many Requests
        return Failure.THROTTLED
    if status in REFUSALS:
        return Failure.REFUSED
    return Failure.FAILED if status >= 500 or (is_page and status < 400) else None  # noqa: PLR2004  # classes of statuses


def first_token_limit_s(
    entry: RouteEntry, *, is_streamed: bool, body_bytes: int, max_tokens: int | None
) -> float | None:
    """The seconds after which a member without content is held to stall, by its tail in the table; `None`: not known.

    They are far beyond the tail, because a long prompt takes longer than that of a probe: ten seconds, five times the
    p95, and a second per 4 KiB. An answer without a stream also has five times the time of its most tokens.
    """
    tail, speed = entry.ttft_p95_us, entry.tokens_per_second_p50
    limit_s = 60.0 if tail is None else 10.0 + 5 * (tail.high or tail.value) / SECOND_US
    if not is_streamed:
        if not max_tokens or speed is None or speed.value <= 0:
            return None
        limit_s += 5 * max_tokens / speed.value
    return limit_s + body_bytes / 4096


def attempt_limit_s(first_token_s: float | None, *, left_s: float, is_last: bool) -> float:
    """The seconds of an attempt, of `left_s` for the whole request: while another member may answer, half at most."""
    return left_s if is_last else min(left_s / 2, math.inf if first_token_s is None else first_token_s)


class NoHedge(StrEnum):
    """The reasons for not sending a second request."""

    NOT_STREAMED = "not_streamed"
    EFFECTS = "effects"
    STATE = "state"
    NOT_PUBLISHED = "not_published"
    TARGET_AWAY = "target_away"


@dataclass(frozen=True, slots=True)
class HedgePlan:
    """Send a second request to `entry` if there is no content after `delay_us` microseconds."""

    delay_us: int
    entry: RouteEntry


def plan_hedge(
    table: RouteTable, order: Sequence[RouteEntry], *, is_streamed: bool, has_effects: bool, allow_effects: bool = False
) -> HedgePlan | NoHedge:
    """Decide on a second request: never unless the table is `ok`, and for a request with effects only with leave."""
    if not is_streamed:
        return NoHedge.NOT_STREAMED
    if has_effects and not allow_effects:
        return NoHedge.EFFECTS
    if table.state is not RouteState.OK:
        return NoHedge.STATE
    hedge = order[0].hedge
    if hedge is None or hedge.delay_us is None:
        return NoHedge.NOT_PUBLISHED
    second = next((entry for entry in order[1:] if entry.target == hedge.target), None)
    return HedgePlan(hedge.delay_us, second) if second else NoHedge.TARGET_AWAY


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
