"""Route tables as resources of Envoy."""

from dataclasses import replace
from typing import Any

import pytest

from isochrone_common.envoy import clusters, route_configuration
from isochrone_wire.routes import RegionTables, RouteTable
from testdata.routes import CHAT, NOW_AT


def envoy(*tables: RouteTable) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The routes, and the clusters by name."""
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
    """Members that speak another dialect than the first one are left out; another path, key or model is no obstacle."""
    first, second, third = CHAT.entries
    _, clusters = envoy(replace(CHAT, entries=(first, second, replace(third, dialect="anthropic"))))
    assert set(clusters) == {
        *(entry.target for entry in (first, second)),
        *(f"chat: {entry.target} first" for entry in (first, second)),
    }


def test_a_model_in_the_path_is_the_same_for_all() -> None:
    """Requests to Gemini have the model in their path, which stays as it is."""
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
    """Members have the name of the variable with their key, and the header that it belongs in."""
    _, clusters = envoy(replace(CHAT, entries=(replace(CHAT.entries[0], dialect="anthropic"),)))
    (group,) = clusters[CHAT.entries[0].target]["load_assignment"]["endpoints"]
    assert group["lb_endpoints"][0]["metadata"]["filter_metadata"]["isochrone"] == {
        "base": "/v1",
        "variable": "DEEPSEEK_API_KEY",
        "key": "x-api-key",
        "model": '"deepseek-v4-flash"',
    }


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
