"""Consumers of route tables: tables in use, refused tables, and Envoy; most laws are cases of `clients/cases.json`."""

from dataclasses import replace
from typing import Any

import pytest

from fixtures.fake_collector import TARGETS
from isochrone_common.envoy import clusters, route_configuration
from isochrone_common.route_consumer import (
    CLEARLY_LATER_US,
    FollowedTables,
    Relation,
    TableCursor,
    as_static_order,
    defect,
    endpoint,
    key_variable,
    routing_of,
)
from isochrone_wire.durations import DAY_US
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RegionTables, RouteState, RouteTable
from testdata.insights import NOW_AT
from testdata.routes import CHAT, TABLES, UNKNOWN_YET, VOICE

MOVE_US = 100 * SECOND_US


def switched(generation: int) -> RouteTable:
    first, second, *others = CHAT.entries
    entries = (replace(first, weight=second.weight), replace(second, weight=first.weight), *others)
    return replace(CHAT, generation=generation, built_at=NOW_AT, entries=entries, move_within_us=MOVE_US)


def test_the_next_change_is_that_of_the_waiting_table() -> None:
    """With a share of 0.3 of 100 s, a switch is applied 30 s after it was built."""
    tables = FollowedTables(share=0.3)
    tables.receive(CHAT)
    tables.receive(switched(50))
    assert tables.next_change_at(NOW_AT) == NOW_AT + 30 * SECOND_US
    assert [table.generation for table in tables.at(NOW_AT + 30 * SECOND_US)] == [50]


def test_an_expired_table_gives_way_to_the_static_order() -> None:
    """At `stale_until_at` the members follow in the static order, the first one with all the weight."""
    tables = FollowedTables(share=0.0)
    tables.receive(CHAT)
    assert tables.next_change_at(NOW_AT) == CHAT.stale_until_at
    (before,) = tables.at(CHAT.stale_until_at - 1)
    (after,) = tables.at(CHAT.stale_until_at)
    assert before is CHAT
    assert [(entry.rank, entry.target, entry.weight) for entry in after.entries] == [
        (1, "deepseek/deepseek-v4-flash", 1.0),
        (2, "qwen/qwen3-32b", 0.0),
    ]
    assert after.entries[1].base_url == CHAT.entries[1].base_url
    assert all(entry.hedge is None and entry.ttft_p50_us is None for entry in after.entries)
    assert (after.state, after.generation) == (RouteState.INSUFFICIENT_DATA, 48)
    assert after.stale_until_at == CHAT.stale_until_at


def test_the_static_order_takes_endpoints_from_the_plan() -> None:
    """The static order takes endpoints from the plan; a removed route is not in the file."""
    tables = FollowedTables(share=0.0)
    planned = TARGETS.targets[1]
    name = planned.name
    tables.receive(replace(UNKNOWN_YET, static_order=("unknown/one", name)))
    assert tables.at(NOW_AT) == ()
    tables.endpoints |= {name: endpoint(planned)}
    ((entry,),) = [table.entries for table in tables.at(NOW_AT)]
    assert (entry.target, entry.base_url, entry.weight) == (name, planned.base_url, 1.0)
    tables = FollowedTables(share=0.0)
    tables.receive(CHAT)
    tables.receive(VOICE)
    tables.keep_only(["chat"])
    assert [table.route for table in tables.at(NOW_AT)] == ["chat"]


@pytest.mark.parametrize(
    ("later", "is_same"),
    [
        (replace(CHAT, generation=49, stale_until_at=CHAT.stale_until_at + 1), True),
        (replace(CHAT, entries=tuple(replace(entry, n=400, cost=1.0) for entry in CHAT.entries)), True),
        (switched(49), False),
        (replace(CHAT, entries=CHAT.entries[:2]), False),
        (replace(CHAT, entries=(replace(CHAT.entries[0], hedge=None), *CHAT.entries[1:])), False),
    ],
)
def test_only_another_routing_runs_the_command(later: RouteTable, *, is_same: bool) -> None:
    """New numbers are the same routing; other members, weights or hedge targets are not."""
    assert (routing_of([later]) == routing_of([CHAT])) is is_same


def built(generation: int, seconds: float = 0.0) -> RouteTable:
    return replace(CHAT, generation=generation, built_at=NOW_AT + round(seconds * SECOND_US))


LATER_S = CLEARLY_LATER_US / SECOND_US + 1


