"""Route tables as files of gateways: what is in them, and what never. Those for Kong, Cloudflare and OpenRouter,
which cannot run here, keep the schemas of their documentation.
"""

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from isochrone_client.errors import ClientError
from isochrone_client.gateways import FORMATS, gateway
from isochrone_client.gateways.envoy import CLUSTERS
from isochrone_client.gateways.expressible import identifier
from isochrone_client.gateways.portkey import MAX_BYTES
from isochrone_client.gateways.yaml_text import Template, dump_yaml
from isochrone_common.route_consumer import as_static_order
from isochrone_wire.json_format import rfc3339
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable
from testdata import routes
from testdata.insights import NOW_AT
from testdata.routes import at_public_addresses

SCHEMAS = Path(__file__).parents[3] / "testdata" / "gateway_schemas"
KINDS = ("kong", "cloudflare", "openrouter")
CHAT, VOICE = at_public_addresses(routes.CHAT), at_public_addresses(routes.VOICE)
MEMBER = replace(CHAT.entries[0], hedge=None)
ADDRESSES = {
    "openai-chat": "https://api.openai.com/v1",
    "openai-responses": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
    "cohere": "https://api.cohere.com/v2",
}
ELSEWHERE = "https://models.example/v1"
# Names that a plan may have, with what is special in YAML, JSON, templates of decK, paths and headers.
NAMES = ("chat/fast", 'a "b" \\ c', "ü — 漢字", "${{ env `HOME` }}", "#: - {x}", "~*", "yes", "x" * 200)


