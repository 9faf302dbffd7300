"""The OpenAPI document matches the served interface."""

import re
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from jsonschema import Draft202012Validator
from starlette.routing import Route

from isochrone_client.cli import cli
from isochrone_collector.http_api import openapi
from isochrone_collector.http_api.app import DESCRIBED, Sources, create_app
from isochrone_collector.http_api.queries import ENDPOINTS
from isochrone_collector.http_api.requests import Endpoint
from isochrone_wire.text import ESTIMAND_SENTENCE, SERVER_CAVEAT

COMMAND_OF = {
    "region-costs": ["regions"],
    "simulations": ["simulate"],
    "spend": ["coverage"],
    "route-events": ["routes", "history"],
}


def routes() -> dict[str, Route]:
    """Return the served paths, without those of the live page."""
    nothing = cast(Any, SimpleNamespace(clock=None))
    app = create_app(
        Sources(
            publisher=nothing,
            changes=nothing,
            plans=nothing,
            query_context=nothing,
            authenticator=nothing,
            snapshots=nothing,
            rejections=nothing,
            clock=lambda: 0,
            metrics=list,
        )
    )
    return {route.path: route for route in app.routes if isinstance(route, Route) and route.include_in_schema}


def test_every_path_is_described() -> None:
    """The document has exactly the served paths, with their parameters."""
    document = openapi.document(DESCRIBED)
    assert set(document["paths"]) == set(routes())
    for path, methods in document["paths"].items():
        (operation,) = methods.values()
        assert {method.upper() for method in methods} == set(routes()[path].methods or ()) - {"HEAD"}, path
        declared = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path)), path


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if "{" not in one.path], ids=lambda one: one.path)
def test_parameters_are_the_options_of_the_command(endpoint: Endpoint) -> None:
    """A path has the name of a command, and its query parameters have the names of the options of this command, with
    the same choices.
    """
    name = endpoint.path.removeprefix("/v1/")
    command: click.Command | None = cli
    for word in COMMAND_OF.get(name, [name]):
        assert isinstance(command, click.Group), endpoint.path
        command = command.get_command(click.Context(command), word)
    assert command is not None, endpoint.path
    options = {name.removeprefix("--"): option for option in command.params for name in option.opts}
    for parameter in endpoint.parameters or ():
        # A command shows all quantities.
        if parameter.name in ("from", "until", "format", "quantity"):
            continue
        option = options[parameter.name]
        assert option.multiple == (parameter.schema["type"] == "array"), parameter.name
        if isinstance(option.type, click.Choice):
            assert set(parameter.schema["enum"]) == set(option.type.choices), parameter.name


def test_intervals_and_the_server_s_part_are_explained() -> None:
    """Each bound of an interval states what it is of, and `server_shift` and `Part` what the server's part is."""
    schemas = openapi.document(ENDPOINTS)["components"]["schemas"]
    for owner, name in (("Differential", "shift_low"), ("Level", "high"), ("Proportion", "low"), ("Part", "low")):
        assert schemas[owner]["properties"][name]["description"] == ESTIMAND_SENTENCE
    for owner, name in (("Differential", "server_shift"), ("Part", "name")):
        assert SERVER_CAVEAT in schemas[owner]["properties"][name]["description"]


def test_schemas_are_schemas() -> None:
    """Every component is a valid JSON Schema, and every reference resolves."""
    document = openapi.document(DESCRIBED)
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    referred = set(re.findall(r"'#/components/schemas/(\w+)'", str(document)))
    assert referred <= set(schemas)
    assert {"RegionTables", "RouteTable", "RouteEntry", "Problem"} <= referred