@pytest.mark.parametrize(
    ("seen", "received", "relation"),
    [
        ([], built(1), Relation.NEWER),
        ([built(105)], built(105, LATER_S), Relation.OTHER_DATABASE),
        # The former leader's clock was far ahead of the present one's: its tables are still older.
        ([built(104, 300), built(105)], built(104, 300), Relation.OLDER),
        ([built(104, 300), built(105)], built(3, 300 + LATER_S), Relation.OTHER_DATABASE),
    ],
)
def test_a_lower_generation_built_clearly_later_is_of_another_database(
    seen: list[RouteTable], received: RouteTable, relation: Relation
) -> None:
    """A lower generation is an older table unless it was built clearly later than every table seen."""
    cursor = TableCursor()
    for one in seen:
        cursor = cursor.advance(one)
    assert cursor.compare(received) is relation


def test_a_generation_without_a_table_gives_way_to_the_collectors_tables() -> None:
    """If no table of the given generation was seen, a lower generation means another database."""
    cursor = TableCursor(generation=9999)
    assert cursor.compare(built(105)) is Relation.OTHER_DATABASE
    assert cursor.compare(built(10_000)) is Relation.NEWER


FIRST, *OTHERS = CHAT.entries


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.client_region}-{table.route}")
def test_tables_of_a_collector_are_sound(table: RouteTable) -> None:
    """Whatever a collector publishes passes, also without members, and so does a static order."""
    assert defect(table) == ""
    assert defect(as_static_order(table, {entry.target: entry for entry in CHAT.entries})) == ""


def with_first(**changes: Any) -> RouteTable:
    return replace(CHAT, entries=(replace(FIRST, **changes), *OTHERS))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (with_first(target=OTHERS[0].target), "several entries"),
        (with_first(base_url="javascript:alert(1)"), "base URL"),
        (with_first(base_url=""), "base URL"),
        (with_first(dialect="smoke-signals"), "unknown dialect 'smoke-signals'"),
        (with_first(weight=float("nan")), "weights"),
        (with_first(weight=float("inf")), "weights"),
        (with_first(weight=-0.75), "weights"),
        (with_first(weight=0.7), "weights"),
        (replace(CHAT, unassigned=0.5), "unassigned"),
        (replace(CHAT, move_within_us=DAY_US), "move_within_us"),
        (replace(CHAT, move_within_us=-1), "move_within_us"),
    ],
)
def test_garbage_is_named(table: RouteTable, sentence: str) -> None:
    """Anything that would send traffic astray, or delay it for hours, is a defect with a sentence."""
    assert sentence in defect(table)


def envoy(*tables: RouteTable) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    region = RegionTables(client_region="us-east-2", generation=48, etag="48-e", answered_at=NOW_AT, tables=tables)
    routes = route_configuration(region)["virtual_hosts"][0]["routes"]
    return routes, {cluster["name"]: cluster for cluster in clusters(region)}


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


def test_members_take_the_same_requests() -> None:
    """Members of another dialect are left out; another path, key or model (but in Gemini's path) is no obstacle."""
    first, second, third = CHAT.entries
    _, clusters = envoy(replace(CHAT, entries=(first, second, replace(third, dialect="anthropic"))))
    assert set(clusters) == {
        *(entry.target for entry in (first, second)),
        *(f"chat: {entry.target} first" for entry in (first, second)),
    }
    # Requests to Gemini have the model in their path, which stays as it is.
    entries = tuple(
        replace(entry, dialect="gemini", model=model) for entry, model in zip(CHAT.entries, "aab", strict=True)
    )
    _, clusters = envoy(replace(CHAT, entries=entries))
    assert len([name for name in clusters if name.endswith(" first")]) == 2


def test_a_caller_s_key_stays_apart() -> None:
    """A member without a credential, which receives the caller's key, is no fallback of one with a credential."""
    keyed, other, keyless = CHAT.entries
    assert (keyed.credential_ref, other.credential_ref, keyless.credential_ref) == ("deepseek", "qwen", None)
    _, clusters = envoy(CHAT)
    tried = {
        name: cluster["cluster_type"]["typed_config"]["clusters"]
        for name, cluster in clusters.items()
        if "cluster_type" in cluster
    }
    assert tried == {
        f"chat: {keyed.target} first": [keyed.target, other.target],
        f"chat: {other.target} first": [other.target, keyed.target],
        f"chat: {keyless.target} first": [keyless.target],
    }


def test_no_key_is_in_a_resource() -> None:
    """No key is in a resource; TLS verifies the host's name by a trusted CA."""
    assert key_variable("azure-sweden.2") == "AZURE_SWEDEN_2_API_KEY"
    _, clusters = envoy(replace(CHAT, entries=(replace(CHAT.entries[0], dialect="anthropic"),)))
    (group,) = clusters[CHAT.entries[0].target]["load_assignment"]["endpoints"]
    assert group["lb_endpoints"][0]["metadata"]["filter_metadata"]["isochrone"] == {
        "base": "/v1",
        "query": "",
        "variable": "DEEPSEEK_API_KEY",
        "key": "x-api-key",
        "model": '"deepseek-v4-flash"',
    }
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
