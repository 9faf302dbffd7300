"""The reference pages of the documentation, made from the code: every command, setting, key of a plan and metric.

usage: PYTHONPATH=tests docs_reference.py FOLDER
"""

import ast
import inspect
import itertools
import os
import re
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any

import click
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from isochrone_agent.cli.main import cli as agent
from isochrone_client.cli import cli as client
from isochrone_collector.cli.main import cli as collector
from isochrone_sim.cli import cli as simulator
from isochrone_wire import durations
from isochrone_wire.plan_document import schema

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS: Mapping[str, click.Group] = {
    "isochrone": client,
    "isochrone-agent": agent,
    "isochrone-collector": collector,
    "isochrone-sim": simulator,
}
PARTS: Mapping[str, type[schema.Shape]] = {
    "document": schema.DocumentShape,
    "provider": schema.ProviderShape,
    "target": schema.TargetShape,
    "price": schema.PriceShape,
    "workload": schema.WorkloadShape,
    "timeouts": schema.TimeoutsShape,
    "budget": schema.BudgetShape,
    "margin": schema.MarginShape,
    "route": schema.RouteShape,
    "slo": schema.SloShape,
    "objective": schema.ObjectiveShape,
}
"""The parts of a plan document."""

_WIDTH = 100
# Endings that Prometheus adds to the names, by the class or helper that makes them.
_SUFFIXES = {"Counter": "_total", "_counter": "_total", "Info": "_info"}
METRIC_ROOMS = {"common": "Probes", "collector": "The collector", "agent": "The agent", "clients/python": "Gateways"}
_ABOUT_METRICS = (
    "Counters end in `_total` and start at 0 with the process; durations are in seconds. Metrics of probes have the "
    "labels `region` (of the vantage), `target`, `provider` and `model`; those of route tables have `client_region` "
    "and `route`, and of their members `target`, `provider` and `model` too. [prometheus.md](../prometheus.md) "
    "describes how to scrape them. `process_*` are the program's memory, CPU and files."
)
_INTRODUCTION = (
    "A plan document has what agents measure; options and environment variables have everything else. The files of an "
    "agent, for its settings, keys and policy, are described in [agent.md](../agent.md), the contexts of `isochrone` "
    "in [asking.md](../asking.md#collectors-and-contexts)."
)


def pages() -> dict[str, str]:
    commands = {f"reference/{program}.md": cli_page(program) for program in PROGRAMS}
    return commands | {"reference/configuration.md": configuration_page(), "reference/metrics.md": metrics_page()}


def cli_page(program: str) -> str:
    sections = [f"# The command `{program}`\n\nThe text of `--help` of {program} and of each of its commands."]
    for context in commands(program):
        text = context.command.get_help(context).rstrip()
        sections.append(f"## {context.command_path}\n\n```text\n{text}\n```")
    return "\n\n".join(sections) + "\n"


def commands(program: str) -> Iterator[click.Context]:
    """Yield the context of the program and of every command that it lists, 100 columns wide."""
    group = PROGRAMS[program]
    waiting = [click.Context(group, info_name=program, terminal_width=_WIDTH, **group.context_settings)]
    while waiting:
        context = waiting.pop(0)
        yield context
        if isinstance(context.command, click.Group):
            found = {
                name: context.command.get_command(context, name) for name in context.command.list_commands(context)
            }
            waiting[:0] = [
                click.Context(command, parent=context, info_name=name, **command.context_settings)
                for name, command in found.items()
                if command is not None
            ]


