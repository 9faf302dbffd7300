"""Pairing: shared rounds, left-out rounds, and rounds before a change point."""

import pytest

from isochrone_collector.analysis.differential.panel import Pairs, build_panel, pair_up
from testdata.columns import Row, probes, series


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
    """A round that one region missed is left out; the others are paired with their own partner."""
    given = [Row(1, "us", at, at / 10) for at in (10, 20, 40)] + [Row(1, "sg", at, at * 10.0) for at in (20, 30, 40)]
    found = pair_up(build_panel(probes(given)), [(1, "sg")], baseline="us", changes={})
    assert matched(found) == [(0, 20, 2.0, 200.0), (0, 40, 4.0, 400.0)]
    assert (found.baseline_span.counts.tolist(), found.region_span.counts.tolist()) == ([3], [3])


def test_targets_and_regions_keep_apart() -> None:
    """Pairs are in the requested order, each with its own target's baseline, however mixed the probes are."""
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
