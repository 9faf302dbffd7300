"""Resources of tables, the snapshot of each Envoy, and rejections."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from isochrone_collector.errors import UnknownName
from isochrone_collector.publishing.publisher import Place
from isochrone_collector.xds import snapshots as module
from isochrone_collector.xds.snapshots import Rejections, Snapshots
from isochrone_collector.xds.stream_state import (
    CLUSTERS,
    LINGER_US,
    ROUTES,
    Rejection,
    Snapshot,
    resources_of,
    snapshot,
    version_of,
)
from isochrone_wire.model import SECOND_US, Target
from isochrone_wire.routes import RouteTable
from isochrone_wire.workloads import MAX_NAME_CHARS
from testdata.insights import NOW_AT
from testdata.routes import CHAT, VOICE

FIRST, SECOND = (replace(entry, base_url="https://x.example/v1", hedge=None) for entry in CHAT.entries[:2])
NODES = [f"gateway-{number}" for number in range(20)]


class World:
    """Snapshots of tables that a test changes; `at` is the instant."""

    def __init__(self, *tables: RouteTable) -> None:
        self.at, self.in_force = NOW_AT, tables
        self.plans = SimpleNamespace(version=0, current=None)
        self.snapshots = Snapshots(publisher=cast(Any, self), plans=cast(Any, self.plans), clock=lambda: self.at)

    @property
    def place(self) -> Place:
        return 0, max(table.generation for table in self.in_force)

    def tables(self, _region: str) -> Any:
        return SimpleNamespace(tables=self.in_force)

    def weights(self, node: str = "n") -> dict[str, int]:
        (configuration,) = self.snapshots.of("us", node).routes.values()
        (route,) = configuration.document["virtual_hosts"][0]["routes"]
        parts = route["route"]["weighted_clusters"]["clusters"]
        return {part["name"].split()[1]: part["weight"] for part in parts}


def table(generation: int, first: float, **changes: Any) -> RouteTable:
    """A table of two members with these weights, built `generation` seconds after the first one."""
    entries = (replace(FIRST, weight=first), replace(SECOND, weight=1 - first))
    built_at = NOW_AT + generation * SECOND_US
    made = replace(CHAT, generation=generation, etag=f"{generation}-e", built_at=built_at, entries=entries)
    return replace(made, **changes)


def test_envoys_move_gently() -> None:
    """Other weights are applied over `move_within_us`, by each Envoy after its own share of that time."""
    world = World(table(0, 1.0))
    before = {node: world.snapshots.of("us", node) for node in NODES}
    world.in_force = (table(1, 0.0, move_within_us=20 * SECOND_US),)
    world.at = NOW_AT + SECOND_US
    assert {node: world.snapshots.of("us", node) for node in NODES} == before
    moved = []
    for second in range(22):
        world.at = NOW_AT + (1 + second) * SECOND_US
        moved.append(sum(world.weights(node) == {SECOND.target: 10_000} for node in NODES))
    assert moved == sorted(moved)
    assert 4 <= moved[10] <= 16
    assert moved[-1] == len(NODES)


def test_a_stream_knows_when_to_look_again() -> None:
    """The time until the move, then until the cluster of a former member goes, is known."""
    world = World(table(0, 1.0, stale_until_at=NOW_AT + 10**12))
    world.snapshots.of("us", "n")
    world.in_force = (replace(table(0, 0.0, entries=(SECOND,), move_within_us=SECOND_US), generation=1, etag="1-e"),)
    world.snapshots.of("us", "n")
    move_us = world.snapshots.next_change_us("us", "n")
    assert move_us is not None
    assert 0 < move_us < SECOND_US
    world.at += move_us
    assert FIRST.target in world.snapshots.of("us", "n").clusters
    assert world.snapshots.next_change_us("us", "n") == LINGER_US
    world.at += LINGER_US
    assert FIRST.target not in world.snapshots.of("us", "n").clusters


def test_a_stale_table_becomes_the_static_order() -> None:
    """A table that may not be used gives way to the static order; the plan has the endpoints that no table has."""
    other = Target(id=1, name="p/other", provider="p", model="other", base_url="https://p.example/v1")
    world = World(table(0, 1.0, static_order=(other.name, SECOND.target)))
    assert world.weights() == {FIRST.target: 10_000}
    world.plans.version, world.plans.current = 1, SimpleNamespace(version=1, targets=(other,))
    world.at = CHAT.stale_until_at
    assert world.weights() == {other.name: 10_000}


def test_envoys_share_resources() -> None:
    """All Envoys of a region share resources; without any member nothing is sent."""
    world = World(table(0, 1.0))
    first, second = (world.snapshots.of("us", node) for node in NODES[:2])
    assert first.routes is second.routes
    with pytest.raises(UnknownName, match="no route has a member"):
        World(table(0, 1.0, entries=(), static_order=())).snapshots.of("us", "n")


def test_the_number_of_envoys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node ids come from callers: beyond a number, the Envoy that asked longest ago is forgotten."""
    monkeypatch.setattr(module, "MAX_ENVOYS", 3)
    world = World(table(0, 1.0))
    for node in NODES:
        world.snapshots.of("us", node)
    assert len(world.snapshots._envoys) == 3


