"""The OpenAPI 3.1 document: schemas and the paths of queries are derived, the other paths written by hand. Pure."""

import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import IntFlag, StrEnum
from typing import Any

from isochrone_collector.http_api.requests import (
    COUNT,
    EXPORT,
    FORMAT,
    INSTANT,
    LINES,
    TEXT,
    WATCH,
    Endpoint,
    Parameter,
    Schema,
)
from isochrone_collector.publishing.change_event import ChangeEvent
from isochrone_wire import __version__
from isochrone_wire.queries.documents import FORMATS, DocumentFormat
from isochrone_wire.routes import RegionTables, RouteState, RouteTable
from isochrone_wire.text import ESTIMAND_SENTENCE, SERVER_CAVEAT

_PLAIN: dict[object, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "base64"},
}

_INSTANT: Schema = {"type": "string", "format": "date-time"}

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

_OVERVIEW: Schema = {
    "type": "object",
    "description": "The regions and routes that have a table.",
    "properties": {
        "generation": {**COUNT, "description": "The newest generation of all tables."},
        "plan_version": COUNT,
        "client_regions": {"type": "array", "items": TEXT},
        "routes": {"type": "array", "items": TEXT, "description": "The routes of the plan in force."},
        "tables": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "client_region": TEXT,
                    "route": TEXT,
                    "generation": COUNT,
                    "state": {"type": "string", "enum": [state.value for state in RouteState]},
                    "built_at": INSTANT,
                    "weights": {
                        "type": "object",
                        "additionalProperties": {"type": "number"},
                        "description": "The weights of the members from 0 to 1, by their targets in rank order.",
                    },
                    "fresh_until_at": INSTANT,
                    "stale_until_at": INSTANT,
                },
                "required": [
                    "client_region",
                    "route",
                    "generation",
                    "state",
                    "built_at",
                    "weights",
                    "fresh_until_at",
                    "stale_until_at",
                ],
                "additionalProperties": False,
            },
        },
    },
    "required": ["generation", "plan_version", "client_regions", "routes", "tables"],
    "additionalProperties": False,
}

_ALIVE: Schema = {"type": "object", "properties": {"alive": {"const": True}}, "required": ["alive"]}

_READY: Schema = {
    "type": "object",
    "properties": {
        "ready": {"const": True},
        "generation": COUNT,
        "stale_since_at": {
            "anyOf": [INSTANT, {"type": "null"}],
            "description": "The instant since when the database is unavailable; the tables known then are served.",
        },
    },
    "required": ["ready", "generation", "stale_since_at"],
}

_TABLE_HEADERS: Schema = {
    "ETag": {"schema": TEXT, "description": "Changes with every table in the answer."},
    "Cache-Control": {"schema": TEXT},
    "X-Isochrone-Generation": {"schema": COUNT, "description": "The newest generation in the answer."},
    "X-Isochrone-Answered-At": {"schema": INSTANT},
    "X-Isochrone-Stale-Since": {
        "schema": INSTANT,
        "description": "Present while the database is unavailable to the collector: newer tables may exist.",
    },
}

_BOUNDS = ("low", "high", "low_us", "high_us", "shift_low", "shift_high")
_SERVER = f"The server's part is {SERVER_CAVEAT}."


