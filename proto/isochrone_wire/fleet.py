"""Value classes of the answers on the fleet: targets, vantages, their spend, their coverage and single samples; and
why regions have no samples.

Units as in `isochrone_wire.model`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from isochrone_wire.answers import Absence, Window
from isochrone_wire.model import Budget, Sample, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetList:
    """The targets of the plan in force; version 0 and no targets before the first plan."""

    plan_version: int
    baseline: str
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSample:
    """A sample with the names of its target and vantage, and when the collector received it; `id` finds it again."""

    target: str
    vantage: str
    region: str
    received_at: int
    sample: Sample
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleList:
    """Samples of a window, or one page of them. Followed samples have no window: a broken stream continues with those
    received since `resume_at`, some of which may have been sent.
    """

    samples: tuple[StoredSample, ...] = ()
    resume_at: int = 0
    window: Window | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The planned rounds of a vantage and target, those with a sample (`oldest_at` to `newest_at`), outcomes."""

    vantage: str
    region: str
    target: str
    planned: int
    recorded: int
    outcomes: Mapping[str, int] = field(default_factory=dict)
    newest_at: int | None = None
    oldest_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageList:
    """One row per vantage and target."""

    window: Window
    coverage: tuple[Coverage, ...] = ()


class Liveness(StrEnum):
    """State of a vantage: samples arrive, its heartbeat is overdue, only heartbeats arrive, it has no targets, or its
    agent has said that it stops.
    """

    ONLINE = "online"
    LATE = "late"
    SILENT = "silent"
    EMPTY = "empty"
    STOPPED = "stopped"

    @property
    def phrase(self) -> str:
        """The state in words for people."""
        return {Liveness.SILENT: "no samples", Liveness.EMPTY: "nothing to probe"}.get(self, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageStatus:
    """The state of one vantage as of its newest push. `reason` is a sentence; `finished` is the `finished` of the
    agent's heartbeat, `ledgered` the delivery ledger's count of stored samples in the same epoch. `missing_keys` are
    sentences on the targets that are skipped because the agent lacks their key, `refused_targets` on those that its
    policy refuses. `duplicate_at` is when a second agent with the same credential was refused last, `left_out`
    the share of the probes of the last 15 minutes that cannot be compared, because the machine was busy. `latitude` and
    `longitude` are those of the region in degrees, `place` is its city; `None` where they are not known.
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
    missing_keys: str | None = None
    refused_targets: str | None = None
    duplicate_at: int | None = None
    left_out: float | None = None
    latitude: float | None = None
    longitude: float | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageList:
    """All vantages by region and name, as of `answered_at`; `paused` is why the jobs are paused, or empty."""

    plan_version: int
    answered_at: int
    vantages: tuple[VantageStatus, ...] = ()
    paused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendLine:
    """The spending of a vantage with a provider today (UTC), and the forecast for the day; `None` without a price."""

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
    """One row per vantage and provider."""

    spend: tuple[SpendLine, ...] = ()


ELSEWHERE = "has delivered others"
"""The end of the sentence of a region whose vantage has delivered samples, but none of the selection."""


def absences(regions: Iterable[str], vantages: Sequence[VantageStatus], window: Window) -> tuple[Absence, ...]:
    """Return the reason for each of these regions, all of which have no samples in the window."""
    return tuple(
        Absence(region=region, sentence=_absence_of(region, [one for one in vantages if one.region == region], window))
        for region in regions
    )


def absences_besides(
    region: str, vantages: Sequence[VantageStatus], window: Window, *, baseline: str
) -> tuple[Absence, ...]:
    """Return the reasons if no other region has samples in the window: of the baseline and of those with a vantage."""
    others = dict.fromkeys((baseline, *sorted(one.region for one in vantages)))
    return absences((other for other in others if other not in ("", region)), vantages, window) or (
        Absence(region="", sentence="no samples from a second region: start an agent there"),
    )


def _absence_of(region: str, vantages: Sequence[VantageStatus], window: Window) -> str:
    if not vantages:
        return f"no samples from {region}: start an agent there"
    newest = max(vantages, key=lambda one: one.newest_sample_at or 0)
    if (newest.newest_sample_at or 0) >= window.from_at:
        return f"no samples from {region} in this selection, but {newest.name} there {ELSEWHERE}"
    return f"no samples from {region} (vantage {newest.name}: {newest.reason})"
