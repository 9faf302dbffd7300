"""Inputs of a routing decision. They are stored with the table, so that the decision can be replayed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from isochrone_collector.analysis.histogram import values_of
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_collector.analysis.stats.shifts import Shift
from isochrone_wire.answers import Metric, Proportion, Quantile, Window
from isochrone_wire.durations import MINUTE_US, SECOND_US
from isochrone_wire.model import Route, Slo, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The numbers of the policy; durations in microseconds.

    An epoch is the time in which weights move one step. The evidence of a table spans `window_us`, and that of
    throttling `short_us`. A lead must be at least `margin_us` and `margin_share` of the median; one of `fast_share` is
    large. Members are level if the lead is below the margin with probability `level_share`, and stay level until it is
    `unlevel_share`.
    """

    epoch_us: int = 5 * MINUTE_US
    window_us: int = 60 * MINUTE_US
    short_us: int = 10 * MINUTE_US
    margin_us: float = 20_000.0
    margin_share: float = 0.05
    fast_share: float = 0.25
    level_share: float = 0.9
    unlevel_share: float = 0.6
    failures_in_a_row: int = 3
    failing_vantages: int = 2
    suspicious_share: float = 2 / 3
    ramp: float = 0.25
    max_stall_lift: float = 3.0
    min_samples: int = 6
    min_coverage: float = 0.5

    @property
    def fresh_us(self) -> int:
        """The age of the newest sample, in microseconds, up to which a table is fresh: two epochs."""
        return 2 * self.epoch_us

    @property
    def stale_us(self) -> int:
        """The age of the newest sample, in microseconds, up to which a table may be used: six epochs."""
        return 6 * self.epoch_us


# Twelve epochs of six rounds are 72: a p95 has an interval from 59 on, so a few may be lost.
ROUNDS_PER_EPOCH = 6
_MIN_EPOCH_US = 10 * SECOND_US
_MAX_EPOCH_US = 30 * MINUTE_US


def rules_for(every_us: Sequence[int]) -> Rules:
    """Return the rules: an epoch is six rounds of the slowest member, the windows twelve and two epochs."""
    epoch_us = min(max(ROUNDS_PER_EPOCH * max(every_us, default=MINUTE_US), _MIN_EPOCH_US), _MAX_EPOCH_US)
    return Rules(epoch_us=epoch_us, window_us=12 * epoch_us, short_us=2 * epoch_us)


def limits_of(slo: Slo) -> dict[Metric, float]:
    """Return the limits of an objective, in microseconds."""
    limits = {Metric.TTFT: slo.ttft_p95_us, Metric.E2E: slo.answer_p95_us}
    return {metric: float(limit_us) for metric, limit_us in limits.items() if limit_us is not None}


