"""The OpenAPI document matches the served interface."""

import re
from types import SimpleNamespace
from typing import Any, cast

from jsonschema import Draft202012Validator
from starlette.routing import Route

from isochrone_collector.http_api import openapi, queries, route_tables
from isochrone_collector.http_api.app import Sources, create_app
from isochrone_wire.text import ESTIMAND_SENTENCE, SERVER_CAVEAT


def routes() -> dict[str, Route]:
    """Return the served paths."""
    nothing = cast(Any, SimpleNamespace())
    app = create_app(
        Sources(
            publisher=nothing,
            plans=nothing,
            query_context=nothing,
            authenticator=nothing,
            clock=lambda: 0,
            metrics=list,
        )
    )
    return {route.path: route for route in app.routes if isinstance(route, Route)}


def test_every_path_is_described() -> None:
    """The document has exactly the served paths, with their parameters."""
    document = openapi.document()
    assert set(document["paths"]) == set(routes())
    for path, methods in document["paths"].items():
        declared = {one["name"] for one in methods["get"]["parameters"] if one["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path)), path


def test_every_parameter_is_described() -> None:
    """The query parameters of a path are those of the document."""
    paths = openapi.document()["paths"]
    for path, known in (
        ("/v1/routes", ()),
        ("/v1/routes/{client_region}", route_tables.ONE_REGION),
        ("/v1/routes/{client_region}/watch", route_tables.WATCHING),
        ("/v1/explain/{client_region}/{route}", queries.EXPLAIN),
        ("/v1/diff", queries.DIFF),
    ):
        declared = [one["name"] for one in paths[path]["get"]["parameters"] if one["in"] == "query"]
        assert sorted(declared) == sorted(known), path


def test_intervals_and_the_server_s_part_are_explained() -> None:
    """Each bound of an interval states what it is of, and `server_shift` and `Part` what the server's part is."""
    schemas = openapi.document()["components"]["schemas"]
    for owner, name in (("Differential", "shift_low"), ("Level", "high"), ("Proportion", "low"), ("Part", "low")):
        assert schemas[owner]["properties"][name]["description"] == ESTIMAND_SENTENCE
    for owner, name in (("Differential", "server_shift"), ("Part", "name")):
        assert SERVER_CAVEAT in schemas[owner]["properties"][name]["description"]


def test_schemas_are_schemas() -> None:
    """Every component is a valid JSON Schema, and every reference resolves."""
    document = openapi.document()
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    referred = set(re.findall(r"'#/components/schemas/(\w+)'", str(document)))
    assert referred <= set(schemas)
    assert {"RegionTables", "RouteTable", "RouteEntry", "Problem"} <= referred
