"""Value classes shared by agent and collector; all are frozen.

Units: durations are integer microseconds (`_us`); wall-clock instants are integer microseconds since the Unix epoch,
UTC (`_at`); rates are floats named after what they count; money is US dollars (`_usd`). `None` means "not known", never
zero.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from math import isfinite
from typing import ClassVar

from isochrone_wire.durations import DAY_US as DAY_US  # noqa: PLC0414  # most modules import the units with the values
from isochrone_wire.durations import MINUTE_US as MINUTE_US  # noqa: PLC0414  # as above
from isochrone_wire.durations import SECOND_US as SECOND_US  # noqa: PLC0414  # as above
from isochrone_wire.durations import day_of as day_of  # noqa: PLC0414  # as above
from isochrone_wire.stable_ids import stable_id

DEFAULT_PROMPT = "Explain recursion in 200 words"
DEFAULT_GOODPUT = 0.95


class Outcome(StrEnum):
    """The outcome of a probe. `SKIPPED_*`: no request was sent, or the agent ended it (`NOT_READY`, `timeout_us`)."""

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
    STREAM_ERROR = "stream_error"
    FILTERED = "filtered"
    EMPTY = "empty"

    @property
    def skipped(self) -> bool:
        """True if no request was sent, or the agent itself ended it."""
        return self.value.startswith("skipped_")

    @property
    def failed(self) -> bool:
        """True if it counts as a failure of the provider: for success, goodput, routes, alerts and incidents."""
        return not self.skipped and self not in (Outcome.OK, Outcome.THROTTLED)


class TokenSource(StrEnum):
    """The source of the token counts: the provider's usage block, or an estimate."""

    USAGE = "usage"
    ESTIMATED = "estimated"


class Overlap(StrEnum):
    """The policy for a round that starts while the target's previous probe is in flight, and is not overdue."""

    SKIP = "skip"
    ALLOW = "allow"


class ConnectionUse(StrEnum):
    """Connection reuse: `COLD` opens a connection per probe, `WARM` keeps one per target and vantage."""

    COLD = "cold"
    WARM = "warm"


