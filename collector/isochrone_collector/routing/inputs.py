"""What a table is decided from. All of it is stored with the table, so that the decision can be made again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from isochrone_collector.analysis.stats.paired import Shift
from isochrone_wire.answers import Proportion, Quantile, Window
from isochrone_wire.model import SECOND_US, Route, Target

MINUTE_US = 60 * SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The numbers of the policy; durations in microseconds.

    An epoch is the time in which weights move a step and a soft challenge is counted once. The evidence of a table is
    of `window_us`, that of a soft challenge of `middle_us`, and that of a sudden change of `short_us`.
    """

    epoch_us: int = 5 * MINUTE_US
    window_us: int = 60 * MINUTE_US
    middle_us: int = 45 * MINUTE_US
    short_us: int = 10 * MINUTE_US
    margin_us: float = 20_000.0
    margin_share: float = 0.05
    soft_epochs: int = 3
    dwell_us: int = 30 * MINUTE_US
    fast_share: float = 0.25
    failures_in_a_row: int = 3
    failing_vantages: int = 2
    suspicious_share: float = 2 / 3
    ramp: float = 0.25
    penalty: float = 1000.0
    half_life_us: int = 30 * MINUTE_US
    max_stall_lift: float = 3.0
    min_samples: int = 6
    min_coverage: float = 0.5

    @property
    def fresh_us(self) -> int:
        """How long after its newest sample a table may be acted on freely: two epochs."""
        return 2 * self.epoch_us

    @property
    def stale_us(self) -> int:
        """How long after its newest sample a table may be used at all: six epochs."""
        return 6 * self.epoch_us


# Twelve epochs of six rounds are 72: a p95 has an interval from 59 on, so that some may be lost.
_ROUNDS_PER_EPOCH = 6
_MIN_EPOCH_US = 10 * SECOND_US
_MAX_EPOCH_US = 30 * MINUTE_US


def rules_for(every_us: Sequence[int]) -> Rules:
    """The rules of a route whose members are probed so often: an epoch has six rounds of the slowest of them, the
    window twelve epochs, the middle one nine, the short one two; the first choice stays for six, and a penalty halves
    in as many.
    """
    epoch_us = min(max(_ROUNDS_PER_EPOCH * max(every_us, default=MINUTE_US), _MIN_EPOCH_US), _MAX_EPOCH_US)
    return Rules(
        epoch_us=epoch_us,
        window_us=12 * epoch_us,
        middle_us=9 * epoch_us,
        short_us=2 * epoch_us,
        dwell_us=6 * epoch_us,
        half_life_us=6 * epoch_us,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the samples of the window say of one member, as seen from the client's region.

    `n` counts probes with a first token, `histogram` their TTFT as bucket → count, `censored` that of the limits of
    those that timed out. `vantages` of the region probe it and still report. Of these, `failing_here` had nothing but
    failures in their last probes, and of all vantages anywhere `failing_vantages` had; `fails_here` when all of the
    region had, for twice as long. `coverage` is the share of due rounds in which something was sent.
    """

    target: str
    n: int = 0
    n_eff: float | None = None
    vantages: int = 0
    failing_vantages: int = 0
    failing_here: int = 0
    fails_here: bool = False
    coverage: float | None = None
    ttft_p50_us: Quantile | None = None
    ttft_p95_us: Quantile | None = None
    tokens_per_second_p50: Quantile | None = None
    rtt_p50_us: float | None = None
    success: Proportion | None = None
    outcomes: Mapping[str, int] = field(default_factory=dict)
    newest_at: int | None = None
    histogram: Mapping[int, int] = field(default_factory=dict)
    censored: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How much longer `left` takes than `right`, paired by vantage and round, in microseconds with its 95 % interval:
    over the window, the middle and the short one; `None` without a shared round.

    Of `n` pairs, `slow_left` and `slow_right` were beyond the side's own p95, and `slow_both` beyond both.
    """

    left: str
    right: str
    n: int = 0
    window: Shift | None = None
    middle: Shift | None = None
    short: Shift | None = None
    slow_left: int = 0
    slow_right: int = 0
    slow_both: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything a decision depends on, the state before apart. `targets` describes the members; `suspects` of all
    `vantages` that still report fail whatever they probe, and `suspects_here` of the region's `vantages_here`.
    """

    at: int
    client_region: str
    route: Route
    plan_version: int
    window: Window
    rules: Rules
    targets: tuple[Target, ...]
    evidence: tuple[Evidence, ...]
    comparisons: tuple[Comparison, ...]
    vantages: int
    suspects: int
    vantages_here: int = 0
    suspects_here: int = 0

    def of(self, target: str) -> Evidence:
        """The evidence of a member; empty when there is none."""
        return next((one for one in self.evidence if one.target == target), Evidence(target=target))

    def described(self, target: str) -> Target:
        """The target of that name. Raises `KeyError`."""
        for one in self.targets:
            if one.name == target:
                return one
        raise KeyError(target)

    def against(self, left: str, right: str) -> Comparison:
        """How much longer `left` takes than `right`, whichever way round that was computed."""
        for one in self.comparisons:
            if (one.left, one.right) == (left, right):
                return one
            if (one.left, one.right) == (right, left):
                return _turned(one)
        return Comparison(left=left, right=right)


def _turned(one: Comparison) -> Comparison:
    return Comparison(
        left=one.right,
        right=one.left,
        n=one.n,
        window=_negative(one.window),
        middle=_negative(one.middle),
        short=_negative(one.short),
        slow_left=one.slow_right,
        slow_right=one.slow_left,
        slow_both=one.slow_both,
    )


def _negative(shift: Shift | None) -> Shift | None:
    if shift is None:
        return None
    low = None if shift.high is None else -shift.high
    return Shift(estimate=-shift.estimate, low=low, high=None if shift.low is None else -shift.low)
