"""JSON Schema of wire values as written by `isochrone_wire.json_format`. Pure."""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

Schema = dict[str, Any]

_PLAIN: dict[object, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
}
_INSTANT: Schema = {"type": "string", "format": "date-time"}


def components(*classes: type) -> dict[str, Schema]:
    """Return the schemas of classes and of the classes they refer to, by name."""
    found: dict[str, Schema] = {}
    for cls in classes:
        _add(cls, found)
    return found


def reference(cls: type) -> Schema:
    """Return a reference to the schema of a class."""
    return {"$ref": f"#/components/schemas/{cls.__name__}"}


def _add(cls: type, found: dict[str, Schema]) -> None:
    if cls.__name__ in found:
        return
    found[cls.__name__] = {}
    hints = typing.get_type_hints(cls)
    properties = {
        field.name: _schema(hints[field.name], found, is_instant=field.name.endswith("_at")) for field in fields(cls)
    }
    found[cls.__name__] = {
        "type": "object",
        "description": " ".join((cls.__doc__ or "").split()),
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _schema(hint: Any, found: dict[str, Schema], *, is_instant: bool = False) -> Schema:  # noqa: ANN401  # any type hint
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is types.UnionType:
        (inner,) = [part for part in arguments if part is not types.NoneType]
        return {"anyOf": [_schema(inner, found, is_instant=is_instant), {"type": "null"}]}
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _schema(arguments[0], found)}
    if typing.get_origin(hint) is Mapping:
        return {"type": "object", "additionalProperties": _schema(arguments[1], found)}
    if is_dataclass(hint):
        assert isinstance(hint, type)
        _add(hint, found)
        return reference(hint)
    if issubclass(hint, StrEnum):
        return {"type": "string", "enum": [member.value for member in hint]}
    return _INSTANT if is_instant and hint is int else dict(_PLAIN[hint])
