"""Which tables a watcher tells, keeps back, or takes for those of another database."""

from dataclasses import replace

import pytest

from isochrone_client.table_cursor import CLEARLY_LATER_US, Cursor, Place
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteTable
from testdata.routes import CHAT, NOW_AT


def table(generation: int, seconds: float = 0.0) -> RouteTable:
    """A table of that generation, built so many seconds after the others."""
    return replace(CHAT, generation=generation, built_at=NOW_AT + round(seconds * SECOND_US))


LATER_S = CLEARLY_LATER_US / SECOND_US + 1


@pytest.mark.parametrize(
    ("told", "heard", "place"),
    [
        ([], table(1), Place.LATER),
        ([table(105)], table(106), Place.LATER),
        ([table(105)], table(106, -60), Place.LATER),
        # Behind, on the same database: what it shows was built before.
        ([table(105)], table(97, -30), Place.EARLIER),
        ([table(105)], table(105), Place.EARLIER),
        # A fresh database at once after the old one, or clocks of two leaders that differ a little.
        ([table(105)], table(3, LATER_S - 2), Place.EARLIER),
        ([table(105)], table(3, LATER_S), Place.ELSEWHERE),
        ([table(105)], table(105, LATER_S), Place.ELSEWHERE),
        # The clock of the former leader is far ahead of that of the present one: its tables are older news still.
        ([table(104, 300), table(105)], table(104, 300), Place.EARLIER),
        ([table(104, 300), table(105)], table(3, 301), Place.EARLIER),
        ([table(104, 300), table(105)], table(3, 300 + LATER_S), Place.ELSEWHERE),
    ],
)
def test_what_is_lower_and_built_clearly_later_is_of_another_database(
    told: list[RouteTable], heard: RouteTable, place: Place
) -> None:
    """A lower generation is older news unless it was built clearly later than every table that was told."""
    so_far = Cursor()
    for one in told:
        so_far = so_far.including(one)
    assert so_far.place(heard) is place


def test_hearsay_gives_way_to_what_is_there() -> None:
    """Of a generation of which no table was seen, the collector knows better."""
    hearsay = Cursor(generation=9999)
    assert hearsay.place(table(105)) is Place.ELSEWHERE
    assert hearsay.place(table(10_000)) is Place.LATER
