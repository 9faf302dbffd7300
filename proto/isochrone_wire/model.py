"""The values both sides speak of. All are frozen; facts don't change.

Units, everywhere: durations are integer microseconds (`_us`); wall instants are integer microseconds since the Unix
epoch, UTC (`_at`); rates are floats named for what they count; money is US dollars (`_usd`). `None` means "not known",
never zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag, StrEnum

from isochrone_wire.stable_ids import stable_id

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
DAY_US = 86_400 * SECOND_US
DEFAULT_PROMPT = "Explain recursion in 200 words"


def day_of(at: int) -> int:
    """When the day (UTC) of an instant began; both are microseconds since the Unix epoch."""
    return at - at % DAY_US


class Outcome(StrEnum):
    """Why a sample is as it is. `SKIPPED_*` are planned rounds in which nothing was sent."""

    OK = "ok"
    THROTTLED = "throttled"
    HTTP_ERROR = "http_error"
    CONNECT_FAILED = "connect_failed"
    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    TRUNCATED = "truncated"
    GARBLED = "garbled"
    SKIPPED_OVERLAP = "skipped_overlap"
    SKIPPED_BUDGET = "skipped_budget"
    SKIPPED_THROTTLED = "skipped_throttled"
    SKIPPED_PAUSED = "skipped_paused"
    SKIPPED_NOT_READY = "skipped_not_ready"

    @property
    def skipped(self) -> bool:
        """Whether no request was sent at all."""
        return self.value.startswith("skipped_")


class TokenSource(StrEnum):
    """Who counted the tokens: the provider's usage block, or our estimate."""

    USAGE = "usage"
    ESTIMATED = "estimated"


class Overlap(StrEnum):
    """What a round does when the target's previous probe is still in flight."""

    SKIP = "skip"
    ALLOW = "allow"


class ConnectionUse(StrEnum):
    """Whether each probe opens its own connection, or a vantage keeps one per target."""

    COLD = "cold"
    WARM = "warm"


