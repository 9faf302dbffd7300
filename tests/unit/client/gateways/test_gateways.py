"""Route tables in the words of gateways: what is in the files, and what must never be."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from isochrone_client.errors import ClientError
from isochrone_client.gateways import FORMATS, renderer
from isochrone_client.gateways.envoy import CLUSTERS
from isochrone_client.gateways.litellm import dump_yaml
from isochrone_client.gateways.members import key_variable
from isochrone_client.gateways.portkey import MAX_BYTES
from isochrone_wire.routes import RegionTables, RouteTable
from testdata.routes import CHAT, NOW_AT, VOICE

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
    """One route is a fallback from a balanced group to each other member; keys are placeholders."""
    config = json.loads(text_of("portkey", CHAT))
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


def test_portkey_chooses_among_routes_by_metadata() -> None:
    """Several routes are conditions, each with an existing target."""
    config = json.loads(text_of("portkey", CHAT, VOICE))
    assert [one["query"] for one in config["strategy"]["conditions"]] == [
        {"metadata.route": {"$eq": "chat"}},
        {"metadata.route": {"$eq": "voice"}},
    ]
    assert [target["name"] for target in config["targets"]] == ["chat", "voice"]


def test_portkey_fits_a_header() -> None:
    """A config that is too large for a header is refused with a hint."""
    many = [replace(CHAT, route=f"route-{number}") for number in range(20)]
    with pytest.raises(ClientError, match=str(MAX_BYTES)) as caught:
        text_of("portkey", *many)
    assert "--route" in caught.value.hint


def envoy(*tables: RouteTable) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The routes, and the clusters by name."""
    routes, clusters = (json.loads(text_of("envoy", *tables, part=part)) for part in ("", CLUSTERS))
    assert routes["version_info"] == clusters["version_info"] == "48"
    found = routes["resources"][0]["virtual_hosts"][0]["routes"]
    return found, {cluster["name"]: cluster for cluster in clusters["resources"]}


@pytest.mark.parametrize("weights", [(0.75, 0.25), (1 / 3, 1 / 3), (0.000001, 0.0), (0.0, 0.0), (1.0, 0.0)])
def test_envoy_weights_are_whole_and_more_than_nothing(weights: tuple[float, float]) -> None:
    """Weights add up to 10 000 for any table and refer to existing clusters."""
    entries = tuple(
        replace(entry, weight=weight, base_url="https://x.example/v1")
        for entry, weight in zip(CHAT.entries, weights, strict=False)
    )
    (route,), clusters = envoy(replace(CHAT, entries=entries))
    parts = route["route"]["weighted_clusters"]["clusters"]
    assert sum(part["weight"] for part in parts) == 10_000
    assert all(isinstance(part["weight"], int) and part["weight"] >= 0 for part in parts)
    assert {part["name"] for part in parts} <= clusters.keys()


def test_envoy_leaves_out_whom_another_path_leads_to() -> None:
    """A request has one path: members whose base URL has a different path from the first one's are left out."""
    _, clusters = envoy(CHAT)
    assert set(clusters) == {"deepseek/deepseek-v4-flash", "chat: deepseek/deepseek-v4-flash first"}


def test_envoy_verifies_the_hosts_certificate() -> None:
    """TLS has the host name, and the certificate must match it and be signed by a trusted CA."""
    _, clusters = envoy(CHAT)
    tls = clusters["deepseek/deepseek-v4-flash"]["transport_socket"]["typed_config"]
    assert tls["sni"] == "api.deepseek.example"
    validation = tls["common_tls_context"]["validation_context"]
    assert validation["match_typed_subject_alt_names"][0]["matcher"] == {"exact": "api.deepseek.example"}
    assert validation["trusted_ca"]["filename"]


def test_envoy_hedges_only_where_the_table_does() -> None:
    """The hedge delay of the table is the timeout of a try; without one there are only retries."""
    same = tuple(replace(entry, base_url="https://x.example/v1", credential_ref=None) for entry in CHAT.entries)
    (hedged,), _ = envoy(replace(CHAT, entries=same))
    assert hedged["route"]["retry_policy"]["per_try_timeout"] == "0.241000s"
    assert hedged["route"]["hedge_policy"] == {"hedge_on_per_try_timeout": True}
    (plain,), _ = envoy(replace(CHAT, entries=(replace(same[0], hedge=None), *same[1:])))
    assert "per_try_timeout" not in plain["route"]["retry_policy"]
    assert "hedge_policy" not in plain["route"]


@pytest.mark.parametrize(
    ("name", "variable"), [("deepseek", "DEEPSEEK_API_KEY"), ("azure-sweden.2", "AZURE_SWEDEN_2_API_KEY")]
)
def test_variables_of_keys(name: str, variable: str) -> None:
    """The name of a credential becomes a valid environment variable."""
    assert key_variable(name) == variable


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
