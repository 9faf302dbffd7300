"""Plan documents in YAML: parses one into a `Plan`, or reports all of its problems at once, each with its line.

The text becomes plain data with lines; each part is validated by its shape (`schema`); valid parts are combined into
targets, whose names must exist and be unique. Aliases and deep nesting are refused before any data is built, so that a
small text cannot use much memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from isochrone_wire import durations
from isochrone_wire.answers import Metric
from isochrone_wire.model import Budget, MarginRule, Plan, Price, Route, Target, TlsFiles, Workload, target_id
from isochrone_wire.plan_document import schema
from isochrone_wire.plan_document.schema import Path, Shape
from isochrone_wire.text import did_you_mean, nearest, shortened, unknown
from isochrone_wire.workloads import COMMON_EFFORTS, MAX_PROMPTS_BYTES, omit_problem, supported_efforts

_MAX_DEPTH = 12
MAX_BYTES = 4_000_000
# A plan of 1 000 targets with every field has about 60 000.
_MAX_PARTS = 200_000
# libyaml compares each directive with all others.
_MAX_DIRECTIVES = 1_000
# libyaml is twenty times as fast; the wheels of PyYAML have it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR_TAG = "tag:yaml.org,2002:str"
# Long numbers are read as text: PyYAML takes quadratic time for `1:2:3:…` in base 60.
_NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_MAX_NUMBER_CHARS = 40
_MAX_KEY_CHARS = 100
MAX_PROBLEMS = 100
"""How many problems of a text are listed."""
# The similarity from which on a word counts as misspelt: `hgih` does, `highest` does not.
_MISSPELT = 0.74

AnyShape = TypeVar("AnyShape", bound=Shape)
Value = TypeVar("Value", int, bool, list[str])

_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One problem of a text, and its line, counted from 1."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlText:
    """The contents of a text. `data` is `None` if it cannot be parsed at all; `problems` then contain the reason."""

    data: Any = None
    lines: Mapping[Path, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def line_of(self, path: Path) -> int:
        """Return the line of the part at `path`, or of the nearest part around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(text: str) -> YamlText:
    """Parse one YAML document. Never raises: every error becomes a problem."""
    try:
        refused = _refusal(text)
        if refused:
            return YamlText(problems=(refused,))
        loader = _LOADER(text)
        root = loader.get_single_node()
        if root is None:
            return YamlText(problems=(Problem(line=1, message="the document is empty"),))
        lines: dict[Path, int] = {}
        problems: list[Problem] = []
        for problem in _walk(root, (), lines):
            if len(problems) < MAX_PROBLEMS:
                problems.append(problem)
        return YamlText(data=loader.construct_document(root), lines=lines, problems=tuple(problems))
    except yaml.MarkedYAMLError as error:
        # The mark of a text that ends too early is behind its last line.
        line = min(error.problem_mark.line, text.count("\n")) + 1 if error.problem_mark else 1
        return _not_yaml(error.problem or error.context or "", line)
    except (yaml.YAMLError, ValueError) as error:
        # A character that YAML does not allow, or a date such as 2026-02-30.
        return _not_yaml(str(error).splitlines()[0])
    except Exception as error:  # noqa: BLE001  # PyYAML fails in many ways on a value that does not fit its tag, as !!int ""
        return _not_yaml(f"a value does not fit its tag ({error!r})")


def _not_yaml(reason: str, line: int = 1) -> YamlText:
    # The reason may quote a tag or an anchor of any length.
    return YamlText(problems=(Problem(line=line, message=f"not YAML: {shortened(reason)}"),))


def _refusal(text: str) -> Problem | None:
    if len(text.encode(errors="replace")) > MAX_BYTES:
        return Problem(line=1, message=f"the document is larger than {MAX_BYTES} bytes")
    if sum(line.startswith("%") for line in text.splitlines()) > _MAX_DIRECTIVES:
        return Problem(line=1, message=f"more than {_MAX_DIRECTIVES} lines begin with %, as directives do")
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        depth += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            return Problem(line=line, message="aliases (*name) are not supported: use a named workload")
        if depth > _MAX_DEPTH:
            return Problem(line=line, message=f"nested more than {_MAX_DEPTH} levels deep")
        if count > _MAX_PARTS:
            return Problem(line=line, message=f"the document has more than {_MAX_PARTS} keys and values")
    return None