class Quality(IntFlag):
    """Flags that qualify a sample's measurements; zero is a clean sample. A `BLOCKED` round was not sent, because the
    previous probe of its target hung: it counts as a timeout, at the time that this probe had waited when the round
    began; or because the answer to it was a failure that asked to wait: it counts as the same failure.
    """

    CLEAN = 0
    LAGGED = 1
    BUFFERED = 2
    CACHED = 4
    ESTIMATED_TOKENS = 8
    CLOCK_UNSYNCED = 16
    CLOCK_STEPPED = 32
    REUSED = 64
    USER_STAMPS = 128
    BLOCKED = 256
    RECONNECTED = 512

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the set flags, in bit order."""
        return tuple(flag.name.lower() for flag in Quality if flag in self and flag.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts of one probe in microseconds: connect, request to first token, between chunks, and total."""

    connect_us: int = 10 * SECOND_US
    first_token_us: int = 60 * SECOND_US
    gap_us: int = 30 * SECOND_US
    total_us: int = 180 * SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The request of a probe, sent `concurrency` times at once. Temperature and effort are sent only if set."""

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
        """Return the cost of a request and its response in US dollars."""
        return (prompt_tokens * self.usd_per_m_input + output_tokens * self.usd_per_m_output) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths on the agent's machine: the client's certificate and its private key, and authorities to trust."""

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that are set."""
        return tuple(path for path in (self.certificate, self.key, self.ca) if path is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An endpoint and request to measure.

    `id` is the same in the whole fleet; see `target_id`. `credential` is the name of a key in the agent's credentials
    file, never the key itself; `region` is the region of the endpoint, if known. Each vantage starts at its own offset
    within `spread_us` after a round. The rounds of a `paused` target are recorded as skipped, without a request.
    With `happy_eyeballs` it connects by RFC 8305, else to the first address. Fields in `omit` are not sent.
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
    tls: TlsFiles | None = None
    happy_eyeballs: bool = False
    omit: tuple[str, ...] = ()


def target_id(
    *, provider: str, model: str, base_url: str, dialect: str, workload: Workload, omit: Iterable[str] = ()
) -> int:
    """Return a target's id (1 to 2^63 - 1), from all that affects the measurement: no limits, prices or intervals."""
    request = (workload.prompt, workload.max_output_tokens, workload.temperature, workload.reasoning_effort)
    transport = (workload.concurrency, workload.connection.value)
    return stable_id("target", provider, model, base_url, dialect, *request, *transport, *sorted(set(omit)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Daily (UTC) spending limits of a vantage with a provider, or of each vantage; `None` means no limit."""

    provider: str
    vantage: str | None = None
    usd_per_day: float | None = None
    tokens_per_day: int | None = None
    requests_per_day: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """The spending of one vantage with one provider in the day (UTC) that began at `day_at`."""

    provider: str
    day_at: int
    usd: float = 0.0
    tokens: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """The service-level objective of a route: its class, limits (`None`: none) on the time to first token, to the last
    of `answer_tokens` and on speed, the minimum share of all requests that keep them, and the minimum that succeed.
    """

    name: str = "custom"
    ttft_p95_us: int | None = None
    min_success: float = 0.0
    min_goodput: float = DEFAULT_GOODPUT
    answer_tokens: int | None = None
    answer_p95_us: int | None = None
    min_tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The weights of a member's ranking cost, which in milliseconds is

    ttft · p50 + answer · (p50 of the whole answer) + tail · max(0, upper p95 - SLO) + usd · (US dollars per million
    output tokens) + failure · (1 - lower bound of success).
    """

    ttft: float = 1.0
    tail: float = 0.5
    usd: float = 0.0
    failure: float = 1000.0
    answer: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A logical model that services request. `members` are the names of interchangeable targets, `static_order` the
    members to try without evidence, `residency` prefixes of allowed endpoint regions, `max_share` limits on weights.
    """

    name: str
    members: tuple[str, ...]
    slo: Slo = Slo()
    objective: Objective = Objective()
    static_order: tuple[str, ...] = ()
    residency: tuple[str, ...] = ()
    max_share: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginRule:
    """The smallest difference of a metric that matters: the larger of `least` and `percent` of the smaller median."""

    metric: str
    least: float | None = None
    percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The targets that every vantage probes. Versions count up from 1; `baseline` is the reference region. While the
    target `control` fails (if there is one), a vantage's comparisons are unreliable. See `trust.plan_signature`. The
    `content_hash` distinguishes plans, because a restored database reuses versions.
    """

    version: int
    baseline: str
    targets: tuple[Target, ...] = ()
    budgets: tuple[Budget, ...] = ()
    control: str = ""
    routes: tuple[Route, ...] = ()
    margins: tuple[MarginRule, ...] = ()
    signature: bytes = b""
    content_hash: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vantage:
    """A measurement location: one agent in one region."""

    name: str
    region: str

    @property
    def id(self) -> int:
        """The id of the vantage, from 1 to 2^63 - 1, computed from its name."""
        return stable_id("vantage", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """Rate limit headers as the provider sent them; `None` if absent or -1."""

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

    `late_us` is dispatch minus the planned start: the round plus this vantage's offset in the target's spread.
    `ttfb_us`, `ttft_us`, `ttfat_us` and `e2e_us` start when the request is fully written and end at the first byte, the
    first token of any channel, the first token of the answer and the last token; they exclude connection setup.
    `rtt_us` is the kernel's measurement for this connection, which reaches to the provider's edge. `error` is one
    bounded sentence without keys, prompts or answers. `timeout_us` is the limit that was reached, or the
    age at which the agent stopped; of a blocked round, the time that the previous probe had waited when it began.
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
    frames_unknown: int = 0
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

    DERIVED: ClassVar[tuple[str, ...]] = ("connect_us", "ttft_cold_us", "tpot_us")
    """The properties that its JSON form includes."""

    @property
    def sent(self) -> bool:
        """True if a request was sent; false for skipped and blocked rounds."""
        skipped = self.outcome.skipped and not (self.outcome is Outcome.SKIPPED_NOT_READY and self.timeout_us)
        return not skipped and Quality.BLOCKED not in self.quality

    @property
    def connect_us(self) -> int | None:
        """The sum of DNS, TCP and TLS in microseconds; `None` on a reused connection."""
        phases = [phase for phase in (self.dns_us, self.tcp_us, self.tls_us) if phase is not None]
        return sum(phases) if phases else None

    @property
    def ttft_cold_us(self) -> int | None:
        """Connection setup plus time to first token, in microseconds."""
        if self.ttft_us is None or self.connect_us is None:
            return None
        return self.connect_us + self.ttft_us

    @property
    def tpot_us(self) -> float | None:
        """Time per output token after the first, in microseconds: 1e6 / tokens_per_second, if that is finite."""
        speed = self.tokens_per_second
        return SECOND_US / speed if speed and isfinite(SECOND_US / speed) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Sample counts of one spool: every finished sample is stored, spooled or dropped for a named reason, so that
    `finished = stored + spooled + sum(dropped)`.

    An agent evaluates this over its spool (`stored` counts the samples that the collector acknowledged), the collector
    over its ledger and the newest heartbeat. `spooled` includes quarantined samples, which are still on disk. A sample
    that the collector rejected counts as dropped, under the collector's reason.
    """

    finished: int
    stored: int
    spooled: int
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """Samples that are unaccounted for: 0 if the account holds, negative if samples are counted twice."""
        return self.finished - self.stored - self.spooled - sum(self.dropped.values())

    @property
    def holds(self) -> bool:
        """True if no sample is missing or counted twice."""
        return self.missing == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The state of an agent. `spool_oldest_at` is 0 if the spool is empty; `dropped` counts lost samples by reason.

    `epoch` is that of the agent's newest start. `finished` and `stored` exclude
    samples stored under earlier epochs, so that `finished = stored + spool_depth + quarantined + sum(dropped)`; see
    `isochrone_wire.model`. `rounds_missed` counts planned rounds that passed before they could start.
    `missing_keys` are sentences on targets that are skipped for want of a key, `refused_targets` as the policy refuses.
    The last heartbeat of an agent that is `stopped` says so.
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
    missing_keys: str | None = None
    refused_targets: str | None = None
    stopped: bool = False

    @property
    def account(self) -> Account:
        """The account that it reports."""
        spooled = self.spool_depth + self.quarantined
        return Account(finished=self.finished, stored=self.stored, spooled=spooled, dropped=self.dropped)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRange:
    """The batches of one epoch with the numbers from `first_seq` to `last_seq`."""

    epoch: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The content of a push: one sealed batch of samples, or a heartbeat (`seq` 0 and no samples). `epoch` is a random
    number per start of an agent, and `epoch_history` its newest epochs, newest first. `sent_at` is its wall clock, for
    the exchange of timestamps. `kept` are acknowledged batches of which the agent still has a copy.
    """

    vantage: Vantage
    epoch: int
    seq: int
    samples: tuple[Sample, ...] = ()
    heartbeat: Heartbeat = Heartbeat()
    sent_at: int = 0
    epoch_history: tuple[int, ...] = ()
    kept: tuple[BatchRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A sample that the collector rejected: its index in the batch, from 0, and the reason."""

    index: int
    reason: str
