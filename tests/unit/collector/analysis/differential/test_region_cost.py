"""Region costs: the best region per provider, and the cost of the others."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from isochrone_collector.analysis.differential.decision import Margin, margin_of
from isochrone_collector.analysis.differential.panel import Changes, TargetRegion, build_panel
from isochrone_collector.analysis.differential.region_cost import region_costs
from isochrone_collector.analysis.history import HOURS, Levels, SeriesLevels
from isochrone_collector.analysis.probes import Kind, Probes
from isochrone_wire.answers import Decision, Metric
from isochrone_wire.insights import RegionCost
from testdata.columns import present

MS = 1000.0
REGIONS = ("eu", "sg", "us")
MEDIANS = (("us", 300 * MS), ("eu", 400 * MS))
Series = Sequence[float]
World = Mapping[tuple[int, str], Series]
NOTHING: Mapping[TargetRegion, Any] = MappingProxyType({})


def probes(world: World, *, censored: frozenset[tuple[int, str, int]]) -> Probes:
    """Return a probe per target, region and round; a target's rounds lie between those of others."""
    rows = [
        (target, REGIONS.index(region), 10 * n + target, value, (target, region, n) in censored)
        for (target, region), values in world.items()
        for n, value in enumerate(values)
        if not np.isnan(value)
    ]
    columns = list(zip(*rows, strict=True)) or [(), (), (), (), ()]
    n = len(rows)
    return Probes(
        regions=REGIONS,
        target_id=np.array(columns[0], dtype=np.int64),
        region=np.array(columns[1], dtype=np.int64),
        vantage_id=np.zeros(n, dtype=np.int64),
        round_at=np.array(columns[2], dtype=np.int64),
        kind=np.full(n, Kind.OK, dtype=np.int8),
        value=np.array(columns[3], dtype=np.float64),
        censored=np.array(columns[4], dtype=bool),
        network=np.full(n, np.nan),
    )


def costs(
    world: World,
    *,
    metric: Metric = Metric.TTFT,
    providers: Mapping[int, str] | None = None,
    censored: frozenset[tuple[int, str, int]] = frozenset(),
    unfit: Mapping[TargetRegion, str] = NOTHING,
    changes: Changes = NOTHING,
    margin: Margin | None = None,
    hourly: SeriesLevels | None = None,
) -> list[RegionCost]:
    named = providers or {target: "p" for target, _ in world}
    panel, margin = build_panel(probes(world, censored=censored)), margin or margin_of(metric)
    found = region_costs(panel, named, metric=metric, unfit=unfit, changes=changes, margin=margin, hourly=hourly)
    return list(found)


def noisy(median: float, *, n: int = 40, seed: int = 0, spread: float = 3 * MS) -> Series:
    return list(median + np.random.default_rng(seed).normal(0, spread, n))


def width(line: RegionCost) -> float:
    return present(line.added_high) - present(line.added_low)


def test_the_nearest_region_and_what_the_others_pay() -> None:
    """The best region comes first without cost; the others follow by their cost."""
    world = {
        (1, "us"): noisy(300 * MS, seed=1),
        (1, "eu"): noisy(400 * MS, seed=2),
        (1, "sg"): noisy(550 * MS, seed=3),
        (2, "us"): noisy(900 * MS, seed=4),
        (2, "eu"): noisy(1000 * MS, seed=5),
        (2, "sg"): noisy(1150 * MS, seed=6),
    }
    us, eu, sg = costs(world)
    assert [(line.region, line.decision.value, line.targets, line.n) for line in (us, eu, sg)] == [
        ("us", "faster", 2, 80),
        ("eu", "slower", 2, 80),
        ("sg", "slower", 2, 80),
    ]
    assert us.added == 0.0
    assert eu.added == pytest.approx(100 * MS, abs=2 * MS)
    assert sg.added == pytest.approx(250 * MS, abs=2 * MS)
    assert present(eu.added_low) < 100 * MS < present(eu.added_high)
    assert us.median == pytest.approx(600 * MS, abs=2 * MS)
    assert {line.best_region for line in (us, eu, sg)} == {"us"}


