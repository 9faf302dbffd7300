"""The OpenAPI 3.1 document, derived from the endpoints and from the classes of their answers. Pure."""

import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import IntFlag, StrEnum
from typing import Any

from isochrone_collector.http_api.requests import INSTANT, JSON, TEXT, Endpoint, Schema
from isochrone_wire import __version__
from isochrone_wire.queries.documents import FORMATS, DocumentFormat
from isochrone_wire.text import ESTIMAND_SENTENCE, SERVER_CAVEAT

_PLAIN: dict[object, Schema] = {
    str: TEXT,
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    dict: {"type": "object"},
}

_PROBLEM: Schema = {
    "type": "object",
    "description": "An error (RFC 9457).",
    "properties": {
        "type": {**TEXT, "examples": ["urn:isochrone:problem:unknown-name"]},
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": {**TEXT, "description": "The error message."},
        "hint": {**TEXT, "description": "What would help, if it is known."},
        "known": {"type": "array", "items": TEXT, "description": "The known names, if a name is unknown."},
        "nearest": {
            "anyOf": [TEXT, {"type": "null"}],
            "description": "The known name most similar to the requested one.",
        },
    },
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": False,
}

_BOUNDS = ("low", "high", "low_us", "high_us", "shift_low", "shift_high")
_SERVER = f"The server's part is {SERVER_CAVEAT}."


def document(endpoints: Sequence[Endpoint]) -> Schema:
    """Return the document of the paths of an interface."""
    schemas: dict[str, Schema] = {}
    paths = {endpoint.path: {endpoint.method.lower(): _operation(endpoint, schemas)} for endpoint in endpoints}
    _explain(schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Isochrone",
            "version": __version__,
            "description": "Measurements of LLM requests per region, and where to send them. See docs/http.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Problem": _PROBLEM},
            "securitySchemes": {
                "credential": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The credential of a reader or operator; required with TLS.",
                }
            },
        },
        "security": [{}, {"credential": []}],
    }


def _explain(schemas: Mapping[str, Schema]) -> None:
    """Add to the schemas what the classes do not state."""
    if region := schemas.get("RegionTables"):
        # These two are headers over HTTP, so that equal tables give equal bytes.
        for name in ("answered_at", "stale_since_at"):
            del region["properties"][name]
            region["required"].remove(name)
        region["description"] = "All tables of a client region."
    for schema in schemas.values():
        for name in set(_BOUNDS).intersection(schema["properties"]):
            schema["properties"][name]["description"] = ESTIMAND_SENTENCE
    for owner, name in (("Differential", "server_shift"), ("Part", "name")):
        if owner in schemas:
            schemas[owner]["properties"][name]["description"] = _SERVER


def _operation(endpoint: Endpoint, schemas: dict[str, Schema]) -> Schema:
    answer = _schema(endpoint.answer or typing.get_type_hints(endpoint.work)["return"], schemas)
    if endpoint.media_type != JSON:
        answer = TEXT
    headers = {"headers": endpoint.headers} if endpoint.headers else {}
    operation = {
        "summary": endpoint.summary,
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": TEXT}
                for name in re.findall(r"{(\w+)}", endpoint.path)
            ),
            *(
                {"name": one.name, "in": "query", "schema": one.schema, "description": one.description}
                for one in endpoint.parameters or ()
            ),
            *(
                {"name": name, "in": "header", "schema": TEXT, "description": description}
                for name, description in endpoint.request_headers.items()
            ),
        ],
        "responses": {
            "200": {"description": endpoint.summary, "content": {endpoint.media_type: {"schema": answer}}, **headers},
            **{status: {"description": text, **headers} for status, text in endpoint.other.items()},
            "default": {
                "description": "See Problem.",
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    }
    if endpoint.body:
        content = {JSON: {"schema": {"type": "object"}}}
        operation["requestBody"] = {"description": endpoint.body, "required": True, "content": content}
    return operation


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
    hints = typing.get_type_hints(cls, include_extras=True)
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
        row = found[_name_in(rows["items"])]
        inlined = dict(row["properties"])
        inlined |= found[_name_in(inlined.pop(name))]["properties"]
        row |= {"properties": inlined, "required": list(inlined)}
    facts = {name: schema for name, schema in properties.items() if name not in document.omitted}
    return {"schema": {"const": document.schema}, **facts, "rows": rows}


def _name_in(reference: Schema) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _schema(hint: Any, found: dict[str, Schema], *, is_instant: bool = False) -> Schema:  # noqa: ANN401  # any type hint
    if arguments := typing.get_args(hint):
        return _generic(hint, arguments, found, is_instant=is_instant)
    if is_dataclass(hint):
        assert isinstance(hint, type)
        _add(hint, found)
        return {"$ref": f"#/components/schemas/{hint.__name__}"}
    if issubclass(hint, StrEnum):
        known = [member.value for member in hint]
        return {"type": "string", "examples" if _is_open(hint) else "enum": known}
    if issubclass(hint, IntFlag):
        return {"type": "array", "items": {"type": "string", "enum": [flag.name.lower() for flag in hint if flag.name]}}
    return dict(INSTANT if is_instant and hint is int else _PLAIN[hint])


def _is_open(names: type[StrEnum]) -> bool:
    try:
        return bool(names("a_later_name"))
    except ValueError:
        return False


def _generic(hint: object, arguments: Sequence[Any], found: dict[str, Schema], *, is_instant: bool) -> Schema:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return {**_schema(arguments[0], found, is_instant=is_instant), "description": arguments[1]}
    if origin is typing.Literal:
        return {"const": arguments[0]}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], found)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(arguments[1], found)}
    (inner,) = [part for part in arguments if part is not types.NoneType]
    return {"anyOf": [_schema(inner, found, is_instant=is_instant), {"type": "null"}]}