def document(endpoints: Sequence[Endpoint]) -> Schema:
    """Return the document of the interface, with the paths of queries."""
    schemas = components(RegionTables, RouteTable, ChangeEvent, *(endpoint.answer for endpoint in endpoints))
    region = schemas["RegionTables"]
    # These two are headers over HTTP, so that equal tables give equal bytes.
    for name in ("answered_at", "stale_since_at"):
        del region["properties"][name]
        region["required"].remove(name)
    region["description"] = "All tables of a client region."
    for schema in schemas.values():
        for name in set(_BOUNDS).intersection(schema["properties"]):
            schema["properties"][name]["description"] = ESTIMAND_SENTENCE
    schemas["Differential"]["properties"]["server_shift"]["description"] = _SERVER
    schemas["Part"]["properties"]["name"]["description"] = _SERVER
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Isochrone",
            "version": __version__,
            "description": "Measurements of LLM requests per region, and where to send them. See docs/http.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {path: {"get": operation} for path, operation in _paths().items()}
        | {endpoint.path: {"get": _query(endpoint)} for endpoint in endpoints}
        | {path: {"post": operation} for path, operation in _discovery().items()},
        "components": {
            "schemas": {**schemas, "Problem": _PROBLEM, "Overview": _OVERVIEW},
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


def _paths() -> dict[str, Schema]:
    return {
        "/v1/routes": _operation("The regions and routes that have a table.", _named("Overview")),
        "/v1/routes/watch": _watch(_in_query("client_region", TEXT, "One region; all if missing.")),
        "/v1/routes/{client_region}": _tables(),
        "/v1/routes/{client_region}/watch": _watch(_in_path("client_region")),
        "/v1/samples/export": _export(),
        "/v1/samples/watch": _sample_watch(),
        "/v1/changes": _changes(),
        "/v1/openapi.json": _operation("This document.", {"type": "object"}),
        "/metrics": _metrics(),
        "/healthz": _operation("Liveness of the process; open to all.", _ALIVE),
        "/readyz": _operation("Readiness to serve tables; open to all.", _READY),
    }


def _discovery() -> dict[str, Schema]:
    """Return the operations for Envoy, whose messages are those of its API."""
    found = {
        "/v3/discovery:clusters": _operation("The clusters of a region, for Envoy.", {"type": "object"}),
        "/v3/discovery:routes": _operation("The routes of a region, for Envoy.", {"type": "object"}),
    }
    for operation in found.values():
        operation["requestBody"] = {
            "description": "A DiscoveryRequest of Envoy's API, version 3, with node.locality.region.",
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
        operation["responses"]["304"] = {"description": "The version in the request is the newest."}
    return found


def _tables() -> Schema:
    operation = _operation(
        "The tables of a client region.",
        reference(RegionTables),
        _in_path("client_region"),
        _ROUTE,
        _FORMAT,
        _in_query("wait", {"type": "string", "examples": ["30s"]}, "Wait for a newer table, 1s to 60s; see after."),
        _in_query("after", COUNT, "The newest generation the client has."),
        _header("If-None-Match", "The ETag the client has."),
    )
    operation["responses"]["200"]["headers"] = _TABLE_HEADERS
    operation["responses"]["204"] = {"description": "No newer table while waiting.", "headers": _TABLE_HEADERS}
    operation["responses"]["304"] = {
        "description": "The tables of If-None-Match are current.",
        "headers": _TABLE_HEADERS,
    }
    return operation


def _export() -> Schema:
    operation = _operation(
        "All samples of a selection, as lines of JSON with the rows of /v1/samples; complete if the body ends.",
        _named("StoredSample"),
        *map(_described, EXPORT),
    )
    operation["responses"]["200"]["content"] = {LINES: {"schema": TEXT}}
    return operation


def _sample_watch() -> Schema:
    operation = _operation(
        "Samples as they are stored, as server-sent events: data has rows as /v1/samples, and resume_at, which is the "
        "id in microseconds: samples received before it have been sent, later ones may have been.",
        _named("StoredSample"),
        *map(_described, WATCH),
        _header("Last-Event-ID", "Continue from this id."),
    )
    operation["responses"]["200"]["content"] = {"text/event-stream": {"schema": TEXT}}
    return operation


def _watch(region: Schema) -> Schema:
    operation = _operation(
        "Tables as they change, as server-sent events: id is the generation, data one RouteTable.",
        reference(RouteTable),
        region,
        _ROUTE,
        _in_query("after", COUNT, "Resume after this generation; a snapshot comes first if it is missing."),
        _header("Last-Event-ID", "As after, with precedence."),
    )
    operation["responses"]["200"]["content"] = {"text/event-stream": {"schema": TEXT}}
    return operation


def _changes() -> Schema:
    operation = _operation(
        "Notices of new data, as server-sent events named `change`: at most one a second, and a heartbeat without "
        "topics at once and every ten seconds.",
        reference(ChangeEvent),
    )
    operation["responses"]["200"]["content"] = {"text/event-stream": {"schema": TEXT}}
    return operation


def _query(endpoint: Endpoint) -> Schema:
    """Return the operation of a query. Its tag is weak: two answers may be equal but for the instant of the request."""
    operation = _operation(
        endpoint.summary,
        reference(endpoint.answer),
        *(_in_path(name) for name in re.findall(r"{(\w+)}", endpoint.path)),
        *(_described(parameter) for parameter in endpoint.parameters),
        _header("If-None-Match", "The ETag the client has."),
    )
    headers = {"ETag": {"schema": TEXT, "description": "Changes with the answer."}}
    operation["responses"]["200"]["headers"] = headers
    operation["responses"]["304"] = {"description": "The answer of If-None-Match is current.", "headers": headers}
    return operation


def _described(parameter: Parameter) -> Schema:
    return _in_query(parameter.name, parameter.schema, parameter.description)


def _metrics() -> Schema:
    operation = _operation("The metrics of this collector and of what it measured, for Prometheus.", TEXT)
    operation["responses"]["200"]["content"] = {"text/plain": {"schema": TEXT}}
    return operation


def _operation(summary: str, answer: Schema, *parameters: Schema) -> Schema:
    problem = {"description": "See Problem.", "content": {"application/problem+json": {"schema": _named("Problem")}}}
    return {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {
            "200": {"description": summary, "content": {"application/json": {"schema": answer}}},
            "default": problem,
        },
    }


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _in_path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": TEXT}


def _in_query(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _header(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "schema": TEXT, "description": description}


_ROUTE = _in_query("route", TEXT, "One route; all if missing.")
_FORMAT = _described(FORMAT)


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
