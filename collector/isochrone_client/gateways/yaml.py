"""Plain data as YAML: mappings and lists in block style, scalars as JSON, which is valid YAML."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words that YAML does not read as strings.
_NOT_TEXT = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def dump(value: dict[str, Any], *, comment: Sequence[str] = ()) -> str:
    """The document, below the lines of `comment`."""
    lines = [f"# {line}" for line in comment]
    return "\n".join([*lines, *_lines(value, "")]) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:  # noqa: ANN401  # plain data, nested
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from _entry(f"{indent}{_key(key)}:", part, f"{indent}  ")
    elif isinstance(value, list) and value:
        for part in value:
            first, *others = _lines(part, f"{indent}  ")
            yield from [f"{indent}- {first.strip()}", *others]
    else:
        yield f"{indent}{json.dumps(value, ensure_ascii=False)}"


def _entry(key: str, part: Any, indent: str) -> Iterator[str]:  # noqa: ANN401  # as above
    if isinstance(part, dict | list) and part:
        yield key
        yield from _lines(part, indent)
    else:
        yield f"{key} {json.dumps(part, ensure_ascii=False)}"


def _key(key: str) -> str:
    return key if _PLAIN.fullmatch(key) and key.lower() not in _NOT_TEXT else json.dumps(key, ensure_ascii=False)
