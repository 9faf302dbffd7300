"""The values a collector answers readers with. Units as in `isochrone_wire.model`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from isochrone_wire.model import Budget, Sample, Target


class Metric(StrEnum):
    """What can be compared. Durations come in microseconds, `TOKENS_PER_SECOND` as a rate."""

    TTFT = "ttft"
    TTFT_COLD = "ttft_cold"
    TTFAT = "ttfat"
    E2E = "e2e"
    TOKENS_PER_SECOND = "tokens_per_second"
    CONNECT = "connect"
    RTT = "rtt"

    @property
    def unit(self) -> str:
        """`us`, or `tokens/s` for the one rate."""
        return "tokens/s" if self is Metric.TOKENS_PER_SECOND else "us"

    @property
    def more_is_better(self) -> bool:
        """True for rates."""
        return self is Metric.TOKENS_PER_SECOND


class Decision(StrEnum):
    """What a differential lets us say of a region against the baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The half-open span of rounds [from_at, until_at) that an answer speaks of."""

    from_at: int
    until_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which samples a question is about. Empty fields do not restrict; `targets` may be shell-style patterns."""

    window: Window
    regions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetList:
    """The targets of the plan in force; version 0 and no targets before the first plan."""

    plan_version: int
    baseline: str
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSample:
    """A sample with the names a reader knows its target and vantage by, and when the collector received it."""

    target: str
    vantage: str
    region: str
    received_at: int
    sample: Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleList:
    """Samples, or a portion of those asked for. Where samples are followed, `resume_at` is from when to follow if no
    other portion comes: what was received before has been told, and what was received since then perhaps.
    """

    samples: tuple[StoredSample, ...] = ()
    resume_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A nearest-rank quantile with its distribution-free 95 % interval; bounds are `None` where n is too small."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportion:
    """A share, from 0 to 1, of n trials with its 95 % Wilson interval."""

    value: float
    low: float
    high: float
    n: int


class Source(StrEnum):
    """What an answer was computed from: every sample, or the summaries that outlive them (relative error 1 %)."""

    SAMPLES = "samples"
    SUMMARIES = "summaries"