def test_for_a_rate_more_is_better() -> None:
    """For a rate more is better; a region within the margin is equivalent, and so is the best, with the reason."""
    world = {(1, "us"): noisy(50, spread=1), (1, "eu"): noisy(80, spread=1, seed=2)}
    best, other = costs(world, metric=Metric.TOKENS_PER_SECOND)
    assert (best.region, other.region, other.decision) == ("eu", "us", Decision.SLOWER)
    assert other.added == pytest.approx(-30, abs=1)
    world = {(1, "us"): noisy(300 * MS), (1, "eu"): noisy(301 * MS, seed=2), (1, "sg"): noisy(400 * MS, seed=3)}
    best, near, far = costs(world)
    assert [line.decision.value for line in (best, near, far)] == ["equivalent", "equivalent", "slower"]
    assert near.region in best.reason


def sometimes_slow(n: int, *, slow: int, offset: int = 0) -> Series:
    """A target that is 30 ms faster than 300 ms in most rounds, and seconds slower in `slow` of every nine."""
    return [4_000 * MS if (number + offset) % 9 < slow else 270 * MS for number in range(n)]


def test_a_region_that_is_faster_in_most_rounds_is_not_slower() -> None:
    """Where medians and most rounds contradict the pseudomedian a region is `mixed` and the best one is not decided."""
    us = noisy(300 * MS, n=90, spread=MS)
    best, other = costs({(1, "us"): us, (1, "eu"): sometimes_slow(90, slow=4)})
    assert (best.region, other.decision) == ("us", Decision.MIXED)
    assert "but its median is faster by 30 ms and 56 % of its rounds are faster" in other.reason
    assert (best.decision, best.reason) == (Decision.UNDECIDED, "not decidedly better than eu")
    assert costs({(1, "us"): us, (1, "eu"): sometimes_slow(90, slow=6)})[1].decision is Decision.SLOWER


def test_targets_of_unlike_speed_do_not_hide_a_mixed_region() -> None:
    """The medians are compared per target: a slow second target does not change which side is faster."""
    world = {
        (target, region): [level * MS + value for value in values]
        for target, level in ((1, 0), (2, 900))
        for region, values in (("us", noisy(300 * MS, n=90, spread=MS)), ("eu", sometimes_slow(90, slow=4)))
    }
    assert costs(world)[1].decision is Decision.MIXED


def test_pairs_are_worth_fewer_independent_ones() -> None:
    """Eight targets that share their shocks have eight pairs per round, which are worth about one."""
    shock = np.random.default_rng(3).normal(0, 20 * MS, 60)
    world = {(target, "us"): noisy(300 * MS, n=60, seed=target) for target in range(8)}
    world |= {(target, "eu"): list(400 * MS + shock) for target in range(8)}
    best, other = costs(world)
    assert best.n_eff is None
    assert other.n == 480
    assert 10 < present(other.n_eff) < 80


def test_what_cannot_be_told_is_undecided() -> None:
    """With too few rounds, or values from one region only, nothing is decided, with the reason."""
    best, other = costs({(1, "us"): [300 * MS] * 5, (1, "eu"): [900 * MS] * 5})
    assert (other.decision, other.reason) == (Decision.UNDECIDED, "5 of 24 rounds needed")
    assert (best.decision, best.reason) == (Decision.UNDECIDED, "not decidedly better than eu")
    [line] = costs({(1, "us"): [300 * MS] * 50})
    assert (line.decision, line.added) == (Decision.UNDECIDED, 0.0)
    assert line.reason == "no other region to compare us with"