def configuration_page() -> str:
    """The page of the settings: the keys of a plan document, and the environment variables."""
    parts = "\n\n".join(_part(name, shape) for name, shape in PARTS.items())
    variables = _table(("Variable", "Option", "Commands", "Default"), environment())
    return (
        f"# Configuration\n\n{_INTRODUCTION}\n\n## Plan document\n\n[collector.md](../collector.md#plans) has an "
        f"annotated example, and how to apply a plan.\n\n{parts}\n\n## Environment variables\n\nAn option of the "
        f"command line precedes its variable.\n\n{variables}\n"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric as the code creates it. `labels` are those that its creation names."""

    name: str
    labels: tuple[str, ...]
    meaning: str


def metrics_page() -> str:
    """The page of the metrics for Prometheus, by the package that creates them."""
    sections = ["# Metrics", _ABOUT_METRICS]
    for room, title in METRIC_ROOMS.items():
        rows = [(f"`{m.name}`", ", ".join(f"`{label}`" for label in m.labels), m.meaning) for m in metrics(room)]
        sections.append(f"## {title}\n\n{_table(('Name', 'Labels', 'Meaning'), rows)}")
    return "\n\n".join(sections) + "\n"


def metrics(room: str) -> list[Metric]:
    """The metrics that the code in a folder creates, by name."""
    found: dict[str, Metric] = {}
    for path in sorted((ROOT / room).rglob("*.py")):
        texts: dict[str, str] = {}
        # Nodes are in the order of the file, because a description is often assigned just before its use.
        for node in sorted(ast.walk(ast.parse(path.read_text())), key=lambda one: getattr(one, "lineno", 0)):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                    texts[name] = text
                case ast.Call() | ast.Tuple():
                    for one in _metrics_of(node, texts):
                        found.setdefault(one.name, one)
    return [found[name] for name in sorted(found)]


def _metrics_of(node: ast.Call | ast.Tuple, texts: Mapping[str, str]) -> Iterator[Metric]:
    """Yield the metric of a call or tuple that begins with a name and a sentence, or has them as keywords."""
    places = node.args if isinstance(node, ast.Call) else node.elts
    keywords = node.keywords if isinstance(node, ast.Call) else []
    named = {keyword.arg: keyword.value for keyword in keywords}
    first: list[ast.expr | None] = [*places] or [named.get("name"), named.get("documentation")]
    name, meaning = (_text(one, texts) for one in (*first, None, None)[:2])
    if not re.fullmatch(r"isochrone_\w+", name) or " " not in meaning:
        return
    maker = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    suffix = next((end for start, end in _SUFFIXES.items() if maker.startswith(start)), "")
    labels = named.get("labels", named.get("labelnames", places[2] if len(places) > 2 else None))
    yield Metric(name=name + suffix, labels=tuple(_labels(labels)), meaning=meaning.rstrip("."))


def _labels(node: ast.expr | None) -> Iterator[str]:
    """Yield the labels of a list or of one text, but not the common ones, which a name stands for."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            for part in parts:
                yield from _labels(part)
        case ast.Constant(value=str(text)):
            yield text


def _text(node: ast.expr | None, texts: Mapping[str, str]) -> str:
    if isinstance(node, ast.Name):
        return texts.get(node.id, "")
    return str(node.value) if isinstance(node, ast.Constant) else ""


def environment() -> list[tuple[str, ...]]:
    """The variables that options read: name, option, commands, default."""
    users: dict[tuple[str, str, str], list[str]] = {}
    for program in PROGRAMS:
        for context in commands(program):
            for option in context.command.params:
                written = getattr(option, "envvar", None) or ()
                for variable in (written,) if isinstance(written, str) else written:
                    users.setdefault((variable, option.opts[0], _default(option)), []).append(context.command_path)
    return [
        (f"`{variable}`", f"`{option}`", _shortened(paths), default)
        for (variable, option, default), paths in sorted(users.items())
    ]


def _default(option: click.Parameter) -> str:
    described = re.search(r"\[default: ([^\]]+)\]", getattr(option, "help", "") or "")
    if described:
        return described[1]
    is_shown = getattr(option, "show_default", False)
    return f"`{option.default}`" if is_shown and option.default not in (None, ()) else ""


def _shortened(paths: list[str]) -> str:
    """The commands, or their program and number if they are many."""
    if len(paths) <= 4:  # as many as fit on a line
        return ", ".join(f"`{path}`" for path in paths)
    programs = dict.fromkeys(path.split()[0] for path in paths)
    return ", ".join(f"{sum(path.split()[0] == one for path in paths)} of `{one}`" for one in programs)


@cache
def meanings(shape: type[schema.Shape]) -> Mapping[str, str]:
    """The docstrings below the fields of a part and of the parts that it extends, by attribute."""
    found: dict[str, str] = {}
    for one in reversed(shape.__mro__):
        if one.__module__.startswith("isochrone_wire."):
            body = ast.parse(inspect.getsource(one)).body[0]
            assert isinstance(body, ast.ClassDef)
            for field, below in itertools.pairwise(body.body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        found[name] = " ".join(text.split())
    return found


def keys_of(shape: type[schema.Shape]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in shape.model_fields.items()}


def _part(name: str, shape: type[schema.Shape]) -> str:
    hints = typing.get_type_hints(shape, include_extras=True)
    rows = [
        (f"`{key}`", meanings(shape)[attribute], values_of(hints[attribute]), default_of(field))
        for (key, field), attribute in zip(keys_of(shape).items(), shape.model_fields, strict=True)
    ]
    intro = inspect.cleandoc(shape.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return f"### {name}\n\n{intro}\n\n{_table(('Key', 'Meaning', 'Values', 'Default'), rows)}"


def default_of(field: FieldInfo) -> str:
    """The default as one writes it, `required`, or empty if there is none or it is a mapping."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined or isinstance(value, schema.Shape | list | dict):
        return ""
    if any(isinstance(getattr(mark, "func", None), schema.Bounds) for mark in field.metadata):
        return f"`{durations.write(value)}`"
    written = value.value if isinstance(value, Enum) else str(value).lower() if isinstance(value, bool) else value
    return f"`{written:g}`" if isinstance(written, float) else f"`{written}`"


def values_of(hint: Any) -> str:  # any annotation
    kind, marks = _flat(hint)
    bounds = next((mark.func for mark in marks if isinstance(getattr(mark, "func", None), schema.Bounds)), None)
    if bounds is not None:
        return f"a duration, {bounds}"
    if inspect.isclass(kind) and issubclass(kind, Enum):
        return " or ".join(f"`{one.value}`" for one in kind)
    if inspect.isclass(kind) and issubclass(kind, schema.Shape):
        return "a mapping, below"
    choices = [mark.func for mark in marks if isinstance(getattr(mark, "func", None), schema.Choices)]
    chosen = [name for one in choices for name in one.known]
    if chosen:
        return " or ".join(f"`{name}`" for name in chosen)
    of = _UNITS.get(kind, "") if any(hasattr(mark, "max_length") for mark in marks) else ""
    return ", ".join(filter(None, (_KINDS.get(typing.get_origin(kind) or kind, ""), f"{_limits(marks)}{of}")))


_WORDS = (("gt", "above"), ("ge", "from"), ("lt", "below"), ("le", "to"), ("max_length", "at most"))
_UNITS = {str: " characters"}
_KINDS: Mapping[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "`true` or `false`",
    list: "a list",
    dict: "a mapping",
}


def _flat(hint: Any) -> tuple[Any, list[Any]]:  # any annotation
    """The type without `None` and its marks, those of nested annotations included."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        kind, *marks = typing.get_args(hint)
        inner, more = _flat(kind)
        return inner, [*more, *(part for mark in marks for part in (getattr(mark, "metadata", None) or [mark]))]
    if origin in (UnionType, typing.Union):
        return _flat(next(one for one in typing.get_args(hint) if one is not NoneType))
    return hint, []


def _limits(marks: list[Any]) -> str:
    """The bounds of a number, or the maximum length of a text or list."""
    found = {name: getattr(mark, name) for mark in marks for name, _ in _WORDS if hasattr(mark, name)}
    written = {name: f"{value:,.0f}" if value == int(value) else f"{value:g}" for name, value in found.items()}
    return " ".join(f"{word} {written[name]}" for name, word in _WORDS if name in found).replace(",", "\u202f")


def _table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    for name, text in pages().items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
