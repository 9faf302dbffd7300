"""Schema of a plan document: the keys of each part, and their types and bounds.

Each part is validated separately, so that one invalid key does not hide other problems. `document` checks what spans
several parts, such as references and duplicate names.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from isochrone_wire import durations
from isochrone_wire import workloads as limits
from isochrone_wire.answers import Metric
from isochrone_wire.model import (
    DEFAULT_GOODPUT,
    DEFAULT_PROMPT,
    SECOND_US,
    Budget,
    ConnectionUse,
    MarginRule,
    Objective,
    Overlap,
    Route,
    Slo,
    Target,
    Timeouts,
    Workload,
)
from isochrone_wire.routes import is_in_residency
from isochrone_wire.text import base_url_problem, unknown
from isochrone_wire.workloads import TARGET_LIMITS

DEFAULT_DIALECT = "openai-chat"
MAX_ROUTES = 200
MAX_MEMBERS = 50
_MAX_LIMIT_MS = 600_000
_MAX_WEIGHT = 1e6
_MAX_TOKENS = 1_000_000
_ROUNDING = 1e-9
_MAX_SPEED = 1e6
_US_PER_MS = 1_000
MAX_RATE = 1e6

CLASSES: Mapping[str, int | None] = {
    "voice": 300,
    "code": 500,
    "chat": 1_000,
    "agent": 2_500,
    "web": 3_000,
    "batch": None,
    "custom": None,
}
"""Class → its limit on the 95th percentile of TTFT in milliseconds, the strictest first; `None`: unlimited."""

_DEFAULTS = Timeouts()

Path = tuple[str | int, ...]
"""The place of a part in the document: keys, and indexes of lists."""
LineOf = Callable[[Path], int]
Finding = tuple[Path, str]


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


@dataclass(frozen=True, slots=True)
class Choices:
    """The known names of a kind."""

    kind: str
    known: Collection[str]

    def __call__(self, name: str) -> str:
        """Return the name. Raises `ValueError` if it is not known."""
        if name not in self.known:
            raise ValueError(unknown(self.kind, name, self.known))
        return name


def _within(low_us: int, high_us: int) -> AfterValidator:
    return AfterValidator(Bounds(low_us, high_us))


def _limited(name: str, of: limits.Limits = TARGET_LIMITS) -> Any:  # noqa: ANN401  # as Field
    low, high = of[name]
    return Field(ge=low, le=high, allow_inf_nan=False)


def _checked(is_valid: Callable[[Any], bool], problem: str) -> AfterValidator:
    def check(value: object) -> object:
        if not is_valid(value):
            raise ValueError(f"{value:g} {problem}" if isinstance(value, float) else f"{value!r} {problem}")
        return value

    return AfterValidator(check)


def _member_of(cls: type[StrEnum], kind: str) -> BeforeValidator:
    def read(text: object) -> StrEnum:
        if text not in list(cls):
            raise ValueError(f"{text!r} is not {kind}: use {' or '.join(cls)}")
        return cls(str(text))

    return BeforeValidator(read)


def _short_enough(prompt: str) -> str:
    size, most = len(prompt.encode()), TARGET_LIMITS["workload.prompt"][1]
    if size > most or "\0" in prompt:
        raise ValueError(f"a prompt must not contain NUL or exceed {most} bytes; this one has {size}")
    return prompt


def _url(text: str) -> str:
    if problem := base_url_problem(text):
        raise ValueError(problem)
    return text.rstrip("/")


def _names(names: list[str]) -> list[str]:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is listed twice")
    if len(names) > MAX_MEMBERS:
        raise ValueError(f"{len(names)} are too many: the maximum is {MAX_MEMBERS}")
    return names


_CLEAN = _checked(
    lambda text: text.isprintable() and text == text.strip(),
    "contains control characters, or begins or ends with a space",
)
Name = Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS), _CLEAN]
Names = Annotated[list[Name], AfterValidator(_names)]
File = Annotated[str, Field(min_length=1, max_length=limits.MAX_URL_CHARS), _CLEAN]
Url = Annotated[str, Field(max_length=limits.MAX_URL_CHARS), _CLEAN, AfterValidator(_url)]
ProviderName = Annotated[
    Name,
    _checked(
        lambda name: not name.startswith(limits.POLICY_PREFIX),
        f"begins with {limits.POLICY_PREFIX}, which is reserved for the policies of agents",
    ),
]
Every = Annotated[int, BeforeValidator(durations.parse_us), _within(*TARGET_LIMITS["every_us"])]
Spread = Annotated[int, BeforeValidator(durations.parse_us), _within(*TARGET_LIMITS["spread_us"])]
_TIMEOUT = TARGET_LIMITS["workload.timeouts.total_us"]
Limit = Annotated[int, BeforeValidator(durations.parse_us), _within(*_TIMEOUT)]
LeastDuration = Annotated[int, BeforeValidator(durations.parse_us), _within(0, _TIMEOUT[1])]
Rate = Annotated[float, Field(ge=0, le=MAX_RATE, allow_inf_nan=False)]
Dollars = Annotated[float, _limited("usd_per_day", limits.BUDGET_LIMITS)]
Amount = Annotated[int, _limited("tokens_per_day", limits.BUDGET_LIMITS)]
DialectName = Annotated[str, AfterValidator(Choices("dialect", limits.DIALECTS))]
OverlapName = Annotated[Overlap, _member_of(Overlap, "an overlap policy")]


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


class WorkloadShape(Shape):
    """The fixed request."""

    prompt: Annotated[str, Field(min_length=1), AfterValidator(_short_enough)] = DEFAULT_PROMPT
    """The text that is sent, the same in every round."""
    max_output_tokens: Annotated[int, _limited("workload.max_output_tokens")] = 200
    """Limit on the length of the answer."""
    temperature: Annotated[float, _limited("workload.temperature")] | None = None
    """The requested temperature; not sent by default."""
    reasoning_effort: Annotated[Name, Field(max_length=TARGET_LIMITS["workload.reasoning_effort"][1])] | None = None
    """In the provider's terms; not sent by default. A value that the dialect cannot express is rejected."""
    timeouts: TimeoutsShape = TimeoutsShape()
    """Time limits of a probe."""
    concurrency: Annotated[int, _limited("workload.concurrency")] = 1
    """Streams at once: more than 1 is a burst."""
    connection: Annotated[ConnectionUse, _member_of(ConnectionUse, "a connection mode")] = ConnectionUse.COLD
    """A new connection for each probe, or one that stays open."""

    def value(self) -> Workload:
        """Return the wire's value."""
        return Workload(**dict(self) | {"timeouts": self.timeouts.value()})


