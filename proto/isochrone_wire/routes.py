"""Route tables, on which other services act. Units as in `isochrone_wire.model`; `None` is not known, never zero."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from isochrone_wire.answers import Proportion, Quantile, Window
from isochrone_wire.insights import Eligible
from isochrone_wire.model import Slo, Target

SCHEMA = "isochrone.routes/1"
USE_STATIC_ORDER = "use_static_order"


class RouteState(StrEnum):
    """`OK`: at least one member meets the objective, or may. `DEGRADED`: no member does. `INSUFFICIENT_DATA`: too few
    samples for a ranking. `FROZEN`: the measurements are suspect, so the ranking is unchanged.
    """

    OK = "ok"
    DEGRADED = "degraded"
    INSUFFICIENT_DATA = "insufficient_data"
    FROZEN = "frozen"


class ChangeKind(StrEnum):
    """The reason for a new table: the first choice, or its correction once another member has enough rounds; a switch
    of the first choice by one of three rules (soft, fast, hard), weights ramping, new evidence with the same ranking, a
    new plan, a freeze or its end.
    """

    FIRST = "first"
    SOFT = "soft"
    FAST = "fast"
    HARD = "hard"
    RAMP = "ramp"
    EVIDENCE = "evidence"
    PLAN = "plan"
    FREEZE = "freeze"
    THAW = "thaw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantage:
    """Additional latency against the best member, paired by round, with its 95 % interval; microseconds."""

    shift_us: float
    low_us: float | None = None
    high_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The switching state of a member since `since_at`: `active` or `waiting`."""

    state: str
    since_at: int
    switches_24h: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedge:
    """The delay before a second request to `target` while the first choice has returned no token; `reason` explains a
    missing delay. `stall_lift` is P(second slow | first slow) / P(second slow) in the same round. The p99s are those of
    `joint_rounds` in which both were probed together, of which they need 299.
    """

    target: str
    delay_us: int | None = None
    expected_p99_without_us: float | None = None
    expected_p99_with_us: float | None = None
    stall_lift: float | None = None
    reason: str = ""
    joint_rounds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceSet:
    """Members that give the soonest p95 if requested in parallel, at `usd_factor` times the first choice's cost."""

    targets: tuple[str, ...]
    expected_p95_us: float | None = None
    usd_factor: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A member that is excluded from the ranking, and the reason."""

    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEntry:
    """A ranked member, seen from the client's region; equal members share a rank. The weights of a table and its
    `unassigned` share add up to 1.

    `credential_ref` is a name, never a secret. Quantiles have an interval if n is large enough. `goodput` is the share
    of planned requests that kept the limits of the objective, `throttled` that of recent rounds refused because of
    their rate. `slo_eligible` is the verdict on the objective in the long run, `slo_in_window` that on this window. The
    weight tends to `max_weight` at most, by the plan and by throttling.
    """

    rank: int
    weight: float
    target: str
    provider: str
    model: str
    dialect: str
    base_url: str
    credential_ref: str | None = None
    ttft_p50_us: Quantile | None = None
    ttft_p95_us: Quantile | None = None
    tokens_per_second_p50: Quantile | None = None
    rtt_p50_us: float | None = None
    success: Proportion | None = None
    outcomes: Mapping[str, int] = field(default_factory=dict)
    n: int = 0
    n_eff: float | None = None
    vantages: int = 0
    newest_at: int | None = None
    usd_per_m_input: float | None = None
    usd_per_m_output: float | None = None
    slo_eligible: Eligible = Eligible.UNKNOWN
    slo_in_window: Eligible = Eligible.UNKNOWN
    cost: float | None = None
    vs_best: Advantage | None = None
    hedge: Hedge | None = None
    hold: Hold | None = None
    goodput: Proportion | None = None
    answer_p95_us: Quantile | None = None
    throttled: float = 0.0
    max_weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The origin of a table: plan version, program version, and the digest of the inputs stored with it."""

    plan_version: int
    code_version: str
    inputs_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTable:
    """The ranked members of one route for one client region, with their fallbacks.

    `generation` is the number of the table, unique in the fleet and increasing. Consumers may act on the table without
    restriction until `fresh_until_at`, use it without new switches until `stale_until_at`, and then follow
    `on_expired`. Each consumer applies it after a random part of `move_within_us`. `unassigned` is the share of the
    traffic that no member may take.
    """

    generation: int
    etag: str
    client_region: str
    route: str
    built_at: int
    fresh_until_at: int
    stale_until_at: int
    state: RouteState
    slo: Slo
    window: Window
    provenance: Provenance
    change: ChangeKind = ChangeKind.FIRST
    sentence: str = ""
    entries: tuple[RouteEntry, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    static_order: tuple[str, ...] = ()
    race: RaceSet | None = None
    on_expired: str = USE_STATIC_ORDER
    schema: str = SCHEMA
    unassigned: float = 0.0
    move_within_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionTables:
    """All tables of a client region as of `answered_at`. `generation` and `etag` are those of the newest table, and
    change whenever a table does. `stale_since_at` is when the collector lost its database connection; tables may be
    outdated since then. `None` while it is connected.
    """

    client_region: str
    generation: int
    etag: str
    answered_at: int
    tables: tuple[RouteTable, ...] = ()
    stale_since_at: int | None = None
    schema: str = SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A table, its `steps` in sentences, its stored inputs and state (JSON); `replays` if these give the same bytes."""

    table: RouteTable
    steps: tuple[str, ...] = ()
    inputs: str = ""
    before: str = ""
    replays: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEvent:
    """A switch, a freeze or a new plan of a route in a region, not new evidence; `weights` are those since then."""

    generation: int
    client_region: str
    route: str
    at: int
    change: ChangeKind
    sentence: str
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEventList:
    """Events of a window, newest first."""

    window: Window
    events: tuple[RouteEvent, ...] = ()


def is_in_residency(target: Target, residency: Sequence[str]) -> bool:
    """Return whether an endpoint is in one of the regions, given as prefixes; an unknown region is in none."""
    allowed = tuple(part.lower() for part in residency)
    return target.region is not None and target.region.lower().startswith(allowed)


def is_usable(table: RouteTable, *, now_at: int) -> bool:
    """Return whether a consumer may route by the table at `now_at`; otherwise it uses the static order."""
    has_ranking = bool(table.entries) and table.state is not RouteState.INSUFFICIENT_DATA
    return has_ranking and now_at < table.stale_until_at


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table and its state."""

    client_region: str
    route: str
    generation: int
    state: RouteState
    built_at: int
    weights: Annotated[Mapping[str, float], "The weights of the members from 0 to 1, by their targets in rank order."]
    fresh_until_at: int
    stale_until_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The regions and routes that have a table."""

    generation: Annotated[int, "The newest generation of all tables."]
    plan_version: int
    client_regions: tuple[str, ...]
    routes: Annotated[tuple[str, ...], "The routes of the plan in force."]
    tables: tuple[TableState, ...]

    @classmethod
    def of(cls, tables: Iterable[RouteTable], *, plan_version: int, routes: tuple[str, ...]) -> "Overview":
        """The overview of tables, and of the routes of a plan."""
        ordered = sorted(tables, key=lambda table: (table.client_region, table.route))
        names = ("client_region", "route", "generation", "state", "built_at", "fresh_until_at", "stale_until_at")
        states = (
            TableState(
                **{name: getattr(table, name) for name in names},
                weights={entry.target: entry.weight for entry in table.entries},
            )
            for table in ordered
        )
        return cls(
            generation=max((table.generation for table in ordered), default=0),
            plan_version=plan_version,
            client_regions=tuple(dict.fromkeys(table.client_region for table in ordered)),
            routes=routes,
            tables=tuple(states),
        )
