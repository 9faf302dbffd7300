"""Levels of a differential: a step within the window divides its rounds, and the present level is decided."""

from collections.abc import Sequence

import numpy as np
import pytest

from isochrone_collector.analysis.differential.decision import margin_of
from isochrone_collector.analysis.differential.differential import ComparisonContext, Subject, differentials_of
from isochrone_collector.analysis.differential.levels import level_histories, since_steps, with_steps
from isochrone_collector.analysis.differential.panel import Changes, build_panel
from isochrone_collector.analysis.stats.long_run_variance import LEAST_ROUNDS
from isochrone_collector.analysis.stats.steps import LEAST
from isochrone_wire.answers import Decision, Differential, Metric
from testdata.columns import Row, present, probes, series

MS = 1_000
SEED = 14
OTHERS = 29


def compared(rows: Sequence[Row], *, targets: Sequence[int] = (1,), changes: Changes | None = None) -> Differential:
    panel = build_panel(probes(rows))
    wanted = [(target, "sg") for target in targets]
    known = changes or {}
    histories = level_histories(panel, wanted, baseline="us", changes=known, margin=margin_of(Metric.TTFT))
    subjects = [
        Subject(target_id=target, target=f"sim/{target}", provider="sim", model="a", region="sg") for target in targets
    ]
    context = ComparisonContext(changes=since_steps(known, histories), histories=histories)
    return differentials_of(panel, subjects, metric=Metric.TTFT, baseline="us", context=context)[0]


def sides(*levels_ms: tuple[float, int], target: int = 1, noise_ms: float = 1.0, both_ms: float = 0.0) -> list[Row]:
    """Return rounds of us at 200 ms and of sg at these differences, each for so many rounds; from the second level on
    both sides take `both_ms` longer.
    """
    generator = np.random.default_rng(SEED + target)
    added = [ms for ms, rounds in levels_ms for _ in range(rounds)]
    shared = [both_ms * (place >= levels_ms[0][1]) for place in range(len(added))]
    us, sg = generator.normal(200, noise_ms, len(added)), generator.normal(200, noise_ms, len(added))
    return series("us", list((us + shared) * MS), target=target) + series(
        "sg", list((sg + shared + added) * MS), target=target
    )


@pytest.mark.parametrize(("before", "after"), [(5, 6), (6, 6), (19, 6), (19, 12), (19, 19), (19, 40), (6, 19)])
def test_a_step_divides_the_rounds(before: int, after: int) -> None:
    """The answer is about the present level alone and names both, decided if all levels show the series' memory."""
    found = compared(sides((35, before), (435, after)))
    decision = Decision.SLOWER if before + after >= LEAST_ROUNDS else Decision.UNDECIDED
    assert (found.since_at, found.n, found.decision) == (before, after, decision)
    low, high = present(found.shift_low), present(found.shift_high)
    assert low - 1_000 < 435 * MS < high + 1_000
    assert high - low < (20 if after == 6 else 10) * MS
    earlier, latest = found.levels
    assert (earlier.from_at, earlier.until_at, earlier.n) == (0, before - 1, before)
    assert (latest.from_at, latest.until_at, latest.n) == (before, before + after - 1, after)
    assert [earlier.shift, latest.shift] == pytest.approx([35 * MS, 435 * MS], abs=2 * MS)
    assert (latest.shift, latest.low, latest.high) == (found.shift, found.shift_low, found.shift_high)
    assert earlier.region_median == pytest.approx(235 * MS, abs=3 * MS)
    assert latest.baseline_median == pytest.approx(200 * MS, abs=3 * MS)


@pytest.mark.parametrize("before", [1, 2, 4, 5, 6, 9, 14, 24, 40])
def test_an_interval_always_contains_a_level(before: int) -> None:
    """No interval lies between the levels: it has the present one, or the former until the present has five rounds."""
    for after in (1, 2, 4, 5, 6, 9, 14, 24, 40):
        found = compared(sides((35, before), (435, after)))
        if found.shift_low is not None and found.shift_high is not None:
            true = {435.0} if after > 4 else {35.0, 435.0}
            near = (found.shift_low / MS - 3, found.shift_high / MS + 3)
            assert any(near[0] <= level <= near[1] for level in true), (before, after, near)


def test_a_step_is_no_chance_among_many_comparisons() -> None:
    """Six rounds after a huge step are decided; after a step down nothing is faster or slower."""
    rows = sides((35, 19), (435, 6))
    for target in range(2, 2 + OTHERS):
        rows += sides((0, 25), target=target)
    found = compared(rows, targets=range(1, 2 + OTHERS))
    assert (found.decision, found.reason, found.n) == (Decision.SLOWER, "", 6)
    assert present(found.q_value) < 1e-6
    found = compared(sides((400, 19), (0, 8), noise_ms=10.0))
    assert (found.since_at, found.decision in {Decision.SLOWER, Decision.FASTER}) == (19, False)
    assert present(found.q_value) > 0.05


def test_five_rounds_after_a_step_have_no_interval() -> None:
    """A step is named from five rounds on; an interval needs six, and more if few show how alike neighbours are."""
    found = compared(sides((35, 19), (435, 5)))
    assert [level.n for level in found.levels] == [19, 5]
    assert (found.levels[-1].low, found.shift_low, found.decision) == (None, None, Decision.UNDECIDED)
    assert found.reason == "5 of 6 rounds needed, counted from the change on"
    found = compared(sides((35, 5), (435, 6)))
    assert (found.decision, found.rounds_needed) == (Decision.UNDECIDED, 24)
    assert found.reason.startswith("slower by 435 ms (")
    assert found.reason.endswith(" so far; 6 of 24 rounds needed, counted from the change on")


