"""The order of route tables: which of two is newer, and which belongs to another database.

Generations count per database. A collector that lags behind shows lower generations too, but none of them was built
later than all tables seen so far. A lower generation that was built clearly later therefore belongs to another
database, and the stream starts over with it. Build times come from the clocks of different collectors, so "clearly
later" means 10 s after the latest of all tables seen, not after the last one.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Self

from isochrone_wire.durations import SECOND_US
from isochrone_wire.routes import RouteTable

CLEARLY_LATER_US = 10 * SECOND_US


class Relation(Enum):
    """A table in relation to the tables seen before it."""

    NEWER = "newer"
    OLDER = "older"
    OTHER_DATABASE = "other database"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCursor:
    """The highest generation seen (0: none) and the latest instant at which a table that was seen was built, in
    microseconds since the epoch. The instant is `None` if the generation was given from outside and its table was never
    seen.
    """

    generation: int = 0
    latest_built_at: int | None = None

    def compare(self, table: RouteTable) -> Relation:
        """Compare a table with those seen so far.

        A collector that is asked for tables after a generation returns lower ones only if it never issued that
        generation, so without `latest_built_at` a lower generation means another database.
        """
        if table.generation > self.generation:
            return Relation.NEWER
        if self.latest_built_at is None or table.built_at > self.latest_built_at + CLEARLY_LATER_US:
            return Relation.OTHER_DATABASE
        return Relation.OLDER

    def advance(self, table: RouteTable) -> Self:
        """The cursor after a newer table."""
        return type(self)(
            generation=table.generation, latest_built_at=max(self.latest_built_at or table.built_at, table.built_at)
        )
