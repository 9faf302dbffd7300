"""Schema of a plan document: the keys of each part, and their types and bounds.

Each part is validated separately, so that one invalid key does not hide other problems. `document` checks what spans
several parts, such as references and duplicate names.
"""

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from isochrone_wire import durations
from isochrone_wire.answers import Metric
from isochrone_wire.model import (
    DEFAULT_PROMPT,
    SECOND_US,
    Budget,
    ConnectionUse,
    MarginRule,
    Overlap,
    Timeouts,
    Workload,
)
from isochrone_wire.plan_limits import (
    DIALECTS,
    MAX_AMOUNT,
    MAX_BUDGETS,
    MAX_CONCURRENCY,
    MAX_EFFORT_CHARS,
    MAX_EVERY_US,
    MAX_NAME_CHARS,
    MAX_OUTPUT_TOKENS,
    MAX_PROMPT_BYTES,
    MAX_SPREAD_US,
    MAX_TARGETS,
    MAX_TEMPERATURE,
    MAX_TIMEOUT_US,
    MAX_URL_CHARS,
    MAX_USD,
    MIN_EVERY_US,
    MIN_TIMEOUT_US,
    POLICY_PREFIX,
)
from isochrone_wire.text import is_http_url, unknown

DEFAULT_DIALECT = "openai-chat"
MAX_ROUTES = 200
MAX_RATE = 1e6

_DEFAULTS = Timeouts()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The shortest and the longest duration that is allowed, in microseconds."""

    low_us: int
    high_us: int

    def __str__(self) -> str:
        return f"{durations.write(self.low_us)} to {durations.write(self.high_us)}"

    def __call__(self, duration_us: int) -> int:
        """Return the duration. Raises `ValueError` if it is outside the bounds."""
        if not self.low_us <= duration_us <= self.high_us:
            raise ValueError(f"{durations.write(duration_us)} is outside {self}")
        return duration_us


def _within(low_us: int, high_us: int) -> AfterValidator:
    return AfterValidator(Bounds(low_us, high_us))


def _clean(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError(f"{text!r} contains control characters, or begins or ends with a space")
    return text


def _not_reserved(provider: str) -> str:
    if provider.startswith(POLICY_PREFIX):
        raise ValueError(f"{provider!r} begins with {POLICY_PREFIX}, which is reserved for the policies of agents")
    return provider


def _short_enough(prompt: str) -> str:
    if len(prompt.encode()) > MAX_PROMPT_BYTES or "\0" in prompt:
        raise ValueError(
            f"a prompt must not contain NUL or exceed {MAX_PROMPT_BYTES} bytes; this one has {len(prompt.encode())}"
        )
    return prompt


def _url(text: str) -> str:
    if not is_http_url(text) or " " in text:
        raise ValueError(f"{text!r} is not an http or https URL")
    parts = urlsplit(text)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("a URL must not contain a user, password, query or fragment; API keys stay with the agent")
    return text.rstrip("/")


def _dialect(name: str) -> str:
    if name not in DIALECTS:
        raise ValueError(unknown("dialect", name, DIALECTS))
    return name


def _overlap(text: object) -> Overlap:
    if text not in list(Overlap):
        raise ValueError(f"{text!r} is not an overlap policy: use {' or '.join(Overlap)}")
    return Overlap(str(text))


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS), AfterValidator(_clean)]
Url = Annotated[str, Field(max_length=MAX_URL_CHARS), AfterValidator(_clean), AfterValidator(_url)]
Every = Annotated[int, BeforeValidator(durations.parse_us), _within(MIN_EVERY_US, MAX_EVERY_US)]
Spread = Annotated[int, BeforeValidator(durations.parse_us), _within(0, MAX_SPREAD_US)]
Limit = Annotated[int, BeforeValidator(durations.parse_us), _within(MIN_TIMEOUT_US, MAX_TIMEOUT_US)]
LeastDuration = Annotated[int, BeforeValidator(durations.parse_us), _within(0, MAX_TIMEOUT_US)]
Rate = Annotated[float, Field(ge=0, le=MAX_RATE, allow_inf_nan=False)]
Dollars = Annotated[float, Field(ge=0, le=MAX_USD, allow_inf_nan=False)]
Amount = Annotated[int, Field(ge=0, le=MAX_AMOUNT)]
DialectName = Annotated[str, AfterValidator(_dialect)]
OverlapName = Annotated[Overlap, BeforeValidator(_overlap)]


class Shape(BaseModel):
    """A mapping with these keys and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TimeoutsShape(Shape):
    """Limits of one probe."""

    connect: Limit = _DEFAULTS.connect_us
    """From the start of the probe to the established connection: name lookup, TCP and TLS together."""
    first_token: Limit = _DEFAULTS.first_token_us
    """From the written request to the first token."""
    gap: Limit = _DEFAULTS.gap_us
    """Between two chunks of the answer."""
    total: Limit = _DEFAULTS.total_us
    """The whole probe."""

    def value(self) -> Timeouts:
        """Return the wire's value, in microseconds."""
        return Timeouts(connect_us=self.connect, first_token_us=self.first_token, gap_us=self.gap, total_us=self.total)


