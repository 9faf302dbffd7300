"""Plain data as YAML: mappings and lists in blocks, everything else as JSON writes it, which is YAML too."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What YAML takes for something else than a text.
_NOT_TEXT = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def written(value: dict[str, Any], *, head: Sequence[str] = ()) -> str:
    """The document, under lines of comment."""
    lines = [f"# {line}" for line in head]
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


def _entry(head: str, part: Any, indent: str) -> Iterator[str]:  # noqa: ANN401  # as above
    if isinstance(part, dict | list) and part:
        yield head
        yield from _lines(part, indent)
    else:
        yield f"{head} {json.dumps(part, ensure_ascii=False)}"


def _key(key: str) -> str:
    return key if _PLAIN.fullmatch(key) and key.lower() not in _NOT_TEXT else json.dumps(key, ensure_ascii=False)
