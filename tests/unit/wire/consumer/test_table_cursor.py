"""The cursor of a table stream: newer tables, older ones, and tables of another database."""

from dataclasses import replace

import pytest

from isochrone_common.route_consumer import CLEARLY_LATER_US, Relation, TableCursor
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteTable
from testdata.routes import CHAT, NOW_AT


def table(generation: int, seconds: float = 0.0) -> RouteTable:
    """A table of a generation, built some seconds after the others."""
    return replace(CHAT, generation=generation, built_at=NOW_AT + round(seconds * SECOND_US))


LATER_S = CLEARLY_LATER_US / SECOND_US + 1


@pytest.mark.parametrize(
    ("seen", "received", "relation"),
    [
        ([], table(1), Relation.NEWER),
        ([table(105)], table(106), Relation.NEWER),
        ([table(105)], table(106, -60), Relation.NEWER),
        # A collector that lags behind on the same database serves tables that were built before.
        ([table(105)], table(97, -30), Relation.OLDER),
        ([table(105)], table(105), Relation.OLDER),
        # A new database right after the old one, or two leaders whose clocks differ a little.
        ([table(105)], table(3, LATER_S - 2), Relation.OLDER),
        ([table(105)], table(3, LATER_S), Relation.OTHER_DATABASE),
        ([table(105)], table(105, LATER_S), Relation.OTHER_DATABASE),
        # The former leader's clock was far ahead of the present one's: its tables are still older.
        ([table(104, 300), table(105)], table(104, 300), Relation.OLDER),
        ([table(104, 300), table(105)], table(3, 301), Relation.OLDER),
        ([table(104, 300), table(105)], table(3, 300 + LATER_S), Relation.OTHER_DATABASE),
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
    assert cursor.compare(table(105)) is Relation.OTHER_DATABASE
    assert cursor.compare(table(10_000)) is Relation.NEWER