def _connection(text: object) -> ConnectionUse:
    if text not in list(ConnectionUse):
        raise ValueError(f"{text!r} is not a connection mode: use {' or '.join(ConnectionUse)}")
    return ConnectionUse(str(text))


class WorkloadShape(Shape):
    """The fixed request."""

    prompt: Annotated[str, Field(min_length=1), AfterValidator(_short_enough)] = DEFAULT_PROMPT
    """The text that is sent, the same in every round."""
    max_output_tokens: Annotated[int, Field(ge=1, le=MAX_OUTPUT_TOKENS)] = 200
    """Limit on the length of the answer."""
    temperature: Annotated[float, Field(ge=0, le=MAX_TEMPERATURE)] | None = None
    """The requested temperature; not sent by default."""
    reasoning_effort: Annotated[Name, Field(max_length=MAX_EFFORT_CHARS)] | None = None
    """In the provider's terms; not sent by default. A value that the dialect cannot express is rejected."""
    timeouts: TimeoutsShape = TimeoutsShape()
    """Time limits of a probe."""
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] = 1
    """Streams at once: more than 1 is a burst."""
    connection: Annotated[ConnectionUse, BeforeValidator(_connection)] = ConnectionUse.COLD
    """A new connection for each probe, or one that stays open."""

    def value(self) -> Workload:
        """Return the wire's value."""
        return Workload(
            prompt=self.prompt,
            max_output_tokens=self.max_output_tokens,
            temperature=self.temperature,
            reasoning_effort=self.reasoning_effort,
            timeouts=self.timeouts.value(),
            concurrency=self.concurrency,
            connection=self.connection,
        )


class PriceShape(Shape):
    """List price in US dollars per million tokens."""

    usd_per_m_input: Dollars = 0.0
    """US dollars per million input tokens."""
    usd_per_m_output: Dollars = 0.0
    """US dollars per million output tokens."""


class ProviderShape(Shape):
    """Settings for all targets of a provider."""

    base_url: Url | None = None
    """Address of the API, http or https, without user, query and fragment; required here or in the target."""
    dialect: DialectName | None = None
    """Format of the API; by default `openai-chat`."""
    credential: Name | None = None
    """Name of a key in the agents' own files; never the key."""
    spread: Spread | None = None
    """Span over which the starts of the vantages are spread in each round, for keys with tight rate limits; shorter
    than `every`. The largest of a route counts for its members.
    """
    paused: bool | None = None
    """Rounds are recorded as `skipped_paused`, and nothing is sent."""


class TargetShape(ProviderShape):
    """One target; missing settings are taken from its provider, and then from the document."""

    model: Name
    """The model as the provider names it."""
    provider: Annotated[Name, AfterValidator(_not_reserved)]
    """The company or server that offers the model."""
    name: Name | None = None
    """Unique display name; by default `provider/model`."""
    workload: Any = None
    """A name of `workloads`, or the mapping itself."""
    every: Every | None = None
    """Interval of the rounds; by default that of the document."""
    overlap: OverlapName | None = None
    """By default that of the document."""
    region: Name | None = None
    """Region of the endpoint, if known."""
    price: PriceShape | None = None
    """List price, for costs and objectives."""