def test_only_targets_that_all_measured_are_compared() -> None:
    """A region that also has a fast target the others lack is not nearer for it."""
    world = {
        (1, "us"): noisy(300 * MS, seed=1),
        (1, "eu"): noisy(400 * MS, seed=2),
        (2, "eu"): noisy(10 * MS, seed=3),
    }
    best, other = costs(world)
    assert (best.region, best.targets, other.region, other.targets) == ("us", 1, "eu", 1)
    assert other.median == pytest.approx(400 * MS, abs=2 * MS)


def test_a_region_without_a_common_target_is_left_out() -> None:
    """Where one region measured nothing of what the others did, the others are compared, and it says why it is not."""
    world = {
        (1, "us"): noisy(300 * MS, seed=1),
        (2, "us"): noisy(300 * MS, seed=4),
        (1, "eu"): noisy(400 * MS, seed=2),
        (2, "eu"): noisy(400 * MS, seed=5),
        (3, "sg"): noisy(10 * MS, seed=3),
    }
    best, other, alone = costs(world)
    assert (best.region, other.region, alone.region) == ("us", "eu", "sg")
    assert (alone.decision, alone.added, alone.targets) == (Decision.UNDECIDED, None, 0)
    assert "none of the targets" in alone.reason


def test_a_region_in_trouble_is_left_out_with_its_reason() -> None:
    """Unfit data is not compared although it has values; if nothing is left, every line has its reason."""
    world = {(1, region): noisy(300 * MS, seed=seed) for seed, region in enumerate(REGIONS)}
    best, _, ill = costs(world, unfit={(1, "sg"): "sg has a problem of its own"})
    assert (ill.region, ill.decision, ill.reason) == ("sg", Decision.UNDECIDED, "sg has a problem of its own")
    assert best.decision is Decision.EQUIVALENT
    none = costs(world, unfit={(1, region): f"{region}!" for region in REGIONS})
    assert [(line.region, line.best_region, line.reason) for line in none] == [(one, "", f"{one}!") for one in REGIONS]


def test_a_lasting_change_begins_a_new_count() -> None:
    """Rounds before a target's change in any region are left out; other targets keep theirs."""
    world = {
        (1, "us"): [*noisy(300 * MS), *noisy(300 * MS, seed=2)],
        (1, "eu"): [*noisy(900 * MS, seed=3), *noisy(400 * MS, seed=4)],
        (2, "us"): noisy(300 * MS, seed=5),
        (2, "eu"): noisy(400 * MS, seed=6),
    }
    best, other = costs(world, changes={(1, "eu"): 10 * 40 + 1})
    assert best.since_at == other.since_at == 10 * 40 + 1
    assert other.n == 80
    assert other.added == pytest.approx(100 * MS, abs=3 * MS)


def test_targets_nobody_asked_for_have_no_line() -> None:
    """The control target's probes are there to judge regions by, and are compared only when asked for."""
    world = {(1, "us"): noisy(300 * MS), (2, "us"): noisy(300 * MS)}
    assert [line.provider for line in costs(world, providers={1: "p"})] == ["p"]
    assert costs({}) == []


def test_rounds_that_never_meet_are_no_pairs() -> None:
    """Rounds that never meet, or that both lost, are no pairs; one lost alone counts against its region."""
    nothing = [float("nan")] * 40
    best, other = costs({(1, "us"): [*noisy(300 * MS), *nothing], (1, "eu"): [*nothing, *noisy(900 * MS)]})
    assert (other.n, other.decision, other.added) == (0, Decision.UNDECIDED, None)
    assert other.reason.startswith("no round has a value both from here and from")
    assert best.decision is Decision.UNDECIDED
    world = {(1, "us"): [300 * MS] * 10, (1, "eu"): [300 * MS] * 8 + [60_000 * MS] * 2}
    both = frozenset({(1, "us", 9), (1, "eu", 9), (1, "eu", 8)})
    _, other = costs(world, censored=both)
    assert other.n == 9