def has_limits(slo: Slo) -> bool:
    """Return whether an objective limits a latency or the speed."""
    return bool(limits_of(slo)) or slo.min_tokens_per_second is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """The share of requests that kept the limits of the objective, and the share that succeeded, with intervals of the
    long run; `None` where the objective has no such limit.
    """

    goodput: Proportion | None = None
    success: Proportion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence on one member from the window's samples in the client's region.

    `n` counts probes with a first token, worth `n_eff` independent ones; `histogram` is their TTFT and `censored` the
    limits of timeouts, as bucket → count. `vantages` of the region probe the member and still report. Of these,
    `failing_here` had only failures in their last probes; `failing_vantages` counts such vantages of all regions.
    `fails_here` is true if all vantages of the region had, for twice as long. `failed_at` is the newest round, if the
    last probes of all vantages of the region failed and chance does not explain it; `answered_at` is the newest round
    with an answer. `coverage` is the share of due rounds with a sent probe. `goodput` is the share of requests that
    kept the limits of the objective (`goodput_n_eff` is their effective number), and `answer_…` the time to the last
    token of an answer of the length that the objective names. `throttled` is the share of the recent rounds that the
    provider refused because of their rate, and `throttled_high` its upper bound (95 %). `success` and `goodput` are of
    this window, `long_run` has both beyond it.
    """

    target: str
    n: int = 0
    n_eff: float | None = None
    vantages: int = 0
    failing_vantages: int = 0
    failing_here: int = 0
    fails_here: bool = False
    failed_at: int | None = None
    answered_at: int | None = None
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
    goodput: Proportion | None = None
    goodput_n_eff: float = 0.0
    answer_p50_us: Quantile | None = None
    answer_p95_us: Quantile | None = None
    throttled: float = 0.0
    throttled_high: float = 0.0
    long_run: LongRun = field(default_factory=LongRun)

    @property
    def claimed(self) -> "Evidence":
        """The evidence with the shares of the long run, which a table states."""
        goodput, success = self.long_run.goodput or self.goodput, self.long_run.success or self.success
        n_eff = self.goodput_n_eff if goodput is None or goodput.n_eff is None else goodput.n_eff
        return replace(self, goodput=goodput, goodput_n_eff=n_eff, success=success)

    @property
    def timed(self) -> int:
        """The number of probes with a TTFT, timeouts included."""
        return self.n + sum(self.censored.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The shift from `right` to `left` over the window, paired by vantage and round, in microseconds with its 95 %
    interval; `None` without a shared round.

    Of `joint` pairs that were probed at the same instant, `slow_left` and `slow_right` exceeded the side's own p95, and
    `slow_both` both.
    """

    left: str
    right: str
    n: int = 0
    window: Shift | None = None
    joint: int = 0
    slow_left: int = 0
    slow_right: int = 0
    slow_both: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JointRounds:
    """Rounds in which one vantage probed several members at the same instant: only these show whether members stall
    together. One row per round and vantage, oldest first: its instant, and the histogram bucket of each member's TTFT,
    `None` without one. A timeout has the bucket of its limit, or of the member's largest value if that is larger.
    """

    round_at: tuple[int, ...] = ()
    ttft: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)

    def _buckets(self, members: Sequence[str]) -> Reals:
        nothing = (None,) * len(self.round_at)
        rows = [self.ttft.get(member, nothing) for member in members]
        return np.array(rows, np.float64).reshape(len(members), len(self.round_at)).T

    def logarithms(self, members: Sequence[str]) -> Reals:
        """Return the natural logarithms of the TTFTs in microseconds, a column per member; NaN without one."""
        buckets = self._buckets(members)
        known = ~np.isnan(buckets)
        buckets[known] = np.log(values_of(buckets[known].astype(np.int64)))
        return buckets

    def of(self, *members: str) -> tuple[Integers, Reals]:
        """Return the rows with a value of each of `members`: instants, and a column of TTFTs in microseconds each."""
        buckets = self._buckets(members)
        complete = ~np.isnan(buckets).any(axis=1)
        return np.array(self.round_at, np.int64)[complete], values_of(buckets[complete].astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything a decision depends on except the previous state. `targets` are the members. `suspects` of all
    reporting `vantages` are suspect, and `suspects_here` of the region's `vantages_here`. `joint` are the rounds of
    those of the region that are not suspect.
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
    joint: JointRounds = field(default_factory=JointRounds)

    @property
    def settling_us(self) -> int:
        """The age of a round, in microseconds, after which all its probes have ended; half
        a window at most, so that the round is still in it.
        """
        timeout_us = max(target.workload.timeouts.first_token_us for target in self.targets)
        return min(timeout_us, self.rules.window_us // 2)

    def of(self, target: str) -> Evidence:
        """Return the evidence of a member; empty if there is none."""
        for one in self.evidence:
            if one.target == target:
                return one
        return Evidence(target=target)

    def described(self, target: str) -> Target:
        """Return the target of a name. Raises `KeyError`."""
        for one in self.targets:
            if one.name == target:
                return one
        raise KeyError(target)

    def against(self, left: str, right: str) -> Comparison:
        """Return the comparison of `left` with `right`, reversed if it was computed the other way round."""
        for one in self.comparisons:
            if (one.left, one.right) == (left, right):
                return one
            if (one.left, one.right) == (right, left):
                return _reversed(one)
        return Comparison(left=left, right=right)


def _reversed(one: Comparison) -> Comparison:
    return replace(
        one,
        left=one.right,
        right=one.left,
        window=_negative(one.window),
        slow_left=one.slow_right,
        slow_right=one.slow_left,
    )


def _negative(shift: Shift | None) -> Shift | None:
    if shift is None:
        return None
    low = None if shift.high is None else -shift.high
    return Shift(estimate=-shift.estimate, low=low, high=None if shift.low is None else -shift.low)
