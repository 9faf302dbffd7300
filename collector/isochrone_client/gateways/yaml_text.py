"""YAML as text, with all strings in double quotes. The clients need no YAML library to write a configuration."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words that YAML does not read as strings.
_NOT_TEXT = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


class Template(str):
    """A string that a program expands before it reads the YAML: in single quotes, which keep its own double quotes."""

    __slots__ = ()


def dump_yaml(value: dict[str, Any], *, comment: Sequence[str] = ()) -> str:
    """The document, below the lines of `comment`. No string but a `Template` contains `${{`."""
    lines = [f"# {line}".replace("${{", "$ {{") for line in comment]
    return "\n".join([*lines, *_lines(value, "")]) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:  # noqa: ANN401  # plain data, nested
    if isinstance(value, dict) and value:
        for key, part in value.items():
            is_plain = _PLAIN_KEY.fullmatch(key) and key.lower() not in _NOT_TEXT
            name = f"{indent}{key if is_plain else _scalar(key)}:"
            is_nested = isinstance(part, dict | list) and part
            yield from [name, *_lines(part, f"{indent}  ")] if is_nested else [f"{name} {_scalar(part)}"]
    elif isinstance(value, list) and value:
        for part in value:
            first, *others = _lines(part, f"{indent}  ")
            yield from [f"{indent}- {first.strip()}", *others]
    else:
        yield f"{indent}{_scalar(value)}"


def _scalar(value: Any) -> str:  # noqa: ANN401  # as above
    if isinstance(value, Template):
        return "'" + value.replace("'", "''") + "'"
    # `\u0024` is a dollar sign in YAML, and no template of decK.
    return json.dumps(value, ensure_ascii=False).replace("${{", "\\u0024{{")