class PriceShape(Shape):
    """List price in US dollars per million tokens."""

    usd_per_m_input: Dollars = 0.0
    """US dollars per million input tokens."""
    usd_per_m_output: Dollars = 0.0
    """US dollars per million output tokens."""


class TlsShape(Shape):
    """Files on the agents' machines (PEM), in the folder `tls_files` of the agent's policy, where paths begin."""

    certificate: File | None = None
    """The client's certificate, with its chain."""
    key: File | None = None
    """Its private key, if it is not in the file of the certificate."""
    ca: File | None = None
    """Authorities to trust besides the system's, in place of those of the agent's `--ca-file`."""

    @model_validator(mode="after")
    def _is_complete(self) -> "TlsShape":
        if self.key is not None and self.certificate is None:
            raise ValueError("a key needs a certificate")
        return self


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
    happy_eyeballs: bool | None = None
    """Connect by RFC 8305 to the first address of either family that answers, as browsers do; by default only to the
    first address of the name.
    """
    omit: Names | None = None
    """Optional fields of the request that are not sent, for servers that refuse them, by their names in the dialect,
    such as `stream_options`. In place of `max_tokens` or `max_completion_tokens` the other one is sent.
    """
    tls: TlsShape | None = None
    """Client certificate and authorities, if the system's do not suffice."""


class TargetShape(ProviderShape):
    """One target; missing settings are taken from its provider, and then from the document."""

    model: Name
    """The model as the provider names it."""
    provider: ProviderName
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

    def value(self, **more: Any) -> Budget:  # noqa: ANN401  # a key of the document
        """Return the wire's value; `more` is the provider, if it is not a field."""
        return Budget(**dict(self) | more)


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


_LimitMs = Annotated[float, _checked(lambda ms: 0 < ms <= _MAX_LIMIT_MS, f"is not above 0 and at most {_MAX_LIMIT_MS}")]
_Success = _checked(lambda share: 0 <= share < 1, "is not a share of at least 0 and below 1; 0.99 means 99 %")
_Goodput = _checked(lambda share: 0 < share < 1, "is not a share above 0 and below 1; 0.95 means 95 %")
_Share = _checked(lambda share: 0 < share <= 1, "is not a share above 0 and at most 1; 0.5 means half of the traffic")
Weight = Annotated[float, Field(ge=0, le=_MAX_WEIGHT, allow_inf_nan=False)]