@cache
def validator(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{kind}.json").read_text()))


def member(target: str, weight: float, **changes: Any) -> RouteEntry:
    return replace(MEMBER, target=target, weight=weight, **changes)


def table_of(*entries: RouteEntry, **changes: Any) -> RouteTable:
    return replace(CHAT, entries=entries, race=None, **changes)


def text_of(kind: str, *tables: RouteTable) -> str:
    (text,) = gateway(kind).render(region(*tables)).values()
    return str(text)


def exported(kind: str, *tables: RouteTable) -> dict[str, Any]:
    """The export as a document that keeps the schema. For Kong, decK has replaced the keys by then."""
    text = text_of(kind, *tables)
    document: dict[str, Any] = yaml.safe_load(with_keys(text)) if kind == "kong" else json.loads(text)
    validator(kind).validate(document)
    return document


def with_keys(text: str) -> str:
    """What decK reads: its templates are replaced in the text, before that is YAML."""
    found = re.sub(r'\$\{\{ env "(DECK_[A-Z0-9_]+)" \}\}', r"the value of \1", text)
    assert "${{" not in found
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_several_routes(kind: str) -> None:
    """Routes with and without a hedge, with several and with one weighted member, keep the schema."""
    exported(kind, CHAT, VOICE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_static_order(kind: str) -> None:
    """A static order, which has no measurements, no hedge and no race, keeps the schema."""
    static = as_static_order(CHAT, {entry.target: entry for entry in CHAT.entries})
    exported(kind, static)
    (row,) = gateway(kind).read_metadata(text_of(kind, static))
    assert row["state"] == "insufficient_data"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_any_name(kind: str, name: str) -> None:
    """Whatever the names of a route, its members, models and keys contain, the export keeps the schema."""
    entry = member(name, 1.0, provider=name, model=name, credential_ref=name)
    exported(kind, table_of(entry, route=name), table_of(entry))


@pytest.mark.parametrize("kind", KINDS)
@given(weights=st.lists(st.integers(0, 1000), min_size=1, max_size=6).filter(any))
def test_any_weights(kind: str, weights: list[int]) -> None:
    """Whatever the weights are, the export keeps the schema."""
    entries = (member(str(place), weight / sum(weights)) for place, weight in enumerate(weights))
    exported(kind, table_of(*entries))


@pytest.mark.parametrize(
    ("kind", "dialects"),
    [
        ("kong", ADDRESSES),
        ("cloudflare", {name: url for name, url in ADDRESSES.items() if name != "openai-responses"}),
        ("openrouter", ADDRESSES),
    ],
)
def test_each_dialect_at_its_vendor(kind: str, dialects: Mapping[str, str]) -> None:
    """A member of each dialect, at the address of its vendor, is in the export."""
    for dialect, address in dialects.items():
        exported(kind, table_of(member("a", 1.0, dialect=dialect, base_url=address)))


@pytest.mark.parametrize(
    ("kind", "dialect", "address"),
    [
        ("kong", "gemini", ELSEWHERE),
        ("kong", "cohere", ELSEWHERE),
        ("cloudflare", "openai-chat", ELSEWHERE),
        ("cloudflare", "openai-responses", ADDRESSES["openai-responses"]),
        ("openrouter", "openai-chat", ELSEWHERE),
    ],
)
def test_a_member_that_cannot_be_expressed(kind: str, dialect: str, address: str) -> None:
    """It is left out and named, the route goes on with the others; without any route that is an error with a hint."""
    stranger = member("stranger", 1.0, dialect=dialect, base_url=address)
    other = member("other", 0.0, base_url="https://api.groq.com/openai/v1")
    tables = (table_of(stranger, other), table_of(stranger, route="lost"))
    text = text_of(kind, *tables)
    assert "stranger" in text
    assert {row["route"] for row in gateway(kind).read_metadata(text)} == {"chat", "lost"}
    assert len(list(routes_of(kind, *tables))) == 1
    with pytest.raises(ClientError, match="can call no member of chat") as caught:
        text_of(kind, table_of(stranger))
    assert caught.value.hint


@pytest.mark.parametrize("kind", [*KINDS, "litellm", "portkey"])
def test_a_base_url_with_a_query_cannot_be_expressed(kind: str) -> None:
    """The gateways drop the query or append the path to it, so that the member is left out and named."""
    queried = member("queried", 1.0, base_url=f"{ADDRESSES['openai-chat']}?api-version=1")
    text = text_of(kind, table_of(queried, member("other", 0.0, base_url="https://api.groq.com/openai/v1")))
    assert "api-version" not in text
    assert "is without queried." in text or json.loads(text)["isochrone"][0]["left_out"] == ["queried"]
    with pytest.raises(ClientError, match="can call no member of chat") as caught:
        text_of(kind, table_of(queried))
    assert caught.value.hint


def routes_of(kind: str, *tables: RouteTable) -> Iterator[Any]:
    document = exported(kind, *tables)
    yield from document["services"][0]["routes"] if kind == "kong" else document["routes"]


# Kong


def kong(table: RouteTable) -> dict[str, Any]:
    ((_, proxy),) = (route["plugins"] for route in exported("kong", table)["services"][0]["routes"])
    config: dict[str, Any] = proxy["config"]
    return config


def test_kong_splits_the_traffic_by_weight() -> None:
    """Weighted members take turns by weight, the least for none; if one has all, each has a priority by rank."""
    config = kong(CHAT)
    assert config["balancer"]["algorithm"] == "round-robin"
    assert [target["weight"] for target in config["targets"]] == [7500, 2500, 1]
    config = kong(table_of(member("a", 0.0), member("b", 1.0), member("c", 0.0)))
    assert config["balancer"]["algorithm"] == "priority"
    assert [target["weight"] for target in config["targets"]] == [3, 2, 1]


def test_kong_fails_over() -> None:
    """Failing requests are repeated with another target; the header names the route, and no model is sent."""
    balancer = kong(CHAT)["balancer"]
    assert {"error", "http_429", "http_500", "http_503", "non_idempotent"} <= set(balancer["failover_criteria"])
    assert balancer["retries"] >= 2
    (route,) = exported("kong", CHAT)["services"][0]["routes"]
    assert route["headers"] == {"x-isochrone-route": ["chat"]}
    assert route["plugins"][0]["config"] == {"remove": {"body": ["model"]}}


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("openai-chat", ("openai", "llm/v1/chat", "https://api.openai.com/v1/chat/completions", "Bearer ")),
        ("openai-responses", ("openai", "llm/v1/responses", "https://api.openai.com/v1/responses", "Bearer ")),
        ("anthropic", ("anthropic", "llm/v1/chat", "https://api.anthropic.com/v1/messages", "")),
        ("cohere", ("cohere", "llm/v1/chat", None, "Bearer ")),
    ],
)
def test_kong_knows_each_dialect(dialect: str, expected: tuple[str, str, str | None, str]) -> None:
    """Provider, operation and address are those of the dialect, and the key is a variable of decK's environment."""
    provider, route_type, url, scheme = expected
    (target,) = kong(table_of(member("a", 1.0, dialect=dialect, base_url=ADDRESSES[dialect])))["targets"]
    assert (target["model"]["provider"], target["route_type"]) == (provider, route_type)
    assert target["model"].get("options", {}).get("upstream_url") == url
    assert target["auth"]["header_value"] == f"{scheme}the value of DECK_DEEPSEEK_API_KEY"


