"""Route tables in the words of gateways: what is in the files, and what must never be."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from isochrone_client.errors import ClientError
from isochrone_client.gateways import FORMATS, metadata_reader, renderer
from isochrone_client.gateways.envoy import CLUSTERS
from isochrone_client.gateways.portkey import MAX_BYTES
from isochrone_client.gateways.yaml_text import Template, dump_yaml
from isochrone_common.route_consumer import as_static_order
from isochrone_wire.json_format import rfc3339
from isochrone_wire.routes import RegionTables, RouteTable
from testdata import routes
from testdata.routes import NOW_AT, at_public_addresses

CHAT, VOICE = at_public_addresses(routes.CHAT), at_public_addresses(routes.VOICE)
FRESH, STALE = "2026-11-21T08:09:48.000000Z", "2026-11-21T08:29:48.000000Z"


def region(*tables: RouteTable) -> RegionTables:
    return RegionTables(client_region="us-east-2", generation=48, etag="48-e", answered_at=NOW_AT, tables=tables)


def text_of(kind: str, *tables: RouteTable, part: str = "") -> str:
    return renderer(kind)(region(*tables))[part]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_export_says_how_long_it_may_be_used(kind: str) -> None:
    """Each main file has the generation and the instants `fresh_until` and `stale_until`."""
    text = text_of(kind, CHAT)
    assert "48" in text
    assert FRESH in text
    assert STALE in text


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_tables_give_the_same_bytes(kind: str) -> None:
    """An export depends on the tables only, so that a file changes only with them."""
    again = replace(region(CHAT, VOICE), answered_at=NOW_AT + 1)
    assert renderer(kind)(again) == renderer(kind)(region(CHAT, VOICE))


def test_json_is_the_whole_table() -> None:
    """The JSON has every field of the wire."""
    document = json.loads(text_of("json", CHAT))
    assert document["client_region"] == "us-east-2"
    assert document["tables"][0]["entries"][0]["hedge"]["delay_us"] == 241_000
    assert "answered_at" not in document


def test_csv_has_a_line_per_member() -> None:
    """Each line has the generation of its table."""
    rows = list(csv.DictReader(io.StringIO(text_of("csv", CHAT, VOICE))))
    assert [(row["generation"], row["rank"]) for row in rows] == [("48", "1"), ("48", "2"), ("48", "3"), ("47", "1")]


def deployments(*tables: RouteTable) -> list[dict[str, Any]]:
    """The deployments of the LiteLLM configuration, parsed as YAML."""
    loaded: dict[str, Any] = yaml.safe_load(text_of("litellm", *tables))
    assert loaded["router_settings"]["enable_weighted_failover"] is True
    found: list[dict[str, Any]] = loaded["model_list"]
    return found


def test_litellm_shares_an_order_among_those_who_carry_traffic() -> None:
    """Weights apply within an order: members with a weight have order 1, the others follow by rank."""
    found = deployments(CHAT)
    assert [(one["litellm_params"]["order"], one["litellm_params"]["weight"]) for one in found] == [
        (1, 0.75),
        (1, 0.25),
        (2, 1),
    ]
    assert {one["model_name"] for one in found} == {"chat"}
    assert [one["litellm_params"]["api_key"] for one in found] == [
        "os.environ/DEEPSEEK_API_KEY",
        "os.environ/QWEN_API_KEY",
        "none",
    ]


def test_litellm_ids_differ() -> None:
    """A target of two routes has an id for each; the others have their name as id."""
    ids = [one["model_info"]["id"] for one in deployments(CHAT, VOICE)]
    assert ids == [
        "deepseek/deepseek-v4-flash",
        "qwen/qwen3-32b@chat",
        "groq/llama-3.3-70b-versatile",
        "qwen/qwen3-32b@voice",
    ]


@pytest.mark.parametrize(
    ("dialect", "model", "base"),
    [
        ("openai-chat", "openai/m", "https://x.example/v1"),
        ("openai-responses", "openai/responses/m", "https://x.example/v1"),
        ("anthropic", "anthropic/m", "https://x.example/v1"),
        ("gemini", "gemini/m", "https://x.example/v1"),
        ("cohere", "cohere/m", "https://x.example/v1/chat"),
    ],
)
def test_litellm_knows_each_dialect(dialect: str, model: str, base: str) -> None:
    """A member's dialect becomes LiteLLM's provider prefix."""
    entry = replace(CHAT.entries[0], dialect=dialect, model="m", base_url="https://x.example/v1")
    params = deployments(replace(CHAT, entries=(entry,)))[0]["litellm_params"]
    assert (params["model"], params["api_base"]) == (model, base)


def test_portkey_falls_back_behind_those_who_carry_traffic() -> None:
    """A route is a fallback from a balanced group to each other member; keys are placeholders."""
    (config,) = json.loads(text_of("portkey", CHAT))["targets"]
    assert config["strategy"]["mode"] == "fallback"
    group, *again, waiting = config["targets"]
    assert [one["override_params"]["model"] for one in again] == ["qwen3-32b", "deepseek-v4-flash"]
    assert [(one["weight"], one["api_key"]) for one in group["targets"]] == [
        (0.75, "{{KEY:deepseek}}"),
        (0.25, "{{KEY:qwen}}"),
    ]
    assert waiting["override_params"] == {"model": "llama-3.3-70b-versatile"}
    assert "weight" not in waiting
    assert waiting["api_key"] == "none"


@pytest.mark.parametrize("tables", [(CHAT,), (CHAT, VOICE)])
def test_portkey_chooses_among_routes_by_model(tables: tuple[RouteTable, ...]) -> None:
    """Each route has a condition on the model or the metadata of the request, and a target; also a single route."""
    config = json.loads(text_of("portkey", *tables))
    names = [table.route for table in tables]
    assert [one["query"]["$or"] for one in config["strategy"]["conditions"]] == [
        [{"params.model": {"$eq": name}}, {"metadata.route": {"$eq": name}}] for name in names
    ]
    assert [target["name"] for target in config["targets"]] == names


def test_portkey_fits_a_header() -> None:
    """A config is ASCII; one that is too large for a header is refused with a hint."""
    assert text_of("portkey", replace(CHAT, route="ü")).isascii()
    many = [replace(CHAT, route=f"route-{number}") for number in range(20)]
    with pytest.raises(ClientError, match=str(MAX_BYTES)) as caught:
        text_of("portkey", *many)
    assert "--route" in caught.value.hint


def test_envoy_takes_two_files() -> None:
    """Routes and clusters are one response each, of the same version."""
    routes, clusters = (json.loads(text_of("envoy", CHAT, VOICE, part=part)) for part in ("", CLUSTERS))
    assert routes["version_info"] == clusters["version_info"] == "48"
    assert [one["name"] for one in routes["resources"]] == ["isochrone"]
    assert len(clusters["resources"]) > 1


@pytest.mark.parametrize(
    "value",
    [
        {
            "a": 1,
            "no": True,
            "list": [{"x": "y: z", "deep": {"q": None}}, {"x": "# no comment"}],
            "empty": [],
            "void": {},
        },
        {"text": "line\nbreak", "yes": "yes", "number": "12", "quote": '"', "umlaut": "ä", "plain": [1, 2.5, "three"]},
    ],
)
def test_yaml_round_trip(value: dict[str, Any]) -> None:
    """Plain data survives a round trip, below any comment."""
    assert yaml.safe_load(dump_yaml(value, comment=["a: b", "---"])) == value


def test_only_templates_are_templates() -> None:
    """Text that looks like a template of decK stays text, in values, keys and comments; a template keeps its quotes."""
    value = {"plain": '${{ env "A" }}', "${{ key": 1, "made": Template("""it's ${{ env "B" }}""")}
    text = dump_yaml(value, comment=['${{ env "C" }}'])
    assert text.count("${{") == 1
    assert yaml.safe_load(text) == value


@pytest.mark.parametrize("kind", FORMATS)
def test_the_metadata_of_an_export_can_be_read(kind: str) -> None:
    """Each format is read back as the route, generation, state and instants of each table."""
    found = {row["route"]: row for row in metadata_reader(kind)(text_of(kind, CHAT, VOICE))}
    assert set(found) == {"chat", "voice"}
    for table in (CHAT, VOICE):
        row = found[table.route]
        assert (int(row["generation"]), row["state"]) == (table.generation, table.state.value)
        assert row["fresh_until_at"] == rfc3339(table.fresh_until_at)
        assert row["stale_until_at"] == rfc3339(table.stale_until_at)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_static_order_is_an_export(kind: str) -> None:
    """Every format can render the static order, with its state."""
    static = as_static_order(CHAT, {entry.target: entry for entry in CHAT.entries})
    (row, *_) = metadata_reader(kind)(text_of(kind, static))
    assert row["state"] == "insufficient_data"
