"""Tables on which no consumer may act."""

from dataclasses import replace
from typing import Any

import pytest

from isochrone_common.route_consumer import as_static_order, defect
from isochrone_wire.durations import DAY_US
from isochrone_wire.routes import RouteTable
from testdata.routes import CHAT, TABLES

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