SAME_PATH = replace(
    CHAT, entries=tuple(replace(entry, base_url="https://x.example/v1", credential_ref=None) for entry in CHAT.entries)
)
NAMES = [entry.target for entry in SAME_PATH.entries]


def made(*tables: RouteTable, before: Snapshot | None = None, now_at: int = NOW_AT) -> Snapshot:
    return snapshot(resources_of("us-east-2", tables), before, now_at=now_at)


def versions(found: Snapshot) -> tuple[str, str]:
    return version_of(found.select(CLUSTERS, None)), version_of(found.select(ROUTES, None))


def test_equal_tables_have_equal_versions() -> None:
    """Equal tables have equal versions, whoever makes them; new weights need no new cluster."""
    assert versions(made(SAME_PATH, VOICE)) == versions(made(SAME_PATH, VOICE, now_at=NOW_AT + 1))
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
    """The cluster of a member that left stays while earlier routes may need it, and if it is needed again."""
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
    after = made(replace(SAME_PATH, entries=SAME_PATH.entries[:2]), before=made(SAME_PATH))
    assert made(SAME_PATH, before=after).unused_since == {}


def test_nothing_is_never_a_snapshot() -> None:
    """Without any member there are no resources; unknown types and names have none."""
    with pytest.raises(UnknownName, match="us-east-2"):
        made(replace(CHAT, entries=()))
    found = made(SAME_PATH)
    assert set(found.select(CLUSTERS, [NAMES[0], "nowhere"])) == {NAMES[0]}
    assert set(found.select(ROUTES, None)) == {"isochrone"}
    assert found.select("type.googleapis.com/envoy.config.listener.v3.Listener", None) == {}


def test_a_rejection_is_logged_once() -> None:
    """A hundred Envoys that reject a version give one line, with the reason, and a hundred counts."""
    rejections = Rejections()
    with capture_logs() as logs:
        for _ in range(100):
            rejections.note("us", Rejection(type_url=ROUTES, version="v1", reason="no such cluster"))
        rejections.note("us", Rejection(type_url=ROUTES, version="v2", reason="again"))
        rejections.note("eu", Rejection(type_url=CLUSTERS, version="v1", reason="x" * 10_000))
        rejections.note("us", None)
    assert [(line["client_region"], line["resources"], line["version"]) for line in logs] == [
        ("us", "routes", "v1"),
        ("us", "routes", "v2"),
        ("eu", "clusters", "v1"),
    ]
    assert logs[0]["reason"] == "no such cluster"
    assert len(logs[2]["reason"]) < 5_000
    assert rejections.counts == {("us", "routes"): 101, ("eu", "clusters"): 1}


def test_versions_that_an_envoy_states_do_not_flood_the_log() -> None:
    """Over HTTP the version is that of the request: it is cut, and other ones are logged at a bounded rate."""
    rejections = Rejections()
    with capture_logs() as logs:
        for number in range(1_000):
            version = f"{number}{'x' * 10_000}"
            rejections.note("us", Rejection(type_url=ROUTES, version=version, reason="no"))
    assert len(logs) < 100
    assert max(len(line["version"]) for line in logs) <= MAX_NAME_CHARS
    assert rejections.counts == {("us", "routes"): 1_000}