class SloShape(Shape):
    """The SLO of a route; its class sets the limit if `ttft_p95_ms` is missing."""

    class_: Annotated[str, AfterValidator(Choices("class", CLASSES)), Field(alias="class")] = "custom"
    """Limit on the p95 of TTFT: `voice` 300 ms, `code` 500 ms, `chat` 1 s, `agent` 2.5 s, `web` 3 s; `batch` and
    `custom` have none.
    """
    ttft_p95_ms: _LimitMs | None = None
    """This limit in place of that of the class, up to 600 000; at most that of the next looser class."""
    min_success: Annotated[float, _Success] = 0.0
    """Smallest share of successful requests, below 1; 0 for no limit."""
    min_goodput: Annotated[float, _Goodput] = DEFAULT_GOODPUT
    """Share of all planned requests that must keep these limits. To be certain of 0.99 takes 299 requests."""
    answer_tokens: Annotated[int, Field(ge=1, le=_MAX_TOKENS)] | None = None
    """Length of the answer that `answer_p95_ms` limits."""
    answer_p95_ms: _LimitMs | None = None
    """Limit on the time to the last token of an answer of `answer_tokens`, up to 600 000."""
    min_tokens_per_second: Annotated[float, Field(gt=0, le=_MAX_SPEED)] | None = None
    """Speed that each request must reach."""

    @property
    def limit_ms(self) -> float | None:
        """Return the limit on the 95th percentile of TTFT in milliseconds; `None`: unlimited."""
        return CLASSES[self.class_] if self.ttft_p95_ms is None else self.ttft_p95_ms

    def value(self) -> Slo:
        """Return the wire's value."""
        return Slo(
            name=self.class_,
            ttft_p95_us=_microseconds(self.limit_ms),
            min_success=self.min_success,
            min_goodput=self.min_goodput,
            answer_tokens=self.answer_tokens,
            answer_p95_us=_microseconds(self.answer_p95_ms),
            min_tokens_per_second=self.min_tokens_per_second,
        )


def _microseconds(limit_ms: float | None) -> int | None:
    return None if limit_ms is None else round(limit_ms * _US_PER_MS)


class ObjectiveShape(Shape):
    """The weights by which members are ranked."""

    ttft: Weight = 1.0
    """Weight of the median TTFT."""
    tail: Weight = 0.5
    """Weight of the p95 beyond the limits; needs a limit."""
    usd: Weight = 0.0
    """Weight of the price; needs a price for every member."""
    failure: Weight = 1000.0
    """Weight of failures."""
    answer: Weight = 0.0
    """Weight of the median time of an answer of `answer_tokens`."""

    def value(self) -> Objective:
        """Return the wire's value."""
        return Objective(**dict(self))


class RouteShape(Shape):
    """A logical model that services request, with its members."""

    name: Name
    """Unique name that services request."""
    members: Annotated[Names, _checked(bool, "is empty: a route needs at least one member")]
    """Names of interchangeable targets of one dialect, at most 50."""
    slo: SloShape = SloShape()
    """Limits that members must keep."""
    objective: ObjectiveShape = ObjectiveShape()
    """Weights by which members are ranked."""
    static_order: Names = Field(default=[])
    """Order of the members while there are no measurements; by default that of `members`."""
    residency: Names = Field(default=[])
    """Prefixes of allowed regions of endpoints, of which one must match a member; by default all are allowed."""
    max_share: dict[Name, Annotated[float, _Share]] = Field(default={})
    """Largest share of the traffic by member, for example for the rate limit of its account; by default 1. Together at
    least 1.
    """

    def value(self) -> Route:
        """Return the wire's value."""
        plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in self}
        return Route(**plain | {"slo": self.slo.value(), "objective": self.objective.value()})


def _list_or_mapping(item: object) -> object:
    if not isinstance(item, list | dict):
        raise ValueError("expected a list of budgets, or a mapping of providers to their limits")  # noqa: TRY004  # pydantic reports a ValueError as a problem
    if len(item) > (most := limits.PLAN_LIMITS["budgets"][1]):
        raise ValueError(f"{len(item)} are too many: the maximum is {most}")
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
    """Whether a round starts while the previous probe is in flight. With `skip` it still does if that probe takes twice
    as long as the longest recent answer: it may hang, and only a request shows whether the target answers.
    """
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
    targets: Annotated[list[Any], Field(max_length=limits.PLAN_LIMITS["targets"][1])]
    """What to measure; all prompts together have at most 6 MB."""


