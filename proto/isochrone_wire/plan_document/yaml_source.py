"""YAML as plain data, with the line of each part.

Aliases and deep nesting are rejected before any data is built, so that a small text cannot use much memory. Numbers
with many digits are read as text, because PyYAML takes quadratic time for `1:2:3:…` in base 60.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from isochrone_wire.text import shortened

Path = tuple[str | int, ...]

_MAX_DEPTH = 12
MAX_BYTES = 4_000_000
# A plan of 1 000 targets with every field has about 60 000.
_MAX_PARTS = 200_000
# libyaml compares each directive with all others.
_MAX_DIRECTIVES = 1_000
# libyaml is twenty times as fast; the wheels of PyYAML have it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR_TAG = "tag:yaml.org,2002:str"
_NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_MAX_NUMBER_CHARS = 40
_MAX_KEY_CHARS = 100
MAX_PROBLEMS = 100
"""How many problems of a text are listed."""

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


def read(text: str) -> YamlText:
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
            yield from _key_problems(key, name, lines.get((*path, name)))
            _read_long_number_as_text(key)
            lines[*path, name] = key.start_mark.line + 1
            yield from _walk(value, (*path, name), lines)


def _key_problems(key: yaml.Node, name: str, first_line: int | None) -> Iterator[Problem]:
    line, shown = key.start_mark.line + 1, shortened(name, _MAX_KEY_CHARS)
    if key.tag != _STR_TAG:
        yield Problem(line=line, message=f"a key must be text: write {shown!r} in quotes")
    if first_line is not None:
        yield Problem(line=line, message=f"key {shown!r} is already in line {first_line}")


def _read_long_number_as_text(node: yaml.Node) -> None:
    if node.tag in _NUMBER_TAGS and len(node.value) > _MAX_NUMBER_CHARS:
        node.tag = _STR_TAG
