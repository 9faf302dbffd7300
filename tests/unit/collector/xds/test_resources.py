"""Resources of a region: their versions, the clusters that stay for a while, and what is never sent."""

from dataclasses import replace

import pytest

from isochrone_collector.errors import UnknownName
from isochrone_collector.xds.resources import CLUSTERS, LINGER_US, ROUTES, Snapshot, resources_of, snapshot, version_of
from isochrone_wire.routes import RouteTable
from testdata.routes import CHAT, NOW_AT, VOICE

SAME_PATH = replace(
    CHAT, entries=tuple(replace(entry, base_url="https://x.example/v1", credential_ref=None) for entry in CHAT.entries)
)
NAMES = [entry.target for entry in SAME_PATH.entries]


def made(*tables: RouteTable, before: Snapshot | None = None, now_at: int = NOW_AT) -> Snapshot:
    return snapshot(resources_of("us-east-2", tables), before, now_at=now_at)


def versions(found: Snapshot) -> tuple[str, str]:
    return version_of(found.select(CLUSTERS, None)), version_of(found.select(ROUTES, None))


def test_equal_tables_have_equal_versions() -> None:
    """Versions depend on the content only, so that collectors agree and a later answer changes nothing."""
    assert versions(made(SAME_PATH, VOICE)) == versions(made(SAME_PATH, VOICE, now_at=NOW_AT + 1))


def test_new_weights_need_no_new_cluster() -> None:
    """After a switch the routes refer to clusters that Envoy has, in whatever order it receives the two."""
    reversed_weights = [entry.weight for entry in SAME_PATH.entries][::-1]
    entries = tuple(
        replace(entry, weight=weight) for entry, weight in zip(SAME_PATH.entries, reversed_weights, strict=True)
    )
    before, after = made(SAME_PATH), made(replace(SAME_PATH, entries=entries))
    assert versions(before)[1] != versions(after)[1]
    assert set(before.clusters) == set(after.clusters)


def test_every_route_has_its_clusters() -> None:
    """Each cluster that a route refers to, and each one that an aggregate cluster refers to, is a resource."""
    found = made(SAME_PATH, VOICE)
    (configuration,) = found.routes.values()
    for route in configuration.document["virtual_hosts"][0]["routes"]:
        for part in route["route"]["weighted_clusters"]["clusters"]:
            aggregate = found.clusters[part["name"]].document["cluster_type"]["typed_config"]
            assert set(aggregate["clusters"]) <= set(found.clusters)


def test_an_unused_cluster_stays_for_a_minute() -> None:
    """A cluster of a member that left stays until an Envoy with the earlier routes must have the new ones."""
    gone = NAMES[2]
    smaller = replace(SAME_PATH, entries=SAME_PATH.entries[:2])
    before = made(SAME_PATH)
    after = made(smaller, before=before)
    assert gone in after.clusters
    assert after.next_change_at() == NOW_AT + LINGER_US
    again = made(smaller, before=after, now_at=NOW_AT + LINGER_US - 1)
    assert gone in again.clusters
    assert gone not in made(smaller, before=again, now_at=NOW_AT + LINGER_US).clusters
    assert before.next_change_at() is None


def test_a_member_that_returns_is_no_longer_unused() -> None:
    """A cluster that is needed again stays."""
    after = made(replace(SAME_PATH, entries=SAME_PATH.entries[:2]), before=made(SAME_PATH))
    assert made(SAME_PATH, before=after).unused_since == {}


def test_nothing_is_never_a_snapshot() -> None:
    """Without any member there are no resources, instead of empty ones that would delete what Envoy has."""
    with pytest.raises(UnknownName, match="us-east-2"):
        made(replace(CHAT, entries=()))


def test_resources_are_selected_by_name() -> None:
    """A subscription has names, or none for all; unknown types and names have no resources."""
    found = made(SAME_PATH)
    assert set(found.select(CLUSTERS, [NAMES[0], "nowhere"])) == {NAMES[0]}
    assert set(found.select(ROUTES, None)) == {"isochrone"}
    assert found.select("type.googleapis.com/envoy.config.listener.v3.Listener", None) == {}
