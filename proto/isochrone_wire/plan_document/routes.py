"""Routes of a plan: their shapes, and the checks that need the other routes or the targets."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import fsum
from typing import Annotated

from pydantic import AfterValidator, Field

from isochrone_wire.model import DEFAULT_GOODPUT, Objective, Route, Slo, Target
from isochrone_wire.plan_document.schema import Name, Shape
from isochrone_wire.plan_document.yaml_source import Path
from isochrone_wire.routes import is_in_residency
from isochrone_wire.text import unknown

MAX_MEMBERS = 50

_MAX_LIMIT_MS = 600_000
_MAX_WEIGHT = 1e6
_MAX_TOKENS = 1_000_000
_ROUNDING = 1e-9
_MAX_SPEED = 1e6
_US_PER_MS = 1_000

CLASSES: Mapping[str, int | None] = {
    "voice": 300,
    "code": 500,
    "chat": 1_000,
    "agent": 2_500,
    "web": 3_000,
    "batch": None,
    "custom": None,
}
"""Class → its limit on the 95th percentile of TTFT in milliseconds, the strictest first; `None` is no limit."""

LineOf = Callable[[Path], int]
Finding = tuple[Path, str]


def _class(name: str) -> str:
    if name not in CLASSES:
        raise ValueError(unknown("class", name, CLASSES))
    return name


def _success(share: float) -> float:
    if not 0 <= share < 1:
        raise ValueError(f"{share:g} is not a share of at least 0 and below 1; 0.99 means 99 %")
    return share


def _share(share: float) -> float:
    if not 0 < share <= 1:
        raise ValueError(f"{share:g} is not a share above 0 and at most 1; 0.5 means half of the traffic")
    return share


def _goodput(share: float) -> float:
    if not 0 < share < 1:
        raise ValueError(f"{share:g} is not a share above 0 and below 1; 0.95 means 95 %")
    return share


def _limit(limit_ms: float) -> float:
    if not 0 < limit_ms <= _MAX_LIMIT_MS:
        raise ValueError(f"{limit_ms:g} is not above 0 and at most {_MAX_LIMIT_MS}")
    return limit_ms


def _names(names: list[str]) -> list[str]:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is listed twice")
    if len(names) > MAX_MEMBERS:
        raise ValueError(f"{len(names)} are too many: the maximum is {MAX_MEMBERS}")
    return names


def _some(names: list[str]) -> list[str]:
    if not names:
        raise ValueError("a route needs at least one member")
    return names


Names = Annotated[list[Name], AfterValidator(_names)]
Weight = Annotated[float, Field(ge=0, le=_MAX_WEIGHT, allow_inf_nan=False)]


class SloShape(Shape):
    """The SLO of a route; its class sets the limit if `ttft_p95_ms` is missing."""

    class_: Annotated[str, AfterValidator(_class), Field(alias="class")] = "custom"
    """Limit on the p95 of TTFT: `voice` 300 ms, `code` 500 ms, `chat` 1 s, `agent` 2.5 s, `web` 3 s; `batch` and
    `custom` have none.
    """
    ttft_p95_ms: Annotated[float, AfterValidator(_limit)] | None = None
    """This limit in place of that of the class, up to 600 000; at most that of the next looser class."""
    min_success: Annotated[float, AfterValidator(_success)] = 0.0
    """Smallest share of successful requests, below 1; 0 for no limit."""
    min_goodput: Annotated[float, AfterValidator(_goodput)] = DEFAULT_GOODPUT
    """Share of all planned requests that must keep these limits. To be certain of 0.99 takes 299 requests."""
    answer_tokens: Annotated[int, Field(ge=1, le=_MAX_TOKENS)] | None = None
    """Length of the answer that `answer_p95_ms` limits."""
    answer_p95_ms: Annotated[float, AfterValidator(_limit)] | None = None
    """Limit on the time to the last token of an answer of `answer_tokens`, up to 600 000."""
    min_tokens_per_second: Annotated[float, Field(gt=0, le=_MAX_SPEED)] | None = None
    """Speed that each request must reach."""

    @property
    def limit_ms(self) -> float | None:
        """Return the limit on the 95th percentile of TTFT in milliseconds; `None` is no limit."""
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
        return Objective(ttft=self.ttft, tail=self.tail, usd=self.usd, failure=self.failure, answer=self.answer)


class RouteShape(Shape):
    """A logical model that services request, with its members."""

    name: Name
    """Unique name that services request."""
    members: Annotated[Names, AfterValidator(_some)]
    """Names of interchangeable targets of one dialect, at most 50."""
    slo: SloShape = SloShape()
    """Limits that members must keep."""
    objective: ObjectiveShape = ObjectiveShape()
    """Weights by which members are ranked."""
    static_order: Names = Field(default=[])
    """Order of the members while there are no measurements; by default that of `members`."""
    residency: Names = Field(default=[])
    """Prefixes of allowed regions of endpoints, of which one must match a member; by default all are allowed."""
    max_share: dict[Name, Annotated[float, AfterValidator(_share)]] = Field(default={})
    """Largest share of the traffic by member, for example for the rate limit of its account; by default 1. Together at
    least 1.
    """

    def value(self) -> Route:
        """Return the wire's value."""
        return Route(
            name=self.name,
            members=tuple(self.members),
            slo=self.slo.value(),
            objective=self.objective.value(),
            static_order=tuple(self.static_order),
            residency=tuple(self.residency),
            max_share=self.max_share,
        )


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
