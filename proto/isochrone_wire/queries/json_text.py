"""JSON text of the value classes, made directly: answers have thousands of rows. It equals the text of
`json_format.to_json_value` on one line.
"""

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from json.encoder import encode_basestring
from math import isfinite
from operator import attrgetter
from types import NoneType
from typing import Any

from isochrone_wire.json_format import rfc3339, to_json_value

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_FEWEST_FIELDS = 2


def plain_text(value: object) -> str:
    """Return plain data, as `to_json_value` returns it, as JSON on one line."""
    return _ENCODER.encode(value)


def json_text(value: Any) -> str:  # noqa: ANN401  # any value of the wire, nested
    """Return a value of the wire as JSON on one line."""
    return _WRITERS[type(value)](value)


class _Writers(dict[type, Callable[[Any], str]]):
    """`json_text` for values of each class, made when the first one is written."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        self[kind] = _writer(kind)
        return self[kind]


_WRITERS = _Writers({str: encode_basestring, int: int.__repr__, NoneType: lambda _: "null"})


def _writer(kind: type) -> Callable[[Any], str]:
    if is_dataclass(kind) and not hasattr(kind, "DERIVED") and not hasattr(kind, "ID_PREFIX"):
        names = tuple(field.name for field in fields(kind))
        if len(names) >= _FEWEST_FIELDS:
            return _fields_writer(names)
    return lambda value: plain_text(to_json_value(value))


def _fields_writer(names: tuple[str, ...]) -> Callable[[Any], str]:
    """Return the function that writes the fields of these names."""
    template = "{" + ",".join(f"{encode_basestring(name)}:%s" for name in names) + "}"
    values_of = attrgetter(*names)
    instants = [place for place, name in enumerate(names) if name.endswith("_at")]

    def write(owner: Any) -> str:  # noqa: ANN401  # a value of the class
        values = values_of(owner)
        texts = [
            repr(value) if type(value) is float and isfinite(value) else _WRITERS[type(value)](value)
            for value in values
        ]
        for place in instants:
            texts[place] = _instant_text(values[place])
        return template % tuple(texts)

    return write


def _instant_text(value: Any) -> str:  # noqa: ANN401  # the value of a field
    return f'"{rfc3339(value)}"' if isinstance(value, int) else json_text(value)