class LimitsShape(Shape):
    """The limits of one vantage at one provider in a day; without `vantage` they apply to each vantage."""

    vantage: Name | None = None
    """The only vantage that it applies to, in place of the budget for all vantages; by default each vantage."""
    usd_per_day: Dollars | None = None
    """Needs a price for every target of the provider."""
    tokens_per_day: Amount | None = None
    """Prompt and output tokens."""
    requests_per_day: Amount | None = None
    """Every stream of a burst is one."""

    def value(self, provider: str) -> Budget:
        """Return the wire's value."""
        return Budget(
            provider=provider,
            vantage=self.vantage,
            usd_per_day=self.usd_per_day,
            tokens_per_day=self.tokens_per_day,
            requests_per_day=self.requests_per_day,
        )


class BudgetShape(LimitsShape):
    """A budget in a list, with its provider."""

    provider: Name
    """The provider that it applies to, in a list of budgets."""


class MarginShape(Shape):
    """The smallest difference of a latency that matters: a duration, and a percentage of the smaller median."""

    least: LeastDuration | None = None
    """A smaller difference never matters: a duration, or tokens per second. By default 20 ms; `connect` 3 ms, `rtt` 1
    ms, `tokens_per_second` 0.
    """
    percent: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    """A smaller percentage of the smaller median never matters, either; by default 5."""

    def value(self, metric: Metric) -> MarginRule:
        """Return the wire's value."""
        least = None if self.least is None else float(self.least)
        return MarginRule(metric=metric.value, least=least, percent=self.percent)


class RateMarginShape(MarginShape):
    """The smallest difference of a rate that matters: in tokens per second, and a percentage of the smaller median."""

    least: Rate | None = None  # type: ignore[assignment]  # a number instead of a duration


def _list_or_mapping(item: object) -> object:
    if not isinstance(item, list | dict):
        raise ValueError("expected a list of budgets, or a mapping of providers to their limits")  # noqa: TRY004  # pydantic reports a ValueError as a problem
    if len(item) > MAX_BUDGETS:
        raise ValueError(f"{len(item)} are too many: the maximum is {MAX_BUDGETS}")
    return item


class DocumentShape(Shape):
    """The document; the items of its lists and mappings are validated one by one."""

    baseline: Name
    """Reference region of comparisons."""
    every: Every = 60 * SECOND_US
    """Interval of rounds. A probe that takes longer leaves `skipped_overlap`: 200 output tokens at 20 tokens/s take 10
    s.
    """
    overlap: OverlapName = Overlap.SKIP
    """Whether a round starts while the previous probe is in flight."""
    spread: Spread = 0
    """As in a provider."""
    paused: bool = False
    """As in a provider."""
    budgets: Annotated[Any, BeforeValidator(_list_or_mapping)] = []
    """Limits per vantage, provider and day (UTC): a mapping by provider, or a list."""
    control: Name | None = None
    """Name of the target that monitors the region itself: while less than 90 % of its probes succeed from a region,
    comparisons with that region stay `undecided`.
    """
    routes: Annotated[list[Any], Field(max_length=MAX_ROUTES)] = []
    """Logical models, and the targets that can serve them."""
    margins: dict[str, Any] = {}
    """Smallest difference that matters, by metric: `ttft`, `ttft_cold`, `ttfat`, `e2e`, `tokens_per_second`, `connect`,
    `rtt`.
    """
    workloads: dict[Name, Any] = {}
    """Requests by name."""
    providers: dict[Name, Any] = {}
    """Defaults for the targets of a provider, by its name."""
    targets: Annotated[list[Any], Field(max_length=MAX_TARGETS)]
    """What to measure; all prompts together have at most 6 MB."""


NESTED: dict[str | int, type[Shape]] = {"timeouts": TimeoutsShape, "price": PriceShape}
