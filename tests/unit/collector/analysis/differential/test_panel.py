"""From probes to one value per target, region and round."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from isochrone_collector.analysis.differential.panel import Panel, build_panel
from isochrone_collector.analysis.probes import Probes
from testdata.columns import NAN, Row, probes

MS = 1_000.0


def rows(found: Panel) -> list[tuple[int, str, int, float, bool]]:
    """The panel as it is read: target, region, round, value, censored."""
    regions = len(found.regions)
    return [
        (int(found.target_ids[group // regions]), found.regions[group % regions], at, value, censored)
        for group, at, value, censored in zip(
            found.group.tolist(),
            found.round_at.tolist(),
            found.value.tolist(),
            found.censored.tolist(),
            strict=True,
        )
    ]


def test_rows_come_sorted_whatever_the_order_of_probes() -> None:
    """The panel is in the order of targets, regions and rounds, and holds every value once."""
    given = [Row(target, region, at, float(at)) for target in (9, 4) for region in ("sg", "us") for at in (30, 10, 20)]
    expected = [
        (target, region, at, float(at), False) for target in (4, 9) for region in ("us", "sg") for at in (10, 20, 30)
    ]
    for order in (given, given[::-1], sorted(given, key=lambda row: row.at)):
        assert rows(build_panel(probes(order, regions=("us", "sg")))) == expected


@pytest.mark.parametrize(
    ("values", "limits", "value", "censored"),
    [
        ([5.0], [], 5.0, False),
        ([5.0, 7.0], [], 6.0, False),
        ([9.0, 5.0, 7.0], [], 7.0, False),
        # A limit of 6 was exceeded, by however much: it ranks last.
        ([5.0, 7.0], [6.0], 7.0, False),
        ([5.0], [60.0], 32.5, True),
        ([5.0], [60.0, 60.0], 60.0, True),
        ([], [60.0], 60.0, True),
    ],
)
def test_a_round_is_the_median_of_its_probes(
    values: Sequence[float],
    limits: Sequence[float],
    value: float,
    censored: bool,  # noqa: FBT001  # a column of the table
) -> None:
    """Vantages of a region speak with one voice, and what ran into a timeout ranks above everything."""
    given = [Row(1, "us", 10, one, vantage=place) for place, one in enumerate(values)]
    given += [Row(1, "us", 10, limit, censored=True, vantage=50 + place) for place, limit in enumerate(limits)]
    assert rows(build_panel(probes(given))) == [(1, "us", 10, value, censored)]


def test_probes_without_a_value_are_left_out() -> None:
    """A failed probe has no latency; its round is absent unless another vantage has one."""
    given = [Row(1, "us", 10, NAN), Row(1, "us", 20, NAN), Row(1, "us", 20, 7.0, vantage=2)]
    assert rows(build_panel(probes(given))) == [(1, "us", 20, 7.0, False)]


@pytest.mark.parametrize(
    ("parts", "median"), [([3.0], 3.0), ([NAN], NAN), ([3.0, NAN], 3.0), ([5.0, NAN, 1.0], 3.0), ([NAN, NAN], NAN)]
)
def test_the_network_part_is_the_median_of_what_is_known(parts: Sequence[float], median: float) -> None:
    """A vantage that does not know its round trip does not hide those of the others."""
    given = [Row(1, "us", 10, 9.0, network=part, vantage=place) for place, part in enumerate(parts)]
    given += [Row(1, "us", 20, 9.0, network=4.0)]
    assert build_panel(probes(given)).network.tolist() == pytest.approx([median, 4.0], nan_ok=True)


def test_nothing_makes_an_empty_panel() -> None:
    """No probes are no rows, and every question about them has an empty answer."""
    found = build_panel(probes([]))
    assert (len(found.group), found.targets_with_values()) == (0, set())
    assert found.groups([(1, "us")]).tolist() == [-1]
    assert found.round_keys().tolist() == []


def test_instants_too_far_apart_to_be_packed_are_sorted_all_the_same() -> None:
    """Keys of many targets and a span of centuries do not fit into one number; the order is the same."""
    far = 2**61
    given = [Row(target, "us", at, 1.0) for target in (1, 2, 3, 4, 5) for at in (far, 0, 7)]
    found: Any = [(target, at) for target, _, at, _, _ in rows(build_panel(probes(given)))]
    assert found == [(target, at) for target in (1, 2, 3, 4, 5) for at in (0, 7, far)]


def test_a_thousand_random_probes_agree_with_doing_it_one_by_one() -> None:
    """The columns give what plain loops give, over vantages, gaps, ties and timeouts."""
    chance = np.random.default_rng(20261121)
    given = [
        Row(
            int(chance.integers(1, 4)),
            str(chance.choice(["us", "sg", "eu"])),
            int(chance.integers(0, 30)),
            float(chance.integers(0, 5)) if chance.random() < 0.9 else NAN,
            vantage=int(chance.integers(1, 9)),
            censored=bool(chance.random() < 0.1),
        )
        for _ in range(1_000)
    ]
    cells: dict[tuple[int, str, int], list[tuple[bool, float]]] = {}
    for row in given:
        if row.value == row.value:
            cells.setdefault((row.target, row.region, row.at), []).append((row.censored, row.value))
    expected = {}
    for key, found in cells.items():
        ordered, n = sorted(found), len(found)
        expected[key] = (
            (ordered[(n - 1) // 2][1] + ordered[n // 2][1]) / 2,
            ordered[n // 2][0],
        )
    columns: Probes = probes(given, regions=("us", "sg", "eu"))
    assert {row[:3]: row[3:] for row in rows(build_panel(columns))} == expected
