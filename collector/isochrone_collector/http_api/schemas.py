"""JSON Schema of values as `isochrone_wire.json_format` writes them, and of documents. Pure."""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import IntFlag, StrEnum
from typing import Any

from isochrone_wire.queries.documents import FORMATS, DocumentFormat

Schema = dict[str, Any]

_PLAIN: dict[object, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "base64"},
}
_INSTANT: Schema = {"type": "string", "format": "date-time"}


def components(*classes: type) -> dict[str, Schema]:
    """Return the schemas of classes and of the classes they refer to, by name; that of an answer with a document is
    the schema of this document.
    """
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
    document = FORMATS.get(cls.__name__)
    properties = _properties(cls, found) if document is None else _document_properties(cls, document, found)
    found[cls.__name__] = {
        "type": "object",
        "description": " ".join((cls.__doc__ or "").split()),
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _properties(cls: type, found: dict[str, Schema]) -> dict[str, Schema]:
    """Return the schemas of the fields of a class, as `to_json_value` writes them."""
    hints = typing.get_type_hints(cls)
    properties = {
        field.name: _schema(hints[field.name], found, is_instant=field.name.endswith("_at")) for field in fields(cls)
    }
    if prefix := getattr(cls, "ID_PREFIX", None):
        properties["id"] = {"type": "string", "pattern": f"^{prefix}[0-9a-f]{{16}}$"}
    derived = {name: getattr(cls, name).fget for name in getattr(cls, "DERIVED", ())}
    return properties | {
        name: _schema(typing.get_type_hints(getter)["return"], found) for name, getter in derived.items()
    }


def _document_properties(cls: type, document: DocumentFormat, found: dict[str, Schema]) -> dict[str, Schema]:
    properties = _properties(cls, found)
    rows = properties.pop(document.rows)
    for name in document.inline:
        _inline(found, rows["items"], name)
    facts = {name: schema for name, schema in properties.items() if name not in document.omitted}
    return {"schema": {"const": document.schema}, **facts, "rows": rows}


def _inline(found: dict[str, Schema], row: Schema, name: str) -> None:
    """Replace a property of the schema of a row by the properties of the object that it refers to."""
    schema = found[_referred(row)]
    properties = dict(schema["properties"])
    properties |= found[_referred(properties.pop(name))]["properties"]
    schema |= {"properties": properties, "required": list(properties)}


def _referred(schema: Schema) -> str:
    name: str = schema["$ref"].rpartition("/")[2]
    return name


def _is_open(names: type[StrEnum]) -> bool:
    """Return whether an enumeration also has the names of later versions."""
    try:
        return bool(names("a_later_name"))
    except ValueError:
        return False


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
        known = [member.value for member in hint]
        return {"type": "string", "examples": known} if _is_open(hint) else {"type": "string", "enum": known}
    if issubclass(hint, IntFlag):
        return {"type": "array", "items": {"type": "string", "enum": [flag.name.lower() for flag in hint if flag.name]}}
    return _INSTANT if is_instant and hint is int else dict(_PLAIN[hint])
