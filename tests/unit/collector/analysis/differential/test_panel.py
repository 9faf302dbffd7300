"""From probes to one value per target, region and round."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from isochrone_collector.analysis.differential.panel import Pairs, Panel, build_panel, pair_up
from isochrone_collector.analysis.probes import Probes
from testdata.columns import NAN, Row, probes, series

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
    empty = build_panel(probes([]))
    assert (len(empty.group), empty.targets_with_values(), empty.round_keys().tolist()) == (0, set(), [])
    assert empty.groups([(1, "us")]).tolist() == [-1]


@pytest.mark.parametrize(
    ("parts", "median"), [([3.0], 3.0), ([NAN], NAN), ([3.0, NAN], 3.0), ([5.0, NAN, 1.0], 3.0), ([NAN, NAN], NAN)]
)
def test_the_network_part_is_the_median_of_what_is_known(parts: Sequence[float], median: float) -> None:
    """A vantage that does not know its round trip does not hide those of the others."""
    given = [Row(1, "us", 10, 9.0, network=part, vantage=place) for place, part in enumerate(parts)]
    given += [Row(1, "us", 20, 9.0, network=4.0)]
    assert build_panel(probes(given)).network.tolist() == pytest.approx([median, 4.0], nan_ok=True)


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


def matched(found: Pairs) -> list[tuple[int, int, float, float]]:
    """The shared rounds: place of the pair, round, baseline value, region value."""
    columns = (
        found.pair,
        found.panel.round_at[found.region],
        found.panel.value[found.baseline],
        found.panel.value[found.region],
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_only_shared_rounds_are_paired() -> None:
    """Pairs are of shared rounds, in the requested order, each with its own target's baseline."""
    given = [Row(1, "us", at, at / 10) for at in (10, 20, 40)] + [Row(1, "sg", at, at * 10.0) for at in (20, 30, 40)]
    found = pair_up(build_panel(probes(given)), [(1, "sg")], baseline="us", changes={})
    assert matched(found) == [(0, 20, 2.0, 200.0), (0, 40, 4.0, 400.0)]
    assert (found.baseline_span.counts.tolist(), found.region_span.counts.tolist()) == ([3], [3])
    regions = ("sg", "us", "eu")
    given = [Row(target, region, 7, target * 10.0 + len(region)) for target in (5, 6) for region in regions]
    given += [Row(6, "eu", 8, 1.0)]
    wanted = [(6, "eu"), (5, "sg"), (6, "sg"), (5, "eu")]
    found = pair_up(build_panel(probes(given, regions=regions)), wanted, baseline="us", changes={})
    assert [(pair, base) for pair, _, base, _ in matched(found)] == [(0, 62.0), (1, 52.0), (2, 62.0), (3, 52.0)]
    assert found.rows(found.panel.value[found.region]).counts.tolist() == [1, 1, 1, 1]


def test_a_round_lost_on_both_sides_is_left_out() -> None:
    """Two timeouts are not evidence of equality; one timeout is evidence against its region."""
    given = series("us", [60.0, 60.0, 5.0], limits=(0, 1)) + series("sg", [60.0, 7.0, 60.0], limits=(0, 2))
    found = pair_up(build_panel(probes(given)), [(1, "sg")], baseline="us", changes={})
    assert [(base, region) for _, _, base, region in matched(found)] == [(60.0, 7.0), (5.0, 60.0)]
    assert found.n_shared.tolist() == [3]


def test_a_change_point_of_either_side_cuts_off_what_came_before() -> None:
    """The newest change of the target in either region begins the window; other targets and regions keep theirs."""
    regions = ("us", "sg", "eu")
    given = [row for region in regions for row in series(region, [1.0] * 10)]
    given += [row for region in regions for row in series(region, [1.0] * 10, target=2)]
    changes = {(1, "us"): 3, (1, "sg"): 6, (2, "eu"): 100}
    wanted = [(1, "sg"), (1, "eu"), (2, "sg"), (2, "eu")]
    found = pair_up(build_panel(probes(given, regions=regions)), wanted, baseline="us", changes=changes)
    assert found.since_at.tolist() == [6, 3, 0, 100]
    assert found.rows(found.panel.value[found.region]).counts.tolist() == [4, 7, 10, 0]
    assert found.baseline_span.counts.tolist() == [4, 7, 10, 0]
    assert found.region_span.counts.tolist() == [4, 7, 10, 0]


def test_what_nobody_saw_has_no_pairs() -> None:
    """A target, a region or a baseline without probes has no shared rounds, and no error."""
    found = build_panel(probes(series("sg", [1.0, 2.0])))
    for baseline, wanted in (("us", [(1, "sg"), (9, "sg"), (1, "eu")]), ("mars", [(1, "sg")])):
        pairs = pair_up(found, wanted, baseline=baseline, changes={})
        assert matched(pairs) == []
        assert pairs.n_shared.tolist() == [0] * len(wanted)
    assert len(pair_up(build_panel(probes([])), [(1, "sg")], baseline="us", changes={})) == 1


@pytest.mark.parametrize(
    ("baseline", "region", "kept", "undetermined", "lost"),
    [
        ((15.0, False), (10.0, True), 0, 1, (0, 1)),
        ((10.0, False), (10.0, True), 0, 1, (0, 1)),
        ((9.0, False), (10.0, True), 1, 0, (0, 1)),
        ((10.0, True), (15.0, False), 0, 1, (1, 0)),
        ((10.0, True), (9.0, False), 1, 0, (1, 0)),
        ((10.0, True), (15.0, True), 0, 0, (1, 1)),
        ((15.0, False), (10.0, False), 1, 0, (0, 0)),
    ],
)
def test_a_limit_that_is_not_beyond_the_other_value_tells_no_sign(
    baseline: tuple[float, bool], region: tuple[float, bool], kept: int, undetermined: int, lost: tuple[int, int]
) -> None:
    """A timeout after 10 s is not faster than an answer after 15 s; the round is left out."""
    sides = (("us", baseline), ("sg", region))
    given = [Row(1, name, 7, value, censored=censored) for name, (value, censored) in sides]
    found = pair_up(build_panel(probes(given)), [(1, "sg")], baseline="us", changes={})
    assert (len(matched(found)), found.undetermined.tolist(), found.n_shared.tolist()) == (kept, [undetermined], [1])
    assert (found.baseline_lost.tolist(), found.region_lost.tolist()) == ([lost[0]], [lost[1]])