def _walk(node: yaml.Node, path: Path, lines: dict[Path, int]) -> Iterator[Problem]:
    lines.setdefault(path, node.start_mark.line + 1)
    _read_long_number_as_text(node)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(item, (*path, index), lines)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            # A list or a mapping as a key is refused when the data is built.
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            line, shown = key.start_mark.line + 1, shortened(name, _MAX_KEY_CHARS)
            if key.tag != _STR_TAG:
                yield Problem(line=line, message=f"a key must be text: write {shown!r} in quotes")
            if (first_line := lines.get((*path, name))) is not None:
                yield Problem(line=line, message=f"key {shown!r} is already in line {first_line}")
            _read_long_number_as_text(key)
            lines[*path, name] = line
            yield from _walk(value, (*path, name), lines)


def _read_long_number_as_text(node: yaml.Node) -> None:
    if node.tag in _NUMBER_TAGS and len(node.value) > _MAX_NUMBER_CHARS:
        node.tag = _STR_TAG


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of parsing a document: a plan, or its problems."""

    plan: Plan | None
    problems: tuple[str, ...] = ()


def load(text: str, *, version: int, stored: bool = False) -> Reading:
    """Parse a plan document; never raises. For a `stored` document, checks that are newer than it are skipped."""
    source = read_yaml(text)
    reader = _Reader(source=source, problems=list(source.problems), stored=stored)
    try:
        plan = reader.plan(version) if source.data is not None or not source.problems else None
    except _TooManyProblemsError:
        plan = None
    problems = [str(problem) for problem in sorted(set(reader.problems))]
    if len(reader.problems) >= MAX_PROBLEMS:
        problems.append(f"at most {MAX_PROBLEMS} problems are listed")
    return Reading(plan=None if problems else plan, problems=tuple(problems))


class _TooManyProblemsError(Exception):
    """As many problems are found as are listed. To find similar names for thousands of unknown ones takes minutes."""


@dataclass(slots=True, kw_only=True)
class _Reader:
    source: YamlText
    problems: list[Problem]
    stored: bool
    workloads: dict[str, Workload] = field(default_factory=dict)
    providers: dict[str, schema.ProviderShape] = field(default_factory=dict)

    def plan(self, version: int) -> Plan | None:
        document = self.document()
        if document is None:
            return None
        self.read_defaults(document)
        targets = [self.target(item, ("targets", i), document) for i, item in enumerate(document.targets)]
        complete = {i: target for i, target in enumerate(targets) if target is not None}
        self.report_targets(complete)
        budgets = self.budgets(document.budgets)
        if len(complete) == len(targets):
            self.report_idle_budgets(budgets, targets=tuple(complete.values()))
            names = {target.name for target in complete.values()}
            if document.control is not None and document.control not in names:
                self.report(("control",), f"control: {unknown('target', document.control, names)}")
        margins = self.margins(document.margins)
        routes = self.routes(document.routes, tuple(complete.values()) if len(complete) == len(targets) else None)
        return Plan(
            version=version,
            baseline=document.baseline,
            targets=tuple(complete.values()),
            budgets=tuple(budgets.values()),
            control=document.control or "",
            routes=routes,
            margins=margins,
        )

    def document(self) -> schema.DocumentShape | None:
        """Return the document; invalid top-level keys are reported and left out, so that the rest is checked too."""
        data = self.source.data
        document = self.shaped(schema.DocumentShape, data, ())
        if document is None and isinstance(data, dict):
            good = {key: item for key, item in data.items() if _is_valid_key(key, item)}
            return schema.DocumentShape.model_validate({"baseline": "unknown", "targets": [], **good})
        return document

    def read_defaults(self, document: schema.DocumentShape) -> None:
        for name, item in document.workloads.items():
            shape = self.shaped(schema.WorkloadShape, item, ("workloads", name))
            # An invalid workload still exists: a reference to it is not a second problem.
            self.workloads[name] = shape.value() if shape else Workload()
        for name, item in document.providers.items():
            provider = self.shaped(schema.ProviderShape, item, ("providers", name))
            self.providers[name] = provider or schema.ProviderShape(base_url="http://unknown")

    def target(self, item: object, path: Path, document: schema.DocumentShape) -> Target | None:
        shape = self.shaped(schema.TargetShape, item, path)
        workload = self.workload(item.get("workload") if isinstance(item, dict) else None, (*path, "workload"))
        if shape is None:
            return None
        common = self.providers.get(shape.provider, schema.ProviderShape())
        base_url = shape.base_url or common.base_url
        if base_url is None:
            missing = f"no base_url: set one here, or for provider {shape.provider!r} under `providers`"
            self.report(path, missing + did_you_mean(shape.provider, self.providers))
        if base_url is None or workload is None:
            return None
        target = _target(shape, common, document, base_url=base_url, workload=workload)
        self.report_unknown_effort(target, (*path, "workload"))
        if not self.stored and (problem := omit_problem(target.dialect, target.omit)):
            self.report((*path, "omit"), f"omit: {problem}")
        return target

    def workload(self, item: object, path: Path) -> Workload | None:
        if item is None:
            return Workload()
        if isinstance(item, str):
            if item not in self.workloads:
                self.report(path, unknown("workload", item, self.workloads))
            return self.workloads.get(item)
        shape = self.shaped(schema.WorkloadShape, item, path)
        return shape.value() if shape else None

    def report_unknown_effort(self, target: Target, path: Path) -> None:
        """Report an unsupported effort, or one like a misspelt common one, because every round would fail."""
        effort = target.workload.reasoning_effort
        known = supported_efforts(target.dialect, target.model)
        if self.stored or effort is None or effort in (known or COMMON_EFFORTS):
            return
        if known is not None:
            self.report(path, unknown(f"effort of {target.model} in dialect {target.dialect}", effort, known))
        elif slip := nearest(effort, COMMON_EFFORTS, cutoff=_MISSPELT):
            self.report(path, f"unknown reasoning_effort {effort!r}; did you mean {slip!r}?")

    def report_targets(self, targets: Mapping[int, Target]) -> None:
        """Report targets with the same name, or that measure the same; spreads that are not shorter than the interval,
        as a round must begin before the next one is due; and prompts that are too long together, as the plan is one
        message with the prompt of each target.
        """
        lines: dict[str | int, int] = {}
        for index, target in targets.items():
            path, name = ("targets", index), target.name
            if name in lines:
                self.report(path, f"name {name!r} is already used by the target in line {lines[name]}")
            elif target.id in lines:
                self.report(path, f"measures the same as the target in line {lines[target.id]}")
            lines.setdefault(name, self.source.line_of(path))
            lines.setdefault(target.id, self.source.line_of(path))
            if target.spread_us >= target.every_us:
                spread, every = durations.write(target.spread_us), durations.write(target.every_us)
                self.report((*path, "spread"), f"spread: {spread} is not shorter than the interval, {every}")
        size = sum(len(target.workload.prompt.encode()) for target in targets.values())
        if size > MAX_PROMPTS_BYTES:
            message = f"the prompts of all targets have {size} bytes together; the maximum is {MAX_PROMPTS_BYTES}"
            self.report(("targets",), message)

    def budgets(self, items: list[object] | dict[str, object]) -> dict[Path, Budget]:
        """Return the budgets by their paths; each provider and vantage may have one."""
        found: dict[Path, Budget] = {}
        held: dict[tuple[str, str | None], int] = {}
        for key, item in items.items() if isinstance(items, dict) else enumerate(items):
            path: Path = ("budgets", key)
            shape = self.shaped(schema.LimitsShape if isinstance(items, dict) else schema.BudgetShape, item, path)
            if shape is None:
                continue
            budget = shape.value(provider=key) if isinstance(items, dict) else shape.value()
            found[path] = budget
            line, whose = self.source.line_of(path), (budget.provider, budget.vantage)
            if whose in held:
                self.report(path, f"the budget of {budget.provider!r} is already in line {held[whose]}")
            held.setdefault(whose, line)
        return found

    def report_idle_budgets(self, budgets: Mapping[Path, Budget], *, targets: Sequence[Target]) -> None:
        """Report budgets without effect: without targets, without limits, or in US dollars without prices."""
        providers = {target.provider for target in targets}
        for path, budget in budgets.items():
            unpriced = [t.name for t in targets if t.provider == budget.provider and t.price is None]
            if budget.provider not in providers:
                self.report(path, unknown("provider of any target", budget.provider, providers))
            elif (budget.usd_per_day, budget.tokens_per_day, budget.requests_per_day) == (None, None, None):
                self.report(path, "a budget needs usd_per_day, tokens_per_day or requests_per_day")
            elif budget.usd_per_day is not None and unpriced:
                self.report(path, f"usd_per_day cannot be enforced: {unpriced[0]} has no price")

    def margins(self, items: Mapping[str, object]) -> tuple[MarginRule, ...]:
        """Return the margins in the order of the metrics."""
        found: dict[Metric, MarginRule] = {}
        for name, item in items.items():
            path = ("margins", name)
            if name not in list(Metric):
                self.report(path, unknown("metric", name, [metric.value for metric in Metric]))
                continue
            metric = Metric(name)
            if shape := self.shaped(
                schema.RateMarginShape if metric.more_is_better else schema.MarginShape, item, path
            ):
                found[metric] = shape.value(metric)
        return tuple(found[metric] for metric in Metric if metric in found)

    def routes(self, items: list[object], targets: Sequence[Target] | None) -> tuple[Route, ...]:
        """Return the routes; they are checked against the targets if all of these are valid."""
        paths: list[Path] = [("routes", place) for place in range(len(items))]
        shapes = {path: self.shaped(schema.RouteShape, item, path) for path, item in zip(paths, items, strict=True)}
        found = {path: shape for path, shape in shapes.items() if shape}
        findings = schema.contradictions(found, self.source.line_of), schema.misfits(found, targets) if targets else ()
        for path, message in chain(*findings):
            self.report(path, message)
        return tuple(shape.value() for shape in found.values())

    def shaped(self, shape: type[AnyShape], item: object, path: Path) -> AnyShape | None:
        try:
            return shape.model_validate(item)
        except ValidationError as error:
            for detail in error.errors(include_url=False, include_input=False):
                self.report((*path, *detail["loc"]), _sentence(shape, detail))
            return None

    def report(self, path: Path, message: str) -> None:
        if len(self.problems) >= MAX_PROBLEMS:
            raise _TooManyProblemsError
        self.problems.append(Problem(line=self.source.line_of(path), message=shortened(message)))


def _target(
    shape: schema.TargetShape,
    common: schema.ProviderShape,
    document: schema.DocumentShape,
    *,
    base_url: str,
    workload: Workload,
) -> Target:
    dialect = shape.dialect or common.dialect or schema.DEFAULT_DIALECT
    tls = shape.tls or common.tls
    omit = tuple(_first(shape.omit, common.omit, []))
    own: Any = {"provider": shape.provider, "model": shape.model, "base_url": base_url, "dialect": dialect}
    return Target(
        **own,
        id=target_id(**own, workload=workload, omit=omit),
        name=shape.name or f"{shape.provider}/{shape.model}",
        workload=workload,
        every_us=shape.every or document.every,
        overlap=shape.overlap or document.overlap,
        credential=shape.credential or common.credential,
        price=Price(**dict(shape.price)) if shape.price else None,
        region=shape.region,
        spread_us=_first(shape.spread, common.spread, document.spread),
        paused=_first(shape.paused, common.paused, document.paused),
        happy_eyeballs=_first(shape.happy_eyeballs, common.happy_eyeballs, False),
        tls=TlsFiles(**dict(tls)) if tls else None,
        omit=omit,
    )


def _first(*settings: Value | None) -> Value:
    """Return the most specific setting; the document always has one."""
    return next(value for value in settings if value is not None)


def _is_valid_key(key: object, item: object) -> bool:
    try:
        schema.DocumentShape.model_validate({"baseline": "unknown", "targets": [], key: item})
    except ValidationError:
        return False
    return True


def _sentence(shape: type[Shape], detail: ErrorDetails) -> str:
    key = str(detail["loc"][-1]) if detail["loc"] else "the document"
    if detail["type"] == "extra_forbidden":
        return unknown("key", key, _keys(_shape_at(shape, detail["loc"][:-1])))
    if detail["type"] == "missing":
        return f"{key!r} is missing"
    if detail["type"] == "model_type":
        return f"expected a mapping with {', '.join(_keys(_shape_at(shape, detail['loc'])))}"
    context: dict[str, Any] = detail.get("ctx", {})
    return f"{key}: {context.get('error') or detail['msg'].removeprefix('Input ').lower()}"


def _keys(shape: type[Shape]) -> list[str]:
    return [field.alias or name for name, field in shape.model_fields.items()]


def _shape_at(shape: type[Shape], path: Path) -> type[Shape]:
    for part in path:
        shape = schema.NESTED.get(part, shape)
    return shape
