"""Route tables: the answer other services act on. Units as in `isochrone_wire.model`; `None` is not known, not zero."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from isochrone_wire.answers import Proportion, Quantile, Window
from isochrone_wire.insights import Eligible
from isochrone_wire.model import Slo

SCHEMA = "isochrone.routes/1"
USE_STATIC_ORDER = "use_static_order"


class RouteState(StrEnum):
    """`OK`: somebody keeps the objective, or may. `DEGRADED`: nobody does. `INSUFFICIENT_DATA`: too little is known to
    rank. `FROZEN`: we suspect ourselves, and the ranking stays as it was.
    """

    OK = "ok"
    DEGRADED = "degraded"
    INSUFFICIENT_DATA = "insufficient_data"
    FROZEN = "frozen"


class ChangeKind(StrEnum):
    """Why a table was built: the first of its kind, a switch of the first choice by one of three rules, weights on
    their way, evidence that moved within the same ranking, a new plan, a freeze or its end.
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
    """How much longer than the best member one takes, paired by round, with its 95 % interval; microseconds."""

    shift_us: float
    low_us: float | None = None
    high_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """How a member stands towards switching: `active` carries the first choice since `since_at`, `waiting` does not;
    `penalty` is the damping that lengthens the dwell.
    """

    state: str
    since_at: int
    switches_24h: int = 0
    penalty: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedge:
    """When to start the second choice while the first has given no token. Without a delay, `reason` says why not.

    `stall_lift` is P(second slow | first slow) / P(second slow) in the same round.
    """

    target: str
    delay_us: int | None = None
    expected_p99_without_us: float | None = None
    expected_p99_with_us: float | None = None
    stall_lift: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceSet:
    """The members whose first answer gives the best predicted p95 for the money, when all are asked at once."""

    targets: tuple[str, ...]
    expected_p95_us: float | None = None
    usd_factor: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A member that is not in the ranking, and why."""

    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEntry:
    """A member as seen from the client's region, in rank order; equals share a rank. Weights of a table add up to 1.

    `credential_ref` is a name and never a secret. Quantiles have their interval where n allows one.
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
    cost: float | None = None
    vs_best: Advantage | None = None
    hedge: Hedge | None = None
    hold: Hold | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a table was made of: the plan, the program's version, and the digest of the inputs stored with it."""

    plan_version: int
    code_version: str
    inputs_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTable:
    """Where to send one kind of request from one client region, and what if that fails.

    A generation is the number of one table: it is unique in the fleet and only grows. Until `fresh_until_at` it may be
    acted on freely; until `stale_until_at` it may be used, without new switches; after that the consumer does what
    `on_expired` says.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionTables:
    """All tables of a client region as of `answered_at`. Generation and etag are of the newest among them, and change
    whenever one of them does. `stale_since_at` is when the collector lost its database: until then it knew of every
    table; `None` while it has it.
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
    """Why a table is as it is: `steps` are sentences in the order of the rules, `inputs` and `before` are the stored
    inputs and state as JSON, and `replays` tells whether deciding again from them gave the same bytes.
    """

    table: RouteTable
    steps: tuple[str, ...] = ()
    inputs: str = ""
    before: str = ""
    replays: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEvent:
    """A switch, a freeze or a plan, in a sentence: the history of a route in a region without its refreshments."""

    generation: int
    client_region: str
    route: str
    at: int
    change: ChangeKind
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEventList:
    """Events of a window, newest first."""

    window: Window
    events: tuple[RouteEvent, ...] = ()
