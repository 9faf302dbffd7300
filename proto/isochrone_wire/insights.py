"""Answers that combine several samples, targets or regions. Units as in `isochrone_wire.model`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from isochrone_wire.answers import Decision, Metric, Order, Proportion, Quantile, Source, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One row of a leaderboard: a target seen from one region. `n` counts samples with a first token.

    `tokens_per_second_per_usd` is the median speed divided by the price of a million output tokens. `throttled` and
    `skipped` rounds count neither as successes nor as failures.
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
    """Standings of the selected regions, ranked within each region by `order`."""

    MESSAGE: ClassVar[str] = "GetLeaderboardResponse"

    window: Window
    standings: tuple[Standing, ...] = ()
    order: Order = Order.TTFT
    source: Source = Source.SAMPLES


class Eligible(StrEnum):
    """The decision on a limit by the 95 % interval. `YES`: the worse bound is within the limit. `MAYBE`: the interval
    contains the limit. `NO`: the better bound is outside. `UNKNOWN`: too few samples.
    """

    YES = "yes"
    MAYBE = "maybe"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCost:
    """The latency that a provider adds in one region, relative to the region where it is fastest.

    `added` is the pseudomedian of the differences from `best_region` in microseconds (or tokens per second), over
    `targets` targets, as n pairs by target and round; it is zero in the best region. `n_eff` independent pairs have as
    wide an interval as these n. `median` is the median over targets of their medians. `since_at` is the newest lasting
    change of one of these targets, in microseconds since the epoch: rounds of a target before its own newest change do
    not count.
    """

    provider: str
    metric: Metric
    region: str
    best_region: str
    targets: int
    median: float | None = None
    added: float | None = None
    added_low: float | None = None
    added_high: float | None = None
    n: int = 0
    decision: Decision = Decision.UNDECIDED
    reason: str = ""
    since_at: int | None = None
    n_eff: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCostList:
    """One row per provider and region, the best region of each provider first."""

    MESSAGE: ClassVar[str] = "GetRegionCostsResponse"

    window: Window
    costs: tuple[RegionCost, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyBudget:
    """A target's eligibility for a use from one region, in an `hour` of the day (UTC) or in all. `goodput` is the share
    of the `n` planned requests (worth `n_eff` independent ones) that were answered within the limit, `quantile` that of
    `metric` at `share`. `answer_tokens` is the length of the answer that is limited, if it is not the measured one;
    `min_tokens_per_second` the speed that a request must reach.
    """

    use: str
    metric: Metric
    share: float
    limit_us: int
    region: str
    target: str
    eligible: Eligible
    quantile: Quantile | None = None
    n: int = 0
    reason: str = ""
    usd_per_m_output: float | None = None
    goodput: Proportion | None = None
    n_eff: float | None = None
    hour: int | None = None
    answer_tokens: int | None = None
    min_tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyBudgetList:
    """One row per use, region and target."""

    MESSAGE: ClassVar[str] = "GetLatencyBudgetsResponse"

    window: Window
    budgets: tuple[LatencyBudget, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLine:
    """A target ranked within its price tier by median TTFT, seen from one region."""

    tier: str
    region: str
    rank: int
    target: str
    usd_per_m_output: float | None = None
    ttft_p50_us: Quantile | None = None
    tokens_per_second_p50: Quantile | None = None
    tokens_per_second_per_usd: float | None = None
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierList:
    """Targets by price tier, the cheapest tier first."""

    MESSAGE: ClassVar[str] = "GetTiersResponse"

    window: Window
    tiers: tuple[TierLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """The probes of one bucket, which begins at `at`: quantiles of the n values of a metric, and counts of outcomes.

    A quantile is `None` without values, and if it is not known because probes were cut off by a timeout.
    """

    at: int
    n: int = 0
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    ok: int = 0
    failed: int = 0
    throttled: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of a target from one region over time, oldest first; buckets without a probe are left out."""

    target: str
    region: str
    points: tuple[SeriesPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesList:
    """One series per target and region with samples, in buckets of `bucket_us` that begin at its multiples."""

    MESSAGE: ClassVar[str] = "GetSeriesResponse"

    window: Window
    metric: Metric
    bucket_us: int
    source: Source = Source.SAMPLES
    series: tuple[Series, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftEvent:
    """A lasting change of one metric of one target, seen from one region. `before` and `after` are medians of
    `n_before` and `n_after` rounds; `p_value` is of the permutation test.
    """

    target: str
    provider: str
    model: str
    region: str
    metric: Metric
    changed_at: int
    detected_at: int
    before: float
    after: float
    change_percent: float
    p_value: float
    n_before: int
    n_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftList:
    """The changes found in a window, newest first, out of `watched` series examined; `too_short` had too few rounds."""

    MESSAGE: ClassVar[str] = "ListDriftResponse"

    window: Window
    events: tuple[DriftEvent, ...] = ()
    watched: int = 0
    too_short: int = 0


class AlertKind(StrEnum):
    """The cause of an alert."""

    TARGET_FAILING = "target_failing"
    TARGET_THROTTLED = "target_throttled"
    TARGET_RECOVERED = "target_recovered"
    SLO_BREACHED = "slo_breached"
    SLO_RESTORED = "slo_restored"
    ROUTE_SWITCHED = "route_switched"
    ROUTE_FROZEN = "route_frozen"
    BUDGET_EXHAUSTED = "budget_exhausted"
    DRIFT = "drift"
    VANTAGE_ABSENT = "vantage_absent"
    VANTAGE_BACK = "vantage_back"
    JOB_FAILING = "job_failing"
    CLOCK_WRONG = "clock_wrong"
    CERTIFICATE_EXPIRING = "certificate_expiring"
    RIVAL = "rival"
    DISK_LOW = "disk_low"
    DATABASE_RESTORED = "database_restored"
    TEST = "test"

    @classmethod
    def _missing_(cls, value: object) -> "AlertKind | None":
        """Return the kind of an alert that was stored under a former name."""
        return cls.CLOCK_WRONG if value == "clock" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert and the state of its delivery.

    `delivered_at` is when the webhook accepted it; `None` while it is retried, or without a webhook.
    """

    id: int
    kind: AlertKind
    subject: str
    sentence: str
    raised_at: int
    delivered_at: int | None = None
    attempts: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertList:
    """Alerts of a window, newest first; `webhook` is true if a webhook is configured."""

    MESSAGE: ClassVar[str] = "ListAlertsResponse"

    window: Window
    alerts: tuple[Alert, ...] = ()
    webhook: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedProbe:
    """A failed probe of an incident; `outcome` is followed by the HTTP status if there is one: `http_error 500`."""

    vantage: str
    region: str
    round_at: int
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An incident of the target `subject`. `failing` are the regions from which it fails now, `regions` all of them
    since the first failure, and `scope` is the widest so far: `one`, `several` or `all` of the regions.

    `recovered_at` is `None` while it is open. `classes` are the numbers of failed probes by outcome and HTTP status,
    `samples` the newest of them, and `example` is the error of the newest.
    """

    id: int
    kind: AlertKind
    subject: str
    first_failed_at: int
    last_failed_at: int
    opened_at: int
    scope: str
    failing: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    never_worked: bool = False
    escalated_at: int | None = None
    recovered_at: int | None = None
    classes: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[FailedProbe, ...] = ()
    example: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentList:
    """Incidents of a window, newest first; `watched` is the number of targets that are measured now."""

    MESSAGE: ClassVar[str] = "ListIncidentsResponse"

    window: Window
    incidents: tuple[Incident, ...] = ()
    watched: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The simulated result of one policy from one region over the recorded rounds, which are the same for all policies.

    `requests` counts the requests sent, `usd` their cost (of targets with a price), `switches` the changes of the first
    choice, `failed` the rounds in which no request returned a first token.
    """

    policy: str
    region: str
    rounds: int
    requests: int
    failed: int = 0
    switches: int = 0
    ttft_p50_us: Quantile | None = None
    ttft_p95_us: Quantile | None = None
    usd: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationList:
    """One row per region and policy; `members` are the interchangeable targets."""

    MESSAGE: ClassVar[str] = "SimulateResponse"

    window: Window
    members: tuple[str, ...] = ()
    simulations: tuple[Simulation, ...] = ()