NESTED: dict[str | int, type[Shape]] = {
    "timeouts": TimeoutsShape,
    "price": PriceShape,
    "tls": TlsShape,
    "slo": SloShape,
    "objective": ObjectiveShape,
}


def contradictions(routes: Mapping[Path, RouteShape], line_of: LineOf) -> Iterator[Finding]:
    """Yield the problems of routes themselves: duplicate names, unknown members, contradictory settings."""
    lines: dict[str, int] = {}
    for path, route in routes.items():
        if route.name in lines:
            yield path, f"name {route.name!r} is already used by the route in line {lines[route.name]}"
        lines.setdefault(route.name, line_of(path))
        for name in route.static_order:
            if name not in route.members:
                yield (*path, "static_order"), f"static_order: {unknown('member', name, route.members)}"
        yield from _share_contradictions(route, (*path, "max_share"))
        yield from _slo_contradictions(route.slo, (*path, "slo"))
        yield from _objective_contradictions(route, (*path, "objective"))


def _share_contradictions(route: RouteShape, path: Path) -> Iterator[Finding]:
    for name in route.max_share:
        if name not in route.members:
            yield (*path, name), f"max_share: {unknown('member', name, route.members)}"
    total = fsum(route.max_share.get(name, 1.0) for name in route.members)
    if total < 1 - _ROUNDING:
        yield path, f"the shares of all members add up to {total:.4g}: at least 1 is needed to place all traffic"


def _slo_contradictions(slo: SloShape, path: Path) -> Iterator[Finding]:
    if (slo.answer_tokens is None) != (slo.answer_p95_ms is None):
        missing = "answer_tokens" if slo.answer_tokens is None else "answer_p95_ms"
        yield path, f"a limit on the whole answer needs both answer_tokens and answer_p95_ms: {missing} is missing"
    limit_ms, own_ms = slo.ttft_p95_ms, CLASSES[slo.class_]
    if limit_ms is None or slo.class_ == "custom":
        return
    if own_ms is None:
        yield (*path, "ttft_p95_ms"), f"class {slo.class_} has no limit on first tokens: remove one of the two"
        return
    looser = next(((name, ms) for name, ms in CLASSES.items() if ms is not None and ms > own_ms), None)
    if looser and limit_ms > looser[1]:
        message = (
            f"{limit_ms:g} ms is too much for class {slo.class_}: class {looser[0]} already promises {looser[1]} ms"
        )
        yield (*path, "ttft_p95_ms"), message


def _objective_contradictions(route: RouteShape, path: Path) -> Iterator[Finding]:
    objective = route.objective
    if not any((objective.ttft, objective.tail, objective.usd, objective.failure, objective.answer)):
        yield path, "an objective needs at least one weight above 0"
    if objective.answer and route.slo.answer_tokens is None:
        yield (
            (*path, "answer"),
            "answer is the weight of an answer of answer_tokens of `slo`, and there is no such length",
        )
    limited = route.slo.limit_ms is not None or route.slo.answer_p95_ms is not None
    if "tail" in objective.model_fields_set and objective.tail and not limited:
        yield (*path, "tail"), "tail is the weight of p95 above ttft_p95_ms of `slo`, and there is no such limit"


def misfits(routes: Mapping[Path, RouteShape], targets: Sequence[Target]) -> Iterator[Finding]:
    """Yield the problems of routes with the plan's targets."""
    by_name = {target.name: target for target in targets}
    for path, route in routes.items():
        for place, name in enumerate(route.members):
            if name not in by_name:
                yield (*path, "members", place), unknown("target", name, by_name)
        members = [by_name[name] for name in route.members if name in by_name]
        if len(members) == len(route.members):
            yield from _member_misfits(route, members, path)


def _member_misfits(route: RouteShape, members: Sequence[Target], path: Path) -> Iterator[Finding]:
    first = members[0]
    for member in members:
        if member.dialect != first.dialect:
            both = f"{member.name} speaks {member.dialect} and {first.name} speaks {first.dialect}"
            yield (*path, "members"), f"{both}; members of a route need the same dialect"
        if route.objective.usd and member.price is None:
            yield (*path, "objective", "usd"), f"usd cannot be ranked: {member.name} has no price"
    if route.residency and not any(is_in_residency(member, route.residency) for member in members):
        where = ", ".join(sorted({member.region or "unknown" for member in members}))
        yield (*path, "residency"), f"no member resides in {', '.join(route.residency)}; their regions: {where}"
