"""The OpenAPI 3.1 document: paths written by hand, schemas derived from classes. Pure."""

from isochrone_collector.http_api.schemas import Schema, components, reference
from isochrone_wire import __version__
from isochrone_wire.answers import DifferentialList, Metric
from isochrone_wire.routes import Explanation, RegionTables, RouteState, RouteTable
from isochrone_wire.text import ESTIMAND_SENTENCE, SERVER_CAVEAT

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_INSTANT: Schema = {"type": "string", "format": "date-time"}

_PROBLEM: Schema = {
    "type": "object",
    "description": "An error (RFC 9457).",
    "properties": {
        "type": {**_TEXT, "examples": ["urn:isochrone:problem:unknown-name"]},
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": {**_TEXT, "description": "The error message."},
        "known": {"type": "array", "items": _TEXT, "description": "The known names, if a name is unknown."},
        "nearest": {
            "anyOf": [_TEXT, {"type": "null"}],
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
        "generation": {**_COUNT, "description": "The newest generation of all tables."},
        "plan_version": _COUNT,
        "client_regions": {"type": "array", "items": _TEXT},
        "routes": {"type": "array", "items": _TEXT, "description": "The routes of the plan in force."},
        "tables": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "client_region": _TEXT,
                    "route": _TEXT,
                    "generation": _COUNT,
                    "state": {"type": "string", "enum": [state.value for state in RouteState]},
                    "fresh_until_at": _INSTANT,
                    "stale_until_at": _INSTANT,
                },
                "required": ["client_region", "route", "generation", "state", "fresh_until_at", "stale_until_at"],
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
        "generation": _COUNT,
        "stale_since_at": {
            "anyOf": [_INSTANT, {"type": "null"}],
            "description": "The instant since when the database is unavailable; the tables known then are served.",
        },
    },
    "required": ["ready", "generation", "stale_since_at"],
}

_TABLE_HEADERS: Schema = {
    "ETag": {"schema": _TEXT, "description": "Changes with every table in the answer."},
    "Cache-Control": {"schema": _TEXT},
    "X-Isochrone-Generation": {"schema": _COUNT, "description": "The newest generation in the answer."},
    "X-Isochrone-Stale-Since": {
        "schema": _INSTANT,
        "description": "Present while the database is unavailable to the collector: newer tables may exist.",
    },
}

_BOUNDS = ("low", "high", "low_us", "high_us", "shift_low", "shift_high")
_SERVER = f"The server's part is {SERVER_CAVEAT}."


def document() -> Schema:
    """Return the document."""
    schemas = components(RegionTables, RouteTable, Explanation, DifferentialList)
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
            "description": "Where to send LLM requests from a region, and why. See docs/routing.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {path: {"get": operation} for path, operation in _paths().items()},
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
        "/v1/routes/{client_region}": _tables(),
        "/v1/routes/{client_region}/watch": _watch(),
        "/v1/explain/{client_region}/{route}": _operation(
            "The explanation of a table, replayed from its inputs.",
            reference(Explanation),
            _in_path("client_region"),
            _in_path("route"),
            _in_query("generation", _COUNT, "The generation of the table; the newest if 0 or missing."),
            _FORMAT,
        ),
        "/v1/diff": _diff(),
        "/v1/openapi.json": _operation("This document.", {"type": "object"}),
        "/metrics": _metrics(),
        "/healthz": _operation("Liveness of the process; open to all.", _ALIVE),
        "/readyz": _operation("Readiness to serve tables; open to all.", _READY),
    }


def _tables() -> Schema:
    operation = _operation(
        "The tables of a client region.",
        reference(RegionTables),
        _in_path("client_region"),
        _ROUTE,
        _FORMAT,
        _in_query("wait", {"type": "string", "examples": ["30s"]}, "Wait for a newer table, 1s to 60s; see after."),
        _in_query("after", _COUNT, "The newest generation the client has."),
        _header("If-None-Match", "The ETag the client has."),
    )
    operation["responses"]["200"]["headers"] = _TABLE_HEADERS
    operation["responses"]["204"] = {"description": "No newer table while waiting.", "headers": _TABLE_HEADERS}
    operation["responses"]["304"] = {
        "description": "The tables of If-None-Match are current.",
        "headers": _TABLE_HEADERS,
    }
    return operation


def _watch() -> Schema:
    operation = _operation(
        "Tables as they change, as server-sent events: id is the generation, data one RouteTable.",
        reference(RouteTable),
        _in_path("client_region"),
        _ROUTE,
        _in_query("after", _COUNT, "Resume after this generation; a snapshot comes first if it is missing."),
        _header("Last-Event-ID", "As after, with precedence."),
    )
    operation["responses"]["200"]["content"] = {"text/event-stream": {"schema": _TEXT}}
    return operation


def _diff() -> Schema:
    return _operation(
        "Regions against a baseline, target by target.",
        reference(DifferentialList),
        _in_query("baseline", _TEXT, "The region to compare with; the plan's if missing."),
        _in_query("against", {"type": "array", "items": _TEXT}, "Regions to compare; all others if missing."),
        _in_query("metric", {"type": "string", "enum": [metric.value for metric in Metric]}, "ttft if missing."),
        _in_query("window", {"type": "string", "examples": ["24h", "7d", "2w"]}, "Up to now; 24h if missing."),
        _in_query("from", _INSTANT, "Instead of window."),
        _in_query("until", _INSTANT, "With from; now if missing."),
        _in_query("target", {"type": "array", "items": _TEXT}, "Names or shell patterns; all if missing."),
        _FORMAT,
    )


def _metrics() -> Schema:
    operation = _operation("The metrics of this collector and of what it measured, for Prometheus.", _TEXT)
    operation["responses"]["200"]["content"] = {"text/plain": {"schema": _TEXT}}
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
    return {"name": name, "in": "path", "required": True, "schema": _TEXT}


def _in_query(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _header(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "schema": _TEXT, "description": description}


_ROUTE = _in_query("route", _TEXT, "One route; all if missing.")
_FORMAT = _in_query("format", {"type": "string", "enum": ["json"]}, "Only json.")
