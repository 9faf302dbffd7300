"""Names of targets, and places of regions."""

import csv
from importlib import resources

import pytest

import isochrone_collector
from isochrone_collector.names import EVERY_NAME, NameFilter, display_names, matching
from isochrone_collector.region_places import RegionPlace, parse_places, place_of


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("openai/gpt-5", ["openai/gpt-5"]),
        ("openai/*", ["openai/gpt-5", "openai/o4"]),
        ("*", ["openai/gpt-5", "openai/o4", "x/odd[1]"]),
        ("OPENAI/*", []),
        ("x/odd[1]", ["x/odd[1]"]),
        ("openai/?4", ["openai/o4"]),
        ("gpt-5", []),
        ("gpt*", ["openai/gpt-5"]),
        ("*5", ["openai/gpt-5"]),
    ],
)
def test_patterns(pattern: str, found: list[str]) -> None:
    """Patterns are shell-style over the name or what comes after the provider; a name matches itself."""
    assert matching(pattern, ["openai/gpt-5", "openai/o4", "x/odd[1]"]) == found


@pytest.mark.parametrize(
    ("allowed", "denied", "found"),
    [
        ((), (), {"openai/gpt-5", "openai/o4", "x/odd[1]"}),
        (("openai/*",), (), {"openai/gpt-5", "openai/o4"}),
        (("o4*", "x/odd[1]"), (), {"openai/o4", "x/odd[1]"}),
        ((), ("openai/*",), {"x/odd[1]"}),
        (("openai/*",), ("gpt*",), {"openai/o4"}),
        (("nothing",), (), set()),
        ((), ("*",), set()),
    ],
)
def test_a_filter_denies_after_it_allows(allowed: tuple[str, ...], denied: tuple[str, ...], found: set[str]) -> None:
    """A denied name does not pass, also if it is allowed; names that no pattern allows pass only if there is none."""
    known = ["openai/gpt-5", "openai/o4", "x/odd[1]"]
    assert NameFilter(allowed=allowed, denied=denied).select(known) == found
    assert EVERY_NAME.select(known) == set(known)


def test_a_series_that_was_replaced_keeps_a_name_of_its_own() -> None:
    """The newest target of a name has it bare; the ones before are told apart by their ids, for ever the same."""
    names = display_names({0xABCDEF: ("sim/a", 1), 0x1000002: ("sim/a", 3), 5: ("sim/b", 1)})
    assert names == {0xABCDEF: "sim/a~abcdef", 0x1000002: "sim/a", 5: "sim/b"}


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