def test_providers_are_told_apart() -> None:
    """Each provider has a best region of its own, in the order of their names."""
    world = {
        (1, "us"): noisy(300 * MS, seed=1),
        (1, "sg"): noisy(500 * MS, seed=2),
        (2, "us"): noisy(500 * MS, seed=3),
        (2, "sg"): noisy(300 * MS, seed=4),
    }
    lines = costs(world, providers={1: "openai", 2: "deepseek"})
    assert [(line.provider, line.region) for line in lines] == [
        ("deepseek", "sg"),
        ("deepseek", "us"),
        ("openai", "us"),
        ("openai", "sg"),
    ]


def test_targets_that_differ_are_no_autocorrelation() -> None:
    """That one target adds more than another does not widen the interval as likeness in time does; likeness does."""
    rng = np.random.default_rng(5)
    flat = rng.normal(0, 5 * MS, (2, 100))
    wave = np.repeat(rng.normal(0, 5 * MS, (2, 10)), 10, axis=1)

    def width_of(noise: np.ndarray, step: float) -> float:
        world = {(target, "us"): [300 * MS] * 100 for target in (1, 2)}
        late = {(target, "eu"): list(400 * MS + step * target + noise[target - 1]) for target in (1, 2)}
        return width(costs({**world, **late})[1])

    assert width_of(wave, 0) > 2 * width_of(flat, 0)
    assert width_of(flat, 2 * MS) < 1.5 * width_of(flat, 0)


def held(worlds: Iterable[World]) -> int:
    """Return in how many worlds the interval of the farther region holds the true cost of 100 ms."""
    lines = [costs(world)[1] for world in worlds]
    assert all(line.added_low is not None and line.added_high is not None for line in lines)
    return sum((line.added_low or 0.0) <= 100 * MS <= (line.added_high or 0.0) for line in lines)


def test_the_interval_holds_the_truth() -> None:
    """Over many worlds with autocorrelated noise the interval has the true cost in it about as often as it says."""
    rng = np.random.default_rng(7)

    def noise(n: int) -> np.ndarray:
        found = np.zeros(n)
        for place in range(1, n):
            found[place] = 0.6 * found[place - 1] + rng.normal(0, 10 * MS)
        return found

    worlds = (
        {(t, r): list((300 + 100 * (r == "eu")) * MS + noise(120)) for t in (1, 2) for r in ("us", "eu")}
        for _ in range(100)
    )
    assert held(worlds) >= 86


@pytest.mark.parametrize("targets", [1, 8])
def test_a_shock_that_all_targets_share_counts_once(targets: int) -> None:
    """Eight targets under a common shock show little more than one, and intervals keep their coverage."""
    rng = np.random.default_rng(9)

    def world() -> World:
        shock = rng.normal(0, 20 * MS, 60)
        near = {(target, "us"): noisy(300 * MS, n=60, seed=int(rng.integers(1 << 30))) for target in range(targets)}
        return near | {(target, "eu"): list(400 * MS + shock + rng.normal(0, 20 * MS, 60)) for target in range(targets)}

    assert held(world() for _ in range(100)) >= 88


def test_pairs_of_several_targets_are_no_more_rounds() -> None:
    """Pairs of several targets are no more rounds; a margin of 150 ms makes regions 100 ms apart equivalent."""
    world = {(target, region): noisy(median, n=12, seed=target) for target in (1, 2, 3) for region, median in MEDIANS}
    best, other = costs(world)
    assert (other.n, other.decision, best.decision) == (36, Decision.UNDECIDED, Decision.UNDECIDED)
    assert other.reason.startswith("slower by 100 ms (")
    assert other.reason.endswith(" so far; 12 of 24 rounds needed")
    world = {(1, region): noisy(median, seed=place) for place, (region, median) in enumerate(MEDIANS)}
    assert {line.decision for line in costs(world, margin=Margin(least=150 * MS))} == {Decision.EQUIVALENT}


