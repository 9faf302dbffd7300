"""YAML as plain data, with the line of each part.

Aliases and deep nesting are rejected before any data is built, so that a small text cannot use much memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]

_MAX_DEPTH = 12
_MAX_BYTES = 4_000_000
# A plan of 1 000 targets with every field has about 60 000.
_MAX_PARTS = 200_000
# libyaml is twenty times as fast; the wheels of PyYAML have it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR_TAG = "tag:yaml.org,2002:str"
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
        problems = tuple(_walk(root, (), lines))
        return YamlText(data=loader.construct_document(root), lines=lines, problems=problems)
    except yaml.MarkedYAMLError as error:
        # The mark of a text that ends too early is behind its last line.
        line = min(error.problem_mark.line, text.count("\n")) + 1 if error.problem_mark else 1
        return YamlText(problems=(Problem(line=line, message=f"not YAML: {error.problem or error.context}"),))
    except (yaml.YAMLError, ValueError) as error:
        # A character that YAML does not allow, or a date such as 2026-02-30.
        return YamlText(problems=(Problem(line=1, message=f"not YAML: {str(error).splitlines()[0]}"),))


def _refusal(text: str) -> Problem | None:
    if len(text.encode(errors="replace")) > _MAX_BYTES:
        return Problem(line=1, message=f"the document is larger than {_MAX_BYTES} bytes")
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
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(item, (*path, index), lines)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _key_problems(key, path, lines)
            lines[*path, str(key.value)] = key.start_mark.line + 1
            yield from _walk(value, (*path, str(key.value)), lines)


def _key_problems(key: yaml.Node, path: Path, lines: Mapping[Path, int]) -> Iterator[Problem]:
    line = key.start_mark.line + 1
    if key.tag != _STR_TAG:
        yield Problem(line=line, message=f"a key must be text: write {str(key.value)!r} in quotes")
    first = lines.get((*path, str(key.value)))
    if first is not None:
        yield Problem(line=line, message=f"key {key.value!r} is already in line {first}")