def test_kong_sends_the_key_of_gemini_as_a_parameter() -> None:
    """Gemini's key is a parameter of the query."""
    (target,) = kong(table_of(member("a", 1.0, dialect="gemini", base_url=ADDRESSES["gemini"])))["targets"]
    assert target["auth"] == {
        "param_name": "key",
        "param_location": "query",
        "param_value": "the value of DECK_DEEPSEEK_API_KEY",
    }


def test_kong_has_one_operation_per_route() -> None:
    """Members with another operation than the first one are left out; without a credential no key is sent."""
    table = table_of(member("a", 1.0), member("b", 0.0, dialect="openai-responses"), member("c", 0.0))
    assert len(kong(table)["targets"]) == 2
    assert "# chat is without b." in text_of("kong", table)
    (target,) = kong(table_of(member("a", 1.0, credential_ref=None)))["targets"]
    assert "auth" not in target


# Cloudflare


def shares(table: RouteTable) -> dict[tuple[str, ...], float]:
    """The share of the traffic of each order of attempts, from a walk through the graph from its start to its ends."""
    (route,) = exported("cloudflare", table)["routes"]
    elements = {element["id"]: element for element in route["elements"]}
    assert len(elements) == len(route["elements"])
    found: defaultdict[tuple[str, ...], float] = defaultdict(float)
    seen = set()

    def walk(place: str, share: float, tried: tuple[str, ...]) -> None:
        seen.add(place)
        assert len(tried) <= len(table.entries), "a circle"
        outputs = {name: output["elementId"] for name, output in elements[place]["outputs"].items()}
        if elements[place]["type"] == "percentage":
            named = {name: int(name[:-1]) / 100 for name in outputs if name != "else"}
            for name, part in {**named, "else": 1 - sum(named.values())}.items():
                walk(outputs[name], share * part, tried)
        elif elements[place]["type"] == "model":
            assert elements[outputs["success"]]["type"] == "end"
            walk(outputs["fallback"], share, (*tried, elements[place]["properties"]["model"]))
        elif elements[place]["type"] == "start":
            walk(outputs["next"], share, tried)
        else:
            found[tried] += share

    walk("start", 1.0, ())
    assert seen == set(elements), "an element that no request reaches"
    return found


def test_cloudflare_draws_by_weight_and_tries_each_member_once() -> None:
    """Each weighted member is drawn with its weight; the others follow by rank, and no request tries one twice."""
    entries = [member(name, weight, model=name) for name, weight in (("a", 0.5), ("b", 0.25), ("c", 0.25), ("d", 0.0))]
    assert shares(table_of(*entries)) == {
        ("a", "b", "c", "d"): pytest.approx(0.5),
        ("b", "a", "c", "d"): pytest.approx(0.25),
        ("c", "a", "b", "d"): pytest.approx(0.25),
    }


@given(weights=st.lists(st.integers(0, 1000), min_size=1, max_size=6).filter(any))
def test_cloudflare_keeps_the_weights(weights: list[int]) -> None:
    """Each member is drawn by its weight to less than a point per member, and none is missing in an order."""
    entries = [member(str(at), weight / sum(weights), model=str(at)) for at, weight in enumerate(weights)]
    found = shares(table_of(*entries))
    assert all(set(order) == {entry.model for entry in entries} for order in found)
    drawn = {order[0]: share for order, share in found.items()}
    assert drawn == {
        entry.model: pytest.approx(entry.weight, abs=0.01 * len(weights))
        for entry in entries
        if entry.weight or entry.model in drawn
    }


# OpenRouter


def fields(table: RouteTable) -> dict[str, Any]:
    found: dict[str, Any] = exported("openrouter", table)["routes"]["chat"]
    return found


def test_openrouter_tries_providers_in_order() -> None:
    """The provider with the largest weight is the first, members without a weight are the last; no other is used."""
    table = table_of(
        member("a", 0.25, base_url="https://api.groq.com/openai/v1"),
        member("b", 0.75, base_url="https://api.deepinfra.com/v1/openai"),
        member("c", 0.0, base_url="https://api.together.xyz/v1"),
        member("d", 0.0, base_url="https://api.groq.com/openai/v1"),
    )
    assert fields(table) == {"provider": {"order": ["deepinfra", "groq", "together"], "allow_fallbacks": False}}


