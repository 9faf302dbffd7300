"""Which tables a followed export has at an instant: switches after this consumer's share, and the static order."""

from dataclasses import replace

import pytest

from fixtures.fake_collector import TARGETS
from isochrone_common.route_consumer import FollowedTables, endpoint, routing_of
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteState, RouteTable
from testdata.routes import CHAT, NOW_AT, UNKNOWN_YET, VOICE

MOVE_US = 100 * SECOND_US


def switched(generation: int, *, seconds: float = 0.0) -> RouteTable:
    """CHAT with the weights of the first two members exchanged, built some seconds after now."""
    first, second, *others = CHAT.entries
    entries = (replace(first, weight=second.weight), replace(second, weight=first.weight), *others)
    built_at = NOW_AT + round(seconds * SECOND_US)
    return replace(CHAT, generation=generation, built_at=built_at, entries=entries, move_within_us=MOVE_US)


def generations(tables: FollowedTables, seconds: float = 0.0) -> list[int]:
    return [table.generation for table in tables.at(NOW_AT + round(seconds * SECOND_US))]


def test_the_first_table_is_used_at_once() -> None:
    """Without a table in use there is nothing to move gently from."""
    tables = FollowedTables(share=0.9)
    tables.receive(switched(50))
    assert generations(tables) == [50]


def test_a_refreshed_table_is_used_at_once() -> None:
    """A table with the same weights moves no traffic."""
    tables = FollowedTables(share=0.9)
    tables.receive(CHAT)
    tables.receive(replace(CHAT, generation=49, move_within_us=MOVE_US))
    assert generations(tables) == [49]


def test_other_weights_wait_for_this_consumers_share() -> None:
    """With a share of 0.3 of 100 s, a switch is applied 30 s after it was built."""
    tables = FollowedTables(share=0.3)
    tables.receive(CHAT)
    tables.receive(switched(50))
    assert tables.next_change_at(NOW_AT) == NOW_AT + 30 * SECOND_US
    assert generations(tables, 29.9) == [48]
    assert generations(tables, 30) == [50]


def test_a_newer_table_does_not_prolong_the_wait() -> None:
    """What arrives while a switch waits is applied with it."""
    tables = FollowedTables(share=0.3)
    tables.receive(CHAT)
    tables.receive(switched(50))
    tables.receive(switched(51, seconds=20))
    assert generations(tables, 30) == [51]


def test_a_switch_that_is_taken_back_ends_the_wait() -> None:
    """When the weights in use return, there is nothing to wait for."""
    tables = FollowedTables(share=0.3)
    tables.receive(CHAT)
    tables.receive(switched(50))
    tables.receive(replace(CHAT, generation=51))
    assert generations(tables) == [51]
    assert generations(tables, 40) == [51]


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
    """A table that never had entries has the endpoints of the plan's targets; a member without one is left out."""
    tables = FollowedTables(share=0.0)
    planned = TARGETS.targets[1]
    name = planned.name
    tables.receive(replace(UNKNOWN_YET, static_order=("unknown/one", name)))
    assert tables.at(NOW_AT) == ()
    tables.endpoints |= {name: endpoint(planned)}
    ((entry,),) = [table.entries for table in tables.at(NOW_AT)]
    assert (entry.target, entry.base_url, entry.weight) == (name, planned.base_url, 1.0)


def test_a_route_that_left_the_plan_is_forgotten() -> None:
    """A removed route is not in the file, instead of ending in its static order."""
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