@pytest.mark.parametrize("lost", [40, 25])
def test_a_region_that_gives_up_early_is_not_the_best(lost: int) -> None:
    """Timeouts after 10 s beside answers after 15 tell no sign; who mostly had them is neither best nor near."""
    given_up = [10_000 * MS if place < lost else 1_000 * MS for place in range(40)]
    world = {
        (1, "us"): noisy(16_000 * MS, seed=1),
        (1, "eu"): noisy(15_000 * MS, seed=2),
        (1, "sg"): given_up,
    }
    best, *others = costs(world, censored=frozenset((1, "sg", place) for place in range(lost)))
    assert best.region == "eu"
    found = {line.region: (line.decision, line.reason) for line in others}
    assert found["us"] == (Decision.SLOWER, "")
    assert found["sg"] == (Decision.UNDECIDED, "most rounds of sg ended in a timeout")


def test_some_timeouts_that_tell_no_sign_are_left_out() -> None:
    """A region that answers mostly is compared by its answers; a pair whose sign is open does not count."""
    world = {
        (1, "us"): noisy(15_000 * MS, seed=1),
        (1, "eu"): [*[10_000 * MS] * 10, *noisy(18_000 * MS, n=30, seed=2)],
    }
    best, other = costs(world, censored=frozenset((1, "eu", place) for place in range(10)))
    assert (best.region, other.region, other.n, other.decision) == ("us", "eu", 30, Decision.SLOWER)


@pytest.mark.parametrize("answered", [0, 10])
def test_among_regions_that_all_time_out_none_is_best(answered: int) -> None:
    """If every region lost most of its rounds, or all, nothing is decided, though limits differ."""
    world = {
        (1, "us"): [60_000 * MS] * 30 + [2_000 * MS] * answered,
        (1, "eu"): [10_000 * MS] * 30 + [1_000 * MS] * answered,
    }
    lost = frozenset((1, region, place) for region in ("us", "eu") for place in range(30))
    assert {line.decision for line in costs(world, censored=lost)} == {Decision.UNDECIDED}


def test_few_rounds_get_a_wider_interval() -> None:
    """Few rounds get a wider interval, however long the best region was probed."""

    def mean_width(n: int) -> float:
        lines = (
            costs({(1, "us"): noisy(300 * MS, n=n, seed=seed), (1, "eu"): noisy(400 * MS, n=n, seed=1000 + seed)})[1]
            for seed in range(40)
        )
        return sum(map(width, lines)) / 40

    assert mean_width(99) > 1.15 * mean_width(100)
    us, sg = noisy(300 * MS, n=288, seed=1), noisy(550 * MS, n=60, seed=3)
    hour, day = (costs({(1, "us"): own, (1, "sg"): sg})[1] for own in (us[:60], us))
    assert (hour.added_low, hour.added_high, hour.n_eff) == (day.added_low, day.added_high, day.n_eff)


def week(daily: float, *regions: str, targets: Sequence[int] = (1,)) -> SeriesLevels:
    """A week in which the first region was slower by `daily` on every other day, for all targets, and then at rest."""
    keys = [(target, region) for target in targets for region in regions]
    days = np.resize(np.repeat([0.0, 1.0], 24), HOURS)
    values = np.array([300 * MS + daily * days * (region == regions[0]) for _, region in keys])
    return SeriesLevels(
        series={key: place for place, key in enumerate(keys)},
        from_at=np.zeros(len(keys), np.int64),
        levels=Levels(values=values, noise=np.zeros(len(keys))),
    )


def noisy_world(*, targets: Sequence[int]) -> World:
    seeds = count()
    return {(target, region): noisy(median, seed=next(seeds)) for target in targets for region, median in MEDIANS}