def test_openrouter_tries_models_that_were_measured_through_it() -> None:
    """If members are at OpenRouter's own address, the best three are its `models`; members elsewhere are left out."""
    own = [
        member(name, weight, model=f"vendor/{name}", base_url="https://openrouter.ai/api/v1")
        for name, weight in (("a", 0.0), ("b", 1.0), ("c", 0.0), ("d", 0.0))
    ]
    table = table_of(member("z", 0.0), *own)
    assert fields(table) == {"models": ["vendor/b", "vendor/a", "vendor/c"]}
    (row,) = json.loads(text_of("openrouter", table))["isochrone"]
    assert row["left_out"] == ["z", "d"]


@pytest.mark.parametrize("name", ["chat", "gpt-4.1_x"])
def test_plain_names_stay(name: str) -> None:
    """A name with letters, digits, `.`, `_` and `-` is an identifier."""
    assert identifier(name) == name


@given(st.lists(st.text(min_size=1), min_size=2, max_size=5, unique=True))
def test_identifiers_differ(names: list[str]) -> None:
    """Different names have different identifiers, of the allowed characters."""
    found = {identifier(name) for name in names}
    assert len(found) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", one) for one in found)


FRESH, STALE = "2026-11-21T08:09:48.000000Z", "2026-11-21T08:29:48.000000Z"


def region(*tables: RouteTable) -> RegionTables:
    return RegionTables(client_region="us-east-2", generation=48, etag="48-e", answered_at=NOW_AT, tables=tables)


def part_of(kind: str, *tables: RouteTable, part: str = "") -> str:
    return str(gateway(kind).render(region(*tables))[part])


@pytest.mark.parametrize("kind", FORMATS)
def test_every_export_says_how_long_it_may_be_used(kind: str) -> None:
    """Each main file has the generation and the instants `fresh_until` and `stale_until`."""
    text = part_of(kind, CHAT)
    assert "48" in text
    assert FRESH in text
    assert STALE in text


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_tables_give_the_same_bytes(kind: str) -> None:
    """An export depends on the tables only, so that a file changes only with them."""
    again = replace(region(CHAT, VOICE), answered_at=NOW_AT + 1)
    assert gateway(kind).render(again) == gateway(kind).render(region(CHAT, VOICE))


def test_json_is_the_whole_table() -> None:
    """The JSON has every field of the wire; each line of CSV has the generation of its table."""
    document = json.loads(part_of("json", CHAT))
    assert document["client_region"] == "us-east-2"
    assert document["tables"][0]["entries"][0]["hedge"]["delay_us"] == 241_000
    assert "answered_at" not in document
    rows = list(csv.DictReader(io.StringIO(part_of("csv", CHAT, VOICE))))
    assert [(row["generation"], row["rank"]) for row in rows] == [("48", "1"), ("48", "2"), ("48", "3"), ("47", "1")]


def deployments(*tables: RouteTable) -> list[dict[str, Any]]:
    loaded: dict[str, Any] = yaml.safe_load(part_of("litellm", *tables))
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
    (config,) = json.loads(part_of("portkey", CHAT))["targets"]
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
    config = json.loads(part_of("portkey", *tables))
    names = [table.route for table in tables]
    assert [one["query"]["$or"] for one in config["strategy"]["conditions"]] == [
        [{"params.model": {"$eq": name}}, {"metadata.route": {"$eq": name}}] for name in names
    ]
    assert [target["name"] for target in config["targets"]] == names


def test_portkey_fits_a_header() -> None:
    """A config is ASCII; one that is too large for a header is refused with a hint."""
    assert part_of("portkey", replace(CHAT, route="ü")).isascii()
    many = [replace(CHAT, route=f"route-{number}") for number in range(20)]
    with pytest.raises(ClientError, match=str(MAX_BYTES)) as caught:
        part_of("portkey", *many)
    assert "--route" in caught.value.hint


def test_envoy_takes_two_files() -> None:
    """Routes and clusters are one response each, of the same version."""
    routes, clusters = (json.loads(part_of("envoy", CHAT, VOICE, part=part)) for part in ("", CLUSTERS))
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
    found = {row["route"]: row for row in gateway(kind).read_metadata(part_of(kind, CHAT, VOICE))}
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
    (row, *_) = gateway(kind).read_metadata(part_of(kind, static))
    assert row["state"] == "insufficient_data"
