"""Answers that weigh several samples, targets or regions at once. Units as in `isochrone_wire.model`."""

from dataclasses import dataclass
from enum import StrEnum

from isochrone_wire.answers import Decision, Metric, Quantile, Window


class Eligible(StrEnum):
    """Whether a limit is kept, decided on the interval: its worse bound is within, it holds the limit, its better bound
    is outside, or there are too few samples to say.
    """

    YES = "yes"
    MAYBE = "maybe"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCost:
    """What a provider costs in time from one region, beside the region where it is nearest.

    `added` is the shift in microseconds (or tokens per second) against `best_region` over `targets` targets, paired by
    target and round, n pairs; it is zero in the best region itself. `median` is over targets of their medians.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCostList:
    """One line per provider and region, the best region of each provider first."""

    window: Window
    costs: tuple[RegionCost, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyBudget:
    """Whether a target keeps a use's limit from one region. `quantile` is of `metric` at `share`, with its interval."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyBudgetList:
    """One line per use, region and target."""

    window: Window
    budgets: tuple[LatencyBudget, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLine:
    """A target within its price tier, ranked there by median TTFT, as seen from one region."""

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

    window: Window
    tiers: tuple[TierLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftEvent:
    """A lasting change of one metric of one target as seen from one region. `before` and `after` are medians of
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
    """The changes found in a window, newest first; `watched` series were looked at and `too_short` had too few
    rounds.
    """

    window: Window
    events: tuple[DriftEvent, ...] = ()
    watched: int = 0
    too_short: int = 0


class AlertKind(StrEnum):
    """What an alert is about."""

    DRIFT = "drift"
    VANTAGE_ABSENT = "vantage_absent"
    VANTAGE_BACK = "vantage_back"
    TEST = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that somebody should know, and what became of telling them.

    `delivered_at` is when the webhook took it; `None` while it is tried again, or when no webhook is set.
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
    """Alerts of a window, newest first, and whether a webhook is set."""

    window: Window
    alerts: tuple[Alert, ...] = ()
    webhook: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What one policy would have given from one region over the recorded rounds: the same rounds for every policy.

    `requests` counts the requests sent, `usd` what they cost where prices are known, `switches` how often the first
    choice changed, `failed` the rounds in which no request gave a first token.
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
    """One line per region and policy; `members` are the targets that may stand in for each other."""

    window: Window
    members: tuple[str, ...] = ()
    simulations: tuple[Simulation, ...] = ()