def test_each_region_that_may_be_the_best_widens_the_others() -> None:
    """The best one is the luckiest of those that are alike; one that is far behind was never a choice."""
    world = {(1, "us"): noisy(300 * MS, n=120, seed=1), (1, "eu"): noisy(304 * MS, n=120, seed=2)}
    alike, far = noisy(302 * MS, n=120, seed=3), noisy(900 * MS, n=120, seed=4)
    of_two, of_three, beside_far = (
        next(line for line in costs(world | more, hourly=week(0, *REGIONS)) if line.region == "eu")
        for more in ({}, {(1, "sg"): alike}, {(1, "sg"): far})
    )
    assert of_two.best_region == of_three.best_region == beside_far.best_region == "us"
    assert width(of_three) > 1.1 * width(of_two)
    assert width(beside_far) == pytest.approx(width(of_two))
    assert of_three.n_eff == pytest.approx(of_two.n_eff)


def test_regions_that_timed_out_were_no_choice() -> None:
    """A region that mostly timed out is never the best one, so it widens nothing."""
    world = {(1, "us"): noisy(300 * MS, n=120, seed=1), (1, "eu"): noisy(304 * MS, n=120, seed=2)}
    lost = frozenset((1, "sg", place) for place in range(80))
    given_up = [60_000 * MS if place < 80 else 300 * MS for place in range(120)]
    one, other = (
        next(line for line in costs(world | more, censored=lost, hourly=week(0, *REGIONS)) if line.region == "eu")
        for more in ({}, {(1, "sg"): given_up})
    )
    assert width(one) == pytest.approx(width(other))


def test_the_past_week_widens_the_cost_of_a_calm_window() -> None:
    """The past week widens the cost of a calm window; drift that targets do not share averages out."""
    world = noisy_world(targets=(1, 2))
    names = ("eu", "us")
    unsteady, steady = (costs(world, hourly=week(daily, *names, targets=(1, 2)))[1] for daily in (200 * MS, 0.0))
    assert (unsteady.decision, steady.decision) == (Decision.UNDECIDED, Decision.SLOWER)
    assert width(unsteady) > 10 * width(steady)
    world = noisy_world(targets=range(4))
    every, one = week(200 * MS, "eu", "us", targets=range(4)), week(0.0, "eu", "us", targets=range(4))
    one.levels.values[0] = every.levels.values[0]
    shared, alone = (costs(world, hourly=hourly)[1] for hourly in (every, one))
    assert width(shared) == pytest.approx(4 * width(alone), rel=0.1)


def test_decisions_without_a_week_are_provisional() -> None:
    """Without 48 hours of history a decision says so, and so does that on the best region."""
    world = {(1, region): noisy(median, seed=place) for place, (region, median) in enumerate(MEDIANS)}
    assert [line.provisional for line in costs(world)] == [True, True]
    known = week(0.0, "eu", "us")
    assert [line.provisional for line in costs(world, hourly=known)] == [False, False]
    known.levels.values[:, 40:] = np.nan
    assert [line.provisional for line in costs(world, hourly=known)] == [True, True]
    undecided = costs({(1, region): noisy(median, n=9) for region, median in MEDIANS})
    assert [line.provisional for line in undecided] == [False, False]


def test_equivalence_is_corrected_for_all_comparisons() -> None:
    """An interval that is just within the margin makes one line equivalent, but not beside four that are not."""
    alike = {(0, "us"): noisy(300 * MS, seed=20), (0, "eu"): noisy(302 * MS, seed=21)}
    world = {**noisy_world(targets=range(5)), **alike}
    hourly = week(0.0, "eu", "us", targets=range(5))
    line = costs(alike, hourly=hourly)[1]
    margin = Margin(least=1.01 * max(-present(line.added_low), present(line.added_high)), share=0.0)
    assert costs(alike, hourly=hourly, margin=margin)[1].decision is Decision.EQUIVALENT
    beside = costs(world, hourly=hourly, margin=margin, providers={target: str(target) for target in range(5)})[1]
    assert beside.decision is Decision.UNDECIDED
    assert beside.reason.startswith("may be chance among 5 comparisons")
