"""The status of targets per region, as the HTTP interface serves it to the public. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from isochrone_wire.answers import Window


class State(StrEnum):
    """The state of a target from a region."""

    OK = "ok"
    SLOW = "slow"
    FAILING = "failing"
    STALE = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncident:
    """An open incident of `kind` `failing` or `throttled`; `regions` are those from which the target fails now."""

    target: str
    kind: str
    regions: tuple[str, ...]
    since_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatus:
    """The status of a target from a region. `success` is the share of requests that succeeded in the window,
    `ttft_p50_us` the median first token, which `is_early` without a 95 % interval, and `recent_ttft_p50_us` that of the
    last hour, `None` with fewer than five requests.
    """

    target: str
    provider: str
    region: str
    state: State
    success: float | None
    ttft_p50_us: float | None
    recent_ttft_p50_us: float | None
    newest_at: int | None
    is_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusList:
    """The status of every target of the plan that is not paused, from every region that measured in the window."""

    window: Window
    incidents: tuple[OpenIncident, ...] = ()
    rows: tuple[TargetStatus, ...] = ()