def test_rounds_that_are_alike_need_more_of_them() -> None:
    """After a step, six rounds are needed of a series whose neighbours are independent, and more of one that drifts."""
    drift = np.repeat([0.0, 6.0, 2.0, 9.0, 1.0, 7.0, 3.0, 8.0], 6) * MS
    rows = [
        row if row.region == "us" else row._replace(value=row.value + drift[row.at])
        for row in sides((35, 40), (435, 8), noise_ms=0.5)
    ]
    found = compared(rows)
    assert found.since_at == 40
    assert 8 < found.rounds_needed <= LEAST_ROUNDS
    assert found.decision is Decision.UNDECIDED


@pytest.mark.parametrize("after", [1, 4, 5, 6, 9, 24, 40])
@pytest.mark.parametrize("changes", [{}, {(1, "sg"): 21}, {(1, "us"): 17}, {(1, "us"): 30}], ids=str)
def test_all_figures_of_a_row_are_of_the_same_rounds(after: int, changes: dict[tuple[int, str], int]) -> None:
    """Difference, medians and rounds are those of the present level, which begins at `since_at`."""
    found = compared(sides((35, 19), (435, after)), changes=changes)
    is_after_all = max(changes.values(), default=0) >= 19 + after
    assert found.levels or after < LEAST or is_after_all
    if found.levels and found.shift is not None:
        level = found.levels[-1]
        assert (level.from_at, level.n, level.shift) == (found.since_at, found.n, found.shift)
        assert (level.baseline_median, level.region_median) == (found.baseline_median, found.region_median)
        assert found.median_difference == level.region_median - level.baseline_median


def test_an_incident_that_is_over_has_three_levels() -> None:
    """Before, during and after: the present level is that since the end."""
    found = compared(sides((35, 19), (435, 45), (35, 20)))
    assert [level.n for level in found.levels] == [19, 45, 20]
    assert found.shift == pytest.approx(35 * MS, abs=1 * MS)
    assert found.decision is Decision.SLOWER


@pytest.mark.parametrize(("before", "after", "both_ms"), [(35, 35, 400), (100, 110, 0)])
def test_some_steps_divide_nothing(before: int, after: int, both_ms: float) -> None:
    """A step of both regions at once changes no difference, and one below the margin no decision."""
    found = compared(sides((before, 19), (after, 19), both_ms=both_ms))
    assert (found.levels, found.since_at, found.n) == ((), None, 38)


def test_a_known_change_keeps_what_was_before() -> None:
    """A change point cuts the rounds and names the level before; of steps within five rounds only the newest counts."""
    for changed_at, key, since_at in ((19, "sg", 19), (21, "sg", 21), (17, "us", 19)):
        found = compared(sides((35, 19), (435, 20)), changes={(1, key): changed_at})
        assert found.since_at == since_at
        assert [level.n for level in found.levels] == [since_at, 39 - since_at]
    later = compared(sides((35, 19), (435, 20)), changes={(1, "sg"): 30})
    assert [level.from_at for level in later.levels] == [0, 19, 30]
    found = compared(sides((35, 10), (435, 8), (35, 20)), changes={(1, "sg"): 14})
    assert [level.from_at for level in found.levels] == [0, 10, 18]


def test_a_change_after_all_shared_rounds_leaves_no_level() -> None:
    """If a side changed after the last shared round, no level of older rounds is called the present one."""
    rows = sides((35, 19), (435, 20))
    rows += series("us", [200.0 * MS] * 6, start=50) + series("sg", [200.0 * MS] * 6, start=60)
    found = compared(rows, changes={(1, "sg"): 45})
    assert (found.paired, found.since_at, found.levels) == (False, 45, ())


def test_a_long_correlated_level_has_no_smaller_p_value_than_its_own() -> None:
    """Sixty drifting rounds since a step are rarely a difference: all levels' noise counts only for few rounds."""
    generator, small, draws = np.random.default_rng(SEED), 0, 100
    for _ in range(draws):
        noise = generator.standard_normal(90)
        for at in range(1, len(noise)):
            noise[at] = 0.9 * noise[at - 1] + np.sqrt(0.19) * noise[at]
        noise[:30] += 12
        rows = series("us", [200.0 * MS] * 90) + series("sg", list((200 + 20 * noise) * MS))
        found = compared(rows)
        assert found.levels
        small += present(found.q_value) < 0.01
    assert small <= 12, f"{small} of {draws}, seed {SEED}"


@pytest.mark.parametrize("regions", [("us", "sg"), ("ap", "us", "sg"), ("sg", "ap", "us")])
def test_steps_are_found_whichever_region_is_first(regions: tuple[str, ...]) -> None:
    """A region that never measured a target, first in the list, does not hide the steps between the others."""
    rows = sides((35, 19), (435, 20))
    if "ap" in regions:
        rows += series("ap", [200.0 * MS] * 39, target=2)
    panel = build_panel(probes(rows, regions=regions))
    found = with_steps(panel, [1, 2], changes={}, margin=margin_of(Metric.TTFT))
    assert {(target, at) for (target, _), at in found.items()} == {(1, 19)}
    assert with_steps(build_panel(probes([], regions=())), [1], changes={}, margin=margin_of(Metric.TTFT)) == {}
