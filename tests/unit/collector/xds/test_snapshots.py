"""The snapshots of Envoys: each follows the tables by the rules of all consumers."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from isochrone_collector.errors import UnknownName
from isochrone_collector.xds import snapshots as module
from isochrone_collector.xds.resources import LINGER_US
from isochrone_collector.xds.snapshots import Snapshots
from isochrone_wire.model import SECOND_US, Target
from isochrone_wire.routes import RouteTable
from testdata.routes import CHAT, NOW_AT

FIRST, SECOND = (replace(entry, base_url="https://x.example/v1", hedge=None) for entry in CHAT.entries[:2])
NODES = [f"gateway-{number}" for number in range(20)]


class World:
    """Snapshots of tables that a test changes; `at` is the instant."""

    def __init__(self, *tables: RouteTable) -> None:
        self.at, self.in_force = NOW_AT, tables
        self.plans = SimpleNamespace(version=0, current=None)
        self.snapshots = Snapshots(publisher=cast(Any, self), plans=cast(Any, self.plans), clock=lambda: self.at)

    @property
    def generation(self) -> int:
        """The generation of the publisher."""
        return max(table.generation for table in self.in_force)

    def tables(self, _region: str) -> Any:
        """The tables of the publisher."""
        return SimpleNamespace(tables=self.in_force)

    def weights(self, node: str = "n") -> dict[str, int]:
        """The weights of the members of the only route."""
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
    """The resources of a table are made once for all Envoys of a region."""
    world = World(table(0, 1.0))
    first, second = (world.snapshots.of("us", node) for node in NODES[:2])
    assert first.routes is second.routes


def test_a_region_without_members_has_no_snapshot() -> None:
    """Without any member the request is refused, and nothing is sent."""
    with pytest.raises(UnknownName, match="no route has a member"):
        World(table(0, 1.0, entries=(), static_order=())).snapshots.of("us", "n")


def test_the_number_of_envoys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node ids come from callers: beyond a number, the Envoy that asked longest ago is forgotten."""
    monkeypatch.setattr(module, "MAX_ENVOYS", 3)
    world = World(table(0, 1.0))
    for node in NODES:
        world.snapshots.of("us", node)
    assert len(world.snapshots._envoys) == 3