class Order(StrEnum):
    """What a leaderboard is ranked by: a metric, or the price, or speed for money."""

    TTFT = "ttft"
    TTFT_COLD = "ttft-cold"
    TTFAT = "ttfat"
    E2E = "e2e"
    TOKENS_PER_SECOND = "tokens-per-second"
    TOKENS_PER_USD = "tokens-per-usd"
    PRICE = "price"
    SUCCESS = "success"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One line of a leaderboard: a target as seen from one region. `n` counts samples with a first token.

    `tokens_per_second_per_usd` is the median speed divided by the price of a million output tokens. `throttled` and
    `skipped` rounds are neither successes nor failures.
    """

    region: str
    rank: int
    target: str
    provider: str
    model: str
    n: int
    failed: int
    ttft_p50_us: Quantile | None = None
    ttft_p95_us: Quantile | None = None
    tokens_per_second_p50: Quantile | None = None
    usd_per_m_output: float | None = None
    newest_at: int | None = None
    ttft_p99_us: Quantile | None = None
    ttft_cold_p50_us: Quantile | None = None
    ttfat_p50_us: Quantile | None = None
    e2e_p50_us: Quantile | None = None
    success: Proportion | None = None
    usd_per_m_input: float | None = None
    tokens_per_second_per_usd: float | None = None
    throttled: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Standings of all regions asked for, ranked within each region by `order`."""

    window: Window
    standings: tuple[Standing, ...] = ()
    order: Order = Order.TTFT
    source: Source = Source.SAMPLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One region's part in a differential: rounds with a value, its share of the planned rounds that were recorded
    (`None` without a plan), and how many of the probes that were sent failed.
    """

    n: int = 0
    coverage: float | None = None
    failures: Proportion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one phase (`dns`, `tcp`, `tls`, `rtt`, `server`, `provider`) adds to a differential, with its 95 %
    interval, and the medians of both sides; microseconds, over the n rounds in which both sides have all phases.
    """

    name: str
    shift: float
    low: float | None = None
    high: float | None = None
    baseline_median: float | None = None
    region_median: float | None = None
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Differential:
    """Region minus baseline for one target and metric, paired by round.

    `shift` with its 95 % interval is in `unit`; `n` counts rounds in which both regions have a value, `baseline_n` and
    `region_n` the rounds of each. `reason` says why when the decision is `undecided`.

    `n_eff` is what n rounds are worth once neighbours resemble each other. Not `paired` means that the rounds did not
    meet, and n is 0. `faster_probability` is the chance that the region does better in a round than the baseline.
    `margin` is the smallest shift that matters. `q_value` is the false-discovery rate at which this difference would be
    told from none, among all of the answer. `network_shift` and `server_shift`, of latencies only, say where the
    difference comes from. `since_at` is set when a change point cut the window short.
    """

    target: str
    provider: str
    model: str
    metric: Metric
    unit: str
    baseline: str
    region: str
    baseline_median: float | None = None
    region_median: float | None = None
    shift: float | None = None
    shift_low: float | None = None
    shift_high: float | None = None
    shift_percent: float | None = None
    n: int = 0
    baseline_n: int = 0
    region_n: int = 0
    decision: Decision = Decision.UNDECIDED
    reason: str = ""
    newest_at: int | None = None
    paired: bool = True
    n_eff: float | None = None
    faster_probability: float | None = None
    margin: float | None = None
    q_value: float | None = None
    network_shift: float | None = None
    server_shift: float | None = None
    since_at: int | None = None
    baseline_side: Side = Side()
    region_side: Side = Side()
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentialList:
    """One differential per target and region asked for."""

    window: Window
    differentials: tuple[Differential, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of the rounds planned for one vantage and target: how many have a sample, and with which outcomes."""

    vantage: str
    region: str
    target: str
    planned: int
    recorded: int
    outcomes: Mapping[str, int] = field(default_factory=dict)
    newest_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageList:
    """One line per vantage and target."""

    window: Window
    coverage: tuple[Coverage, ...] = ()


class Liveness(StrEnum):
    """Online means that samples arrive. A late vantage broke the promise of its next heartbeat; a silent one keeps it
    but has delivered no sample for a while; an empty one has no plan to probe.
    """

    ONLINE = "online"
    LATE = "late"
    SILENT = "silent"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageStatus:
    """How one vantage is doing, as of its newest push. `reason` is a sentence; `finished` is the agent's account of
    samples since its spool was made, `ledgered` the delivery ledger's of the same spool.
    """

    name: str
    region: str
    liveness: Liveness
    reason: str
    last_seen_at: int
    newest_sample_at: int | None = None
    next_heartbeat_at: int | None = None
    agent_version: str = ""
    plan_version: int = 0
    refused_plan_version: int | None = None
    refused_plan_reason: str | None = None
    spool_depth: int = 0
    spool_oldest_at: int | None = None
    quarantined: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    clock_offset_us: int | None = None
    clock_uncertainty_us: int | None = None
    loop_lag_us: int | None = None
    finished: int = 0
    ledgered: int = 0
    rounds_missed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageList:
    """Every vantage heard of, by region and name, as of `answered_at`; `plan_version` is the one in force."""

    plan_version: int
    answered_at: int
    vantages: tuple[VantageStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendLine:
    """What one vantage has spent with one provider today (UTC), and what the whole day comes to when the plan in force
    goes on. `forecast_usd` is `None` where no price is known.
    """

    vantage: str
    region: str
    provider: str
    day_at: int
    usd: float = 0.0
    tokens: int = 0
    requests: int = 0
    forecast_usd: float | None = None
    forecast_tokens: int = 0
    forecast_requests: int = 0
    budget: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendList:
    """One line per vantage and provider."""

    spend: tuple[SpendLine, ...] = ()
