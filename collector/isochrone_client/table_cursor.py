"""Whether a table follows those that were told, is older news of them, or begins another database. Pure.

Generations count per database. A collector that is behind shows lower ones too, but none that was built later than all
that were told; so lower ones that were built clearly later are of another database. Instants of building come from the
clocks of different collectors, which is why "clearly" is ten seconds, and beyond the latest of all, not of the last.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Self

from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteTable

CLEARLY_LATER_US = 10 * SECOND_US


class Place(Enum):
    """Where a table stands to those that were told."""

    LATER = "later"
    EARLIER = "earlier"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Up to which generation tables were told, 0 for none, and the latest instant at which one of them was built; that
    is `None` where the generation is hearsay, and no table of it was seen.
    """

    generation: int = 0
    latest_built_at: int | None = None

    def place(self, table: RouteTable) -> Place:
        """Where the table stands. A collector that was asked for what comes after hearsay shows lower generations only
        when it never gave that one.
        """
        if table.generation > self.generation:
            return Place.LATER
        if self.latest_built_at is None or table.built_at > self.latest_built_at + CLEARLY_LATER_US:
            return Place.ELSEWHERE
        return Place.EARLIER

    def including(self, table: RouteTable) -> Self:
        """The same with a later table told."""
        return type(self)(
            generation=table.generation, latest_built_at=max(self.latest_built_at or table.built_at, table.built_at)
        )
