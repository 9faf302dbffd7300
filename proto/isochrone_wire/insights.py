"""Answers that combine several samples, targets or regions. Units as in `isochrone_wire.model`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from isochrone_wire.answers import Decision, Metric, Order, Proportion, Quantile, Source, Window
from isochrone_wire.operations import ALERT_PREFIX, INCIDENT_PREFIX, AlertDelivery, Silence

_KIND = re.compile("[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One row of a leaderboard: a target seen from one region. `rank` is the place among the values, and
    `rank_low` to `rank_high` are those that the 95 % intervals leave possible; targets without an interval come last.
    `n` counts samples with a first token.
    `tokens_per_second_per_usd` is the median speed divided by the price of a million output tokens. `throttled` and
    `skipped` rounds count neither as successes nor as failures. `left_out` is the share of the
    probes that succeeded that count here and not in comparisons, because the vantage was busy.
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
    rank_low: int | None = None
    rank_high: int | None = None
    left_out: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Standings of the selected regions, ranked within each region by `order`."""

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
    `targets` targets, as n pairs by target and round; it is zero in the best region. The interval also holds for the
    choice of the best region; but for that, `n_eff` independent pairs have as wide a one as these n. `median` is the
    median over targets of their medians. `since_at` is the newest lasting change of one of these targets, in
    microseconds since the epoch: rounds of a target before its own newest change do not count. A decision without 48
    hours of history is `provisional`.
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
    provisional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCostList:
    """One row per provider and region, the best region of each provider first."""

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

    window: Window
    budgets: tuple[LatencyBudget, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLine:
    """A target ranked within its price tier by median TTFT, seen from one region; `rank`, `rank_low` and `rank_high` as
    in a standing.
    """

    tier: str
    region: str
    rank: int
    target: str
    usd_per_m_output: float | None = None
    ttft_p50_us: Quantile | None = None
    tokens_per_second_p50: Quantile | None = None
    tokens_per_second_per_usd: float | None = None
    n: int = 0
    rank_low: int | None = None
    rank_high: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierList:
    """Targets by price tier, the cheapest tier first."""

    window: Window
    tiers: tuple[TierLine, ...] = ()


class Exhaustion(StrEnum):
    """Whether a rate limit is used up before it refills: at all rates of the 95 % interval, at some, or at none."""

    EXHAUSTED = "exhausted"
    EXPECTED = "expected"
    POSSIBLE = "possible"
    NOT_EXPECTED = "not_expected"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitPoint:
    """The lowest remaining amount in one bucket, which begins at `at`."""

    at: int
    remaining: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitSeries:
    """One rate limit (`kind` is `requests` or `tokens`) of one target and vantage: the newest headers of the window, a
    forecast, and the history, oldest first.

    `credential` is the name of the API key, whose limits all vantages that use it may share; empty without one.
    `lowest` is of the whole window, `n` its number of probes with this header. `per_minute` is the change of the
    remaining amount by the newest `readings` since the last refill, with its 95 % interval; at these rates nothing
    remains at `exhausted_at`, from `exhausted_low_at` to `exhausted_high_at` (`None` for a rate that does not fall).
    """

    target: str
    provider: str
    credential: str = ""
    region: str
    vantage: str
    kind: str
    newest_at: int
    remaining: int
    limit: int | None = None
    reset_us: int | None = None
    lowest: int
    n: int
    exhaustion: Exhaustion = Exhaustion.UNKNOWN
    per_minute: float | None = None
    per_minute_low: float | None = None
    per_minute_high: float | None = None
    exhausted_at: int | None = None
    exhausted_low_at: int | None = None
    exhausted_high_at: int | None = None
    readings: int = 0
    points: tuple[RateLimitPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitList:
    """One series per target, vantage and kind of limit that response headers state, in buckets of `bucket_us`."""

    window: Window
    bucket_us: int
    limits: tuple[RateLimitSeries, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftEvent:
    """A lasting change of a metric: medians of the rounds before and after, and the p-value of a permutation test. It
    `may_be_weekly` if the weekly cycle was not known yet.
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
    may_be_weekly: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftList:
    """The changes found in a window, newest first, out of `watched` series examined; `too_short` had too few rounds."""

    window: Window
    events: tuple[DriftEvent, ...] = ()
    watched: int = 0
    too_short: int = 0


class AlertKind(StrEnum):
    """The cause of an alert. A kind of a later version is a value without a name here, delivered and shown as it is."""

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
    DUPLICATE_AGENT = "duplicate_agent"
    DISK_LOW = "disk_low"
    DATABASE_RESTORED = "database_restored"
    ACKNOWLEDGED = "acknowledged"
    TEST = "test"

    @classmethod
    def _missing_(cls, value: object) -> "AlertKind | None":
        """Return the kind of an alert that a later version stored."""
        if not isinstance(value, str) or not _KIND.fullmatch(value):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_, unknown._value_ = value.upper(), value
        return unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert and the state of its delivery. `delivered_at` is when all receivers had accepted it; `None` while one
    has not, or without one. `attempts` and `last_error` are those of the receiver that needed the most.
    """

    ID_PREFIX: ClassVar[str] = ALERT_PREFIX

    id: int
    kind: AlertKind
    subject: str
    sentence: str
    raised_at: int
    delivered_at: int | None = None
    attempts: int = 0
    last_error: str = ""
    deliveries: tuple[AlertDelivery, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertList:
    """Alerts of a window, newest first; `webhook` is true if there is a receiver."""

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
    `samples` the newest of them, and `example` is the error of the newest. `silences` are the acknowledgements of an
    open incident, and the silences that match it, which are in force.
    """

    ID_PREFIX: ClassVar[str] = INCIDENT_PREFIX

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
    silences: tuple[Silence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentList:
    """Incidents of a window, newest first; `watched` is the number of targets that are measured now."""

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

    window: Window
    members: tuple[str, ...] = ()
    simulations: tuple[Simulation, ...] = ()
