"""The reference pages of the documentation, made from the code: every command, and every setting.

usage: PYTHONPATH=tests docs_reference.py FOLDER
"""

import inspect
import os
import re
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from isochrone_wire.plan_document import routes, schema
from isochrone_wire.plan_limits import DIALECTS

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
    "route": routes.RouteShape,
    "slo": routes.SloShape,
    "objective": routes.ObjectiveShape,
}
"""The parts of a plan document, as `docs/collector.md` names them."""

# These parts are explained in the row of the key that holds them.
HOLDERS = {"price": ("price", "target"), "timeouts": ("timeouts", "workload")}
_WIDTH = 100
_COLUMNS = 5
_INTRODUCTION = (
    "A plan document has what agents measure; options and environment variables have everything else. The files of an "
    "agent, for its settings, keys and policy, are described in [agent.md](../agent.md), the contexts of `isochrone` "
    "in [asking.md](../asking.md#collectors-and-contexts)."
)
_KEY = re.compile(r"`([a-z_0-9]+)`")


def pages() -> dict[str, str]:
    """The pages by their path in the site, as Markdown."""
    commands = {f"reference/{program}.md": cli_page(program) for program in PROGRAMS}
    return commands | {"reference/configuration.md": configuration_page()}


def cli_page(program: str) -> str:
    """The page of a program: the `--help` of each of its commands."""
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
            waiting[:0] = _subcommands(context, context.command)


def _subcommands(context: click.Context, group: click.Group) -> list[click.Context]:
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return [
        click.Context(command, parent=context, info_name=name, **command.context_settings)
        for name, command in found.items()
        if command is not None
    ]


def configuration_page() -> str:
    """The page of the settings: the keys of a plan document, and the environment variables."""
    return (
        "\n\n".join(
            [
                "# Configuration",
                _INTRODUCTION,
                "## Plan document",
                "[collector.md](../collector.md#plans) has an example, and how to apply a plan.",
                *(_part(name, shape) for name, shape in PARTS.items()),
                "## Environment variables",
                "An option of the command line precedes its variable.",
                _table(("Variable", "Option", "Commands", "Default"), environment()),
            ]
        )
        + "\n"
    )


def environment() -> list[tuple[str, ...]]:
    """The variables that options read: name, option, commands, default."""
    users: dict[tuple[str, str, str], list[str]] = {}
    for program in PROGRAMS:
        for context in commands(program):
            for option in context.command.params:
                for variable in _variables(option):
                    users.setdefault((variable, option.opts[0], _default(option)), []).append(context.command_path)
    return [
        (f"`{variable}`", f"`{option}`", _shortened(paths), default)
        for (variable, option, default), paths in sorted(users.items())
    ]


def _variables(option: click.Parameter) -> tuple[str, ...]:
    written = getattr(option, "envvar", None)
    return (written,) if isinstance(written, str) else tuple(written or ())


def _default(option: click.Parameter) -> str:
    """The default that the help shows: one of the option, or one that its help describes."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """A row of the table of keys in docs/collector.md."""

    keys: tuple[str, ...]
    parts: tuple[str, ...]
    sentence: str
    default: str


@cache
def meanings() -> tuple[Meaning, ...]:
    """The rows of the table of keys in docs/collector.md: keys, parts, meaning, default, bounds."""
    lines = (ROOT / "docs" / "collector.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return tuple(
        Meaning(keys=tuple(_KEY.findall(row[0])), parts=tuple(row[1].split(", ")), sentence=row[2], default=row[3])
        for row in rows
        if len(row) == _COLUMNS and row[1].partition(", ")[0] in PARTS
    )


def meaning_of(key: str, part: str) -> Meaning | None:
    """The row of a key in a part of the document."""
    key, part = HOLDERS.get(part, (key, part))
    return next((row for row in meanings() if key in row.keys and part in row.parts), None)


def keys_of(shape: type[schema.Shape]) -> dict[str, FieldInfo]:
    """The fields of a part by their keys in the document."""
    return {field.alias or name: field for name, field in shape.model_fields.items()}


def _part(name: str, shape: type[schema.Shape]) -> str:
    hints = typing.get_type_hints(shape, include_extras=True)
    rows = []
    for (key, field), attribute in zip(keys_of(shape).items(), shape.model_fields, strict=True):
        meaning = meaning_of(key, name)
        sentence = "" if meaning is None or name in HOLDERS else _linked(meaning.sentence)
        default = default_of(field) or (meaning.default if meaning and not field.is_required() else "")
        rows.append((f"`{key}`", sentence, values_of(hints[attribute]), default))
    intro = inspect.cleandoc(shape.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return f"### {name}\n\n{intro}\n\n{_table(('Key', 'Meaning', 'Values', 'Default'), rows)}"


def _linked(sentence: str) -> str:
    """A sentence of docs/collector.md for a page in another folder."""
    return re.sub(r"\]\((?!http)", "](../", sentence)


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
    """The values that a key takes, from its annotation."""
    kind, marks = _flat(hint)
    bounds = next((mark.func for mark in marks if isinstance(getattr(mark, "func", None), schema.Bounds)), None)
    if bounds is not None:
        return f"a duration, {bounds}"
    if inspect.isclass(kind) and issubclass(kind, Enum):
        return " or ".join(f"`{one.value}`" for one in kind)
    if inspect.isclass(kind) and issubclass(kind, schema.Shape):
        return "a mapping, below"
    chosen = [name for mark in marks for name in _CHOICES.get(getattr(mark, "func", None), ())]
    if chosen:
        return " or ".join(f"`{name}`" for name in chosen)
    of = _UNITS.get(kind, "") if any(hasattr(mark, "max_length") for mark in marks) else ""
    return ", ".join(filter(None, (_KINDS.get(typing.get_origin(kind) or kind, ""), f"{_limits(marks)}{of}")))


_WORDS = (("gt", "above"), ("ge", "from"), ("lt", "below"), ("le", "to"), ("max_length", "at most"))
_UNITS = {str: " characters"}
_CHOICES: Mapping[Any, Iterable[str]] = {schema._dialect: DIALECTS, routes._class: routes.CLASSES}
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
    return " ".join(f"{word} {_number(found[name])}" for name, word in _WORDS if name in found)


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f") if value == int(value) else f"{value:g}"


def _table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    for name, text in pages().items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
