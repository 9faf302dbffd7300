"""Parsing of query strings, and the OpenAPI document, which matches the served interface."""

import re
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from starlette.routing import Route

from isochrone_client.cli import cli
from isochrone_collector.errors import BadRequest
from isochrone_collector.http_api import openapi, requests
from isochrone_collector.http_api.app import DESCRIBED, create_app
from isochrone_collector.http_api.queries import ENDPOINTS
from isochrone_collector.http_api.requests import Endpoint
from isochrone_collector.http_api.sources import Sources
from isochrone_wire.answers import Window
from isochrone_wire.durations import HOUR_US, MAX_INSTANT_AT
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.text import ESTIMAND_SENTENCE, SERVER_CAVEAT

NOW_AT = 1_795_248_000_000_000  # 2026-11-21T08:00:00Z


def window(**said: str) -> Window:
    return requests.window({name.rstrip("_"): (value,) for name, value in said.items()}, now_at=NOW_AT)


@pytest.mark.parametrize(
    ("said", "length_us"),
    [
        ({}, DAY_US),
        ({"window": "24h"}, DAY_US),
        ({"window": "7d"}, 7 * DAY_US),
        ({"window": "2w"}, 14 * DAY_US),
        ({"window": "90s"}, 90 * SECOND_US),
        ({"window": "today"}, 8 * HOUR_US),
        ({"window": "2026-11-21T07:00.."}, HOUR_US),
        ({"from_": "2026-11-21T07:00:00Z"}, HOUR_US),
        ({"from_": "2026-11-21T08:00:00+01:00"}, HOUR_US),
        ({"from_": "2026-11-21T08:00:00 01:00"}, HOUR_US),
        ({"from_": "2026-11-21T06:00:00Z", "until": "2026-11-21T08:00:00Z"}, 2 * HOUR_US),
    ],
)
def test_a_window_ends_now_or_where_it_is_told_to(said: dict[str, str], length_us: int) -> None:
    """A span counts back from now; instants keep their offset."""
    assert window(**said) == Window(from_at=NOW_AT - length_us, until_at=NOW_AT)


@pytest.mark.parametrize(
    "said",
    [
        {"window": "tomorrow"},
        {"window": "7"},
        {"window": "-1h"},
        {"window": "24h", "from_": "2026-11-21T07:00:00Z"},
        {"until": "2026-11-21T07:00:00Z"},
        {"from_": "2026-11-21T07:00:00"},
        {"from_": "2026-11-21T09:00:00Z"},
        {"from_": "2026-11-21"},
        {"from_": "x" * 9_000},
        {"from_": "0001-01-01T00:00:00Z"},
        {"from_": "2026-11-21T07:00:00Z", "until": "9999-12-31T23:59:59-14:00"},
    ],
)
def test_no_window_is_guessed(said: dict[str, str]) -> None:
    """An invalid window, two windows, or an instant without offset are refused."""
    with pytest.raises(BadRequest):
        window(**said)


@given(st.binary(max_size=200))
def test_any_query_is_read_or_refused(query: bytes) -> None:
    """Any bytes give known parameters or a bad request."""
    try:
        found = requests.parse(query, known=("route", "after"))
    except BadRequest:
        return
    assert set(found) <= {"route", "after"}


@given(st.text(max_size=30))
def test_any_number_is_read_or_refused(text: str) -> None:
    """A generation must be in range, and a wait within its bounds; else it is a bad request."""
    with suppress(BadRequest):
        assert 0 <= requests.generation(text, name="after") < 2**63
    with suppress(BadRequest):
        assert 0 <= requests.microseconds(text, name="Last-Event-ID") <= MAX_INSTANT_AT
    with suppress(BadRequest):
        assert 0 <= requests.wait_us(text, name="wait") <= requests.MAX_WAIT_US


@pytest.mark.parametrize(
    ("text", "found_us"),
    [("", 0), ("0.001", 1_000), ("0.5", 500_000), ("8", 8 * SECOND_US), ("86400", DAY_US), ("0.3000004", 300_000)],
)
def test_seconds_are_microseconds(text: str, found_us: int) -> None:
    """A number of seconds, perhaps with decimals."""
    assert requests.parsed(requests.seconds_us)({"limit": (text,)}, "limit") == found_us


@pytest.mark.parametrize("text", ["0", "0.0001", "86400.1", "999999", "-1", "1e3", "nan", "1s", "8.", "٣"])
def test_no_other_text_is_a_number_of_seconds(text: str) -> None:
    """Zero, more than a day and other forms are refused with the value."""
    with pytest.raises(BadRequest, match="limit: "):
        requests.seconds_us(text, name="limit")


def test_an_unknown_word_names_the_nearest() -> None:
    """A misspelt parameter is refused rather than ignored."""
    with pytest.raises(BadRequest, match="did you mean 'route'"):
        requests.parse(b"rotue=chat", known=("route", "after"))


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
    """A path and its query parameters have the names of a command and its options, with the same choices."""
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