class Quality(IntFlag):
    """What a reader should know before trusting a sample; zero is a clean sample."""

    CLEAN = 0
    LAGGED = 1
    BUFFERED = 2
    CACHED = 4
    ESTIMATED_TOKENS = 8
    CLOCK_UNSYNCED = 16
    CLOCK_STEPPED = 32
    REUSED = 64
    USER_STAMPS = 128

    @property
    def labels(self) -> tuple[str, ...]:
        """The raised flags by name, in the order of their bits."""
        return tuple(flag.name.lower() for flag in Quality if flag in self and flag.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits of one probe in microseconds: connect, request to first token, between chunks, and all together."""

    connect_us: int = 10 * SECOND_US
    first_token_us: int = 60 * SECOND_US
    gap_us: int = 30 * SECOND_US
    total_us: int = 180 * SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The fixed request. `concurrency` 1 is a single probe, N a burst of N at once. `temperature` and
    `reasoning_effort` are only sent when they are said: many models refuse every temperature but their own.
    """

    prompt: str = DEFAULT_PROMPT
    max_output_tokens: int = 200
    temperature: float | None = None
    reasoning_effort: str | None = None
    concurrency: int = 1
    timeouts: Timeouts = Timeouts()
    connection: ConnectionUse = ConnectionUse.COLD


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """List price in US dollars per million tokens."""

    usd_per_m_input: float = 0.0
    usd_per_m_output: float = 0.0

    def cost_usd(self, *, prompt_tokens: int, output_tokens: int) -> float:
        """What one exchange of so many tokens costs, in US dollars."""
        return (prompt_tokens * self.usd_per_m_input + output_tokens * self.usd_per_m_output) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is measured. `id` is the same in the whole fleet; see `target_id`. `credential` names a key of the agent's
    own file and is never the key itself; `region` is where the endpoint stands, if known. Within `spread_us` after a
    round each vantage begins at an instant of its own. A `paused` target's rounds are recorded as such, and nothing is
    sent.
    """

    id: int
    name: str
    provider: str
    model: str
    base_url: str
    dialect: str = "openai-chat"
    workload: Workload = Workload()
    every_us: int = MINUTE_US
    overlap: Overlap = Overlap.SKIP
    credential: str | None = None
    price: Price | None = None
    region: str | None = None
    spread_us: int = 0
    paused: bool = False


def target_id(*, provider: str, model: str, base_url: str, dialect: str, workload: Workload) -> int:
    """The id of a target, from 1 to 2^63 - 1, made of whatever changes what is being measured.

    Limits, prices and intervals may change without starting a new series, so they are left out.
    """
    request = (workload.prompt, workload.max_output_tokens, workload.temperature, workload.reasoning_effort)
    way = (workload.concurrency, workload.connection.value)
    return stable_id("target", provider, model, base_url, dialect, *request, *way)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one vantage may spend with one provider in one day (UTC); `None` does not bind.

    Without a `vantage` it holds for each vantage by itself.
    """

    provider: str
    vantage: str | None = None
    usd_per_day: float | None = None
    tokens_per_day: int | None = None
    requests_per_day: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What one vantage has spent with one provider in the day (UTC) that began at `day_at`."""

    provider: str
    day_at: int
    usd: float = 0.0
    tokens: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What a route promises: its class, the most that 95 % of first tokens may take (`None` does not bind), and the
    least share of requests that succeed.
    """

    name: str = "custom"
    ttft_p95_us: int | None = None
    min_success: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What members are ranked by, in milliseconds: ttft · p50 + tail · max(0, upper p95 - SLO) + usd · (US dollars per
    million output tokens) + failure · (1 - lower bound of success).
    """

    ttft: float = 1.0
    tail: float = 0.5
    usd: float = 0.0
    failure: float = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A logical model that services ask for. `members` are names of targets that may stand in for each other,
    `static_order` those to try when nothing is known, `residency` the beginnings of allowed endpoint regions.
    """

    name: str
    members: tuple[str, ...]
    slo: Slo = Slo()
    objective: Objective = Objective()
    static_order: tuple[str, ...] = ()
    residency: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which targets every vantage probes. Versions count up from 1; `baseline` is the reference region.

    `control` names the target that tells a vantage's own trouble from the world's: where it fails, the vantage's
    comparisons are not to be trusted. Empty when there is none.
    """

    version: int
    baseline: str
    targets: tuple[Target, ...] = ()
    budgets: tuple[Budget, ...] = ()
    control: str = ""
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Vantage:
    """Where we look from: one agent, in one region."""

    name: str
    region: str

    @property
    def id(self) -> int:
        """The id of a vantage, from 1 to 2^63 - 1, from its name."""
        return stable_id("vantage", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """Limit, remaining and reset as the provider stated them; `None` where it said nothing or -1."""

    limit_requests: int | None = None
    remaining_requests: int | None = None
    reset_requests_us: int | None = None
    limit_tokens: int | None = None
    remaining_tokens: int | None = None
    reset_tokens_us: int | None = None
    retry_after_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The record of one probe, successful or not.

    `late_us` is dispatch minus the instant this vantage was to begin at: the round, plus its place in the target's
    spread. `ttfb_us`, `ttft_us`, `ttfat_us` and `e2e_us` run from the request fully written to the first byte, the
    first token of any channel, the first token of the answer and the last token; setting up the connection is in none
    of them. `rtt_us` is the kernel's of this connection and reaches the provider's edge, no further. `error` is one
    bounded sentence without keys, prompts or answers. `timeout_us` is the limit that a timed-out or stalled probe hit.
    """

    target_id: int
    round_at: int
    outcome: Outcome
    dispatched_at: int
    late_us: int = 0

    dns_us: int | None = None
    tcp_us: int | None = None
    tls_us: int | None = None
    ttfb_us: int | None = None
    ttft_us: int | None = None
    ttfat_us: int | None = None
    e2e_us: int | None = None

    tokens_per_second: float | None = None
    chunk_gap_p50_us: int | None = None
    chunk_gap_p99_us: int | None = None
    chunk_gap_max_us: int | None = None
    stalls: int | None = None

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    first_chunk_tokens: int | None = None
    chunks: int = 0
    output_chars: int = 0
    token_source: TokenSource | None = None

    rtt_us: int | None = None
    rtt_min_us: int | None = None
    retransmits: int | None = None
    provider_us: int | None = None
    remote_address: str | None = None
    edge: str | None = None
    request_id: str | None = None
    ratelimit: RateLimit | None = None

    loop_lag_us: int | None = None
    clock_offset_us: int | None = None
    clock_uncertainty_us: int | None = None
    cost_usd: float | None = None
    quality: Quality = Quality.CLEAN

    http_status: int | None = None
    error: str | None = None
    timeout_us: int | None = None

    @property
    def connect_us(self) -> int | None:
        """DNS, TCP and TLS together in microseconds; `None` on a reused connection."""
        phases = [phase for phase in (self.dns_us, self.tcp_us, self.tls_us) if phase is not None]
        return sum(phases) if phases else None

    @property
    def ttft_cold_us(self) -> int | None:
        """What a client without a warm connection waits for the first token, in microseconds."""
        if self.ttft_us is None or self.connect_us is None:
            return None
        return self.connect_us + self.ttft_us

    @property
    def tpot_us(self) -> float | None:
        """Time per output token in microseconds, the first one not included: 1e6 / tokens_per_second."""
        return SECOND_US / self.tokens_per_second if self.tokens_per_second else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """How an agent is doing. `spool_oldest_at` is 0 when empty; `dropped` counts samples given up, by reason.

    `epoch` is the one under which samples are sealed now, 0 from an agent that does not tell. Counted over it,
    `finished = stored + spool_depth + quarantined + sum(dropped)`; see
    `isochrone_wire.accounting`. `rounds_missed` are planned rounds that passed before they could be begun.
    """

    agent_version: str = ""
    plan_version: int = 0
    spool_depth: int = 0
    spool_oldest_at: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    next_heartbeat_us: int = 0
    finished: int = 0
    stored: int = 0
    quarantined: int = 0
    rounds_missed: int = 0
    clock_offset_us: int | None = None
    clock_uncertainty_us: int | None = None
    loop_lag_us: int | None = None
    refused_plan_version: int | None = None
    refused_plan_reason: str | None = None
    spend: tuple[Spend, ...] = ()
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What is pushed: one sealed run of samples, or with `seq` 0 and no samples a heartbeat.

    `epoch` is random for each start of an agent, so that no two lives of a vantage share a sequence. `sent_at` is the
    agent's wall clock, the first of the four timestamps of a clock exchange.
    """

    vantage: Vantage
    epoch: int
    seq: int
    samples: tuple[Sample, ...] = ()
    vitals: Vitals = Vitals()
    sent_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One sample the collector would not take: its place in the batch, from 0, and the named reason."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The reply to a push; the counts add up to the samples pushed. `delay_us` asks to wait before the next push.

    `received_at` and `server_at` are the collector's wall clock when the push had come and when the reply was made.
    """

    stored: int = 0
    duplicate: int = 0
    rejected: int = 0
    rejections: tuple[Rejection, ...] = ()
    plan_version: int = 0
    server_at: int = 0
    delay_us: int | None = None
    received_at: int = 0
