"""Places of regions: published ones by name, stated ones first, none where nothing is known."""

import csv
from importlib import resources

import pytest

import isochrone_collector
from isochrone_collector.region_places import RegionPlace, parse_places, place_of

LAB = RegionPlace(latitude=48.14, longitude=11.58)


@pytest.mark.parametrize(
    ("region", "city"),
    [
        ("us-east-2", "Columbus, Ohio"),
        ("EU-Central-1", "Frankfurt"),
        ("europe-west1", "Saint-Ghislain"),
        ("japaneast", "Tokyo"),
        ("cn-hangzhou", "Hangzhou"),
        ("fsn1", "Falkenstein"),
        ("gra11", "Gravelines"),
        # AWS and Alibaba have a region of this name.
        ("eu-west-1", "Dublin"),
        ("alibaba-eu-west-1", "London"),
        ("aws/eu-west-1", "Dublin"),
        ("gcp:us-central1", "Council Bluffs, Iowa"),
    ],
)
def test_cloud_regions_are_known(region: str, city: str) -> None:
    """A region with the name of a cloud region is in its city, with the provider in front if the name has one."""
    place = place_of(region, {})
    assert place is not None
    assert place.city == city


@pytest.mark.parametrize("region", ["lab", "us-east-99", "aws-", "-", "", "gcp-eu-west-1"])
def test_other_regions_have_no_place(region: str) -> None:
    """No place is guessed from a part of a name."""
    assert place_of(region, {}) is None


def test_the_operator_decides() -> None:
    """A stated place is that of its region, also where a cloud region has the name."""
    stated = parse_places(["lab=48.14,11.58", "us-east-2=48.14, 11.58"])
    assert (place_of("lab", stated), place_of("us-east-2", stated)) == (LAB, LAB)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lab", "no region"),
        ("=1,2", "no region"),
        ("lab=", "no latitude"),
        ("lab=1", "no latitude"),
        ("lab=1,2,3", "no latitude"),
        ("lab=north,2", "no latitude"),
        ("lab=90.1,0", "latitude outside -90 to 90"),
        ("lab=nan,0", "latitude outside"),
        ("lab=0,-181", "longitude outside -180 to 180"),
    ],
)
def test_what_is_no_place(text: str, problem: str) -> None:
    """A text that is not a region with a point is refused with the reason."""
    with pytest.raises(ValueError, match=problem):
        parse_places([text])


def test_the_table_is_sound() -> None:
    """Each region of a provider has one row, and a point on the earth."""
    with resources.files(isochrone_collector).joinpath("region_places.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["provider"], row["region"]) for row in rows}) == len(rows) > 150
    assert all(abs(float(row["latitude"])) <= 72 and abs(float(row["longitude"])) <= 180 for row in rows)
