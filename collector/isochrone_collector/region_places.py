"""Places of regions: those of well-known cloud regions, and those that the operator states.

`region_places.csv` has the cities that cloud providers publish for their regions, and coordinates of these cities. A
name that several providers use for different places is that of the provider whose rows come first, unless the name of
the region begins with a provider: `alibaba-eu-west-1`.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import isfinite

_SEPARATORS = re.compile(r"[-/:_.]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPlace:
    """A point in degrees, positive to the north and to the east, and the name of its city, if it has one."""

    latitude: float
    longitude: float
    city: str | None = None


def place_of(region: str, stated: Mapping[str, RegionPlace]) -> RegionPlace | None:
    """Return the stated place of a region, else that of the cloud region with this name; `None` without either."""
    if region in stated:
        return stated[region]
    name, published = region.lower(), _published()
    head = _SEPARATORS.split(name, maxsplit=1)[0]
    return published.get(("", name)) or published.get((head, name[len(head) + 1 :]))


def parse_places(texts: Iterable[str]) -> dict[str, RegionPlace]:
    """Parse places such as `lab=48.14,11.58`: a region, its latitude and its longitude. Raises `ValueError`."""
    found: dict[str, RegionPlace] = {}
    for text in texts:
        region, _, point = text.rpartition("=")
        if not region:
            raise ValueError(f"`{text}` has no region")
        try:
            latitude, longitude = map(float, point.split(","))
        except ValueError:
            raise ValueError(f"`{text}` has no latitude and longitude") from None
        for value, limit, name in ((latitude, 90, "latitude"), (longitude, 180, "longitude")):
            if not isfinite(value) or abs(value) > limit:
                raise ValueError(f"`{text}` has a {name} outside -{limit} to {limit} degrees")
        found[region] = RegionPlace(latitude=latitude, longitude=longitude)
    return found


@cache
def _published() -> Mapping[tuple[str, str], RegionPlace]:
    found: dict[tuple[str, str], RegionPlace] = {}
    with resources.files(__package__).joinpath("region_places.csv").open("r", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            place = RegionPlace(latitude=float(row["latitude"]), longitude=float(row["longitude"]), city=row["place"])
            found[row["provider"], row["region"]] = place
            found.setdefault(("", row["region"]), place)
    return found
