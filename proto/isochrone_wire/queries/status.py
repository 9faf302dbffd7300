"""The answer of `status`: the current findings, and the state of each target from each region. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from isochrone_wire.answers import Metric, Window


class State(StrEnum):
    """The state of a target from a region. `TOO_YOUNG`: too few rounds to find what would be wrong."""

    OK = "ok"
    SLOW = "slow"
    FAILING = "failing"
    STALE = "stale"
    TOO_YOUNG = "too_young"

    @property
    def phrase(self) -> str:
        """The state in words for people."""
        return self.value.replace("_", " ")


class Severity(StrEnum):
    """The severity of a finding. `CRITICAL`: requests fail, or nothing is measured."""

    WARNING = "warning"
    CRITICAL = "critical"


class Verdict(StrEnum):
    """The answer in one word: the worst severity of a finding; without one `TOO_YOUNG` if most of what is measured has
    too few rounds to find anything, else `WELL`.
    """

    WELL = "well"
    TOO_YOUNG = "too_young"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def phrase(self) -> str:
        """The verdict in words for people."""
        return "all well" if self is Verdict.WELL else self.value.replace("_", " ")


class FindingKind(StrEnum):
    """The kind of a finding; an alert about the same has the same kind."""

    TARGET_FAILING = "target_failing"
    TARGET_THROTTLED = "target_throttled"
    SLOWER = "slower"
    NOT_MEASURED = "not_measured"
    VANTAGE_ABSENT = "vantage_absent"
    VANTAGE_BUSY = "vantage_busy"
    CLOCK_WRONG = "clock_wrong"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CERTIFICATE_EXPIRING = "certificate_expiring"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong now: about a `target` from some `regions`, a `vantage`, for a budget with its
    `provider`, or the collector if these are empty.

    `since_at` is its beginning, if that is known. `shift` is how far the `metric` of the target is from that of
    `baseline`, or without one from its own level before, with its 95 % interval, in `unit`, over `n` rounds since then;
    `before` is that difference, or without a baseline the level, of the time before.
    """

    kind: FindingKind
    severity: Severity
    sentence: str
    target: str = ""
    regions: tuple[str, ...] = ()
    vantage: str = ""
    provider: str = ""
    since_at: int | None = None
    metric: Metric | None = None
    unit: str = ""
    baseline: str = ""
    shift: float | None = None
    shift_low: float | None = None
    shift_high: float | None = None
    before: float | None = None
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatus:
    """The status of a target from a region. `success` is the share of requests that succeeded in the window,
    `ttft_p50_us` the median first token, which `is_early` without a 95 % interval.
    """

    target: str
    provider: str
    region: str
    state: State
    success: float | None
    ttft_p50_us: float | None
    newest_at: int | None
    is_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusList:
    """What is wrong now, the worst first, and the `summary` of it. The `window` is what was looked at. `states` has
    every target of the plan that is not paused, from every region that measured in the window.
    """

    window: Window
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    states: tuple[TargetStatus, ...] = ()
