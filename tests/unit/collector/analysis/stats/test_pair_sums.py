"""Sums of pairs and Walsh averages by rank: the same as listing and sorting all of them."""

import numpy as np
import pytest

from isochrone_collector.analysis.stats import pair_sums
from isochrone_collector.analysis.stats.arrays import Integers, Reals, ragged
from isochrone_collector.analysis.stats.pair_sums import PairSums, walsh_averages
from isochrone_collector.analysis.stats.shifts import interval_depth

SHAPES = ("even", "normal", "skewed", "wild", "tied", "two clumps", "all the same", "one far off")
LENGTHS = (1, 2, 3, 6, 7, 25, 117, 120, pair_sums._MAX_LISTED_N, pair_sums._MAX_LISTED_N + 1)


def row(shape: str, n: int, chance: np.random.Generator) -> Reals:
    values = {
        "even": chance.uniform(-1, 1, n),
        "normal": chance.normal(3, 2, n),
        "skewed": chance.lognormal(0, 2, n),
        "wild": chance.standard_cauchy(n),
        "tied": chance.integers(-3, 3, n).astype(np.float64),
        "two clumps": chance.choice([-1e6, 1e6], n) + chance.normal(0, 1, n),
        "all the same": np.full(n, 0.1),
        "one far off": np.where(np.arange(n) == n // 2, -1e9, chance.normal(0, 1, n)),
    }
    return values[shape]


def by_sorting(values: Reals, ranks: Integers) -> list[float]:
    """The averages of these ranks among all, written down."""
    ordered = np.sort(values)
    i, j = np.triu_indices(len(ordered))
    found: list[float] = np.sort((ordered[i] + ordered[j]) / 2)[ranks - 1].tolist()
    return found


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("slack", [pair_sums._BAND_SLACK, 0.01], ids=["usual", "too narrow"])
def test_the_ranks_in_a_band_are_those_among_all(n: int, slack: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the values look like and however narrow the first band is, every rank is the one among all averages."""
    monkeypatch.setattr(pair_sums, "_SLACK", slack)
    chance = np.random.default_rng(n)
    rows = [row(shape, n, chance) for shape in SHAPES]
    total = n * (n + 1) // 2
    depth = 1 + 2 * total // 5
    for ranks in (
        [total // 2 + 1, -(-total // 2)],
        [1, total],
        [depth, total + 1 - depth, -(-total // 2)],
        [1],
        [total],
    ):
        wanted = np.array(ranks)
        found = walsh_averages(ragged(rows), np.tile(wanted, (len(rows), 1)))
        assert found.tolist() == [by_sorting(values, wanted) for values in rows]


def test_rows_of_any_length_come_together() -> None:
    """Each row has its own ranks, and one without values has no average."""
    chance = np.random.default_rng(1)
    rows = [chance.normal(0, 1, n) for n in (5, 0, 9, 5, 40)]
    ranks = np.array([[1], [1], [45], [1], [400]])
    found = walsh_averages(ragged(rows), ranks)
    assert np.isnan(found[1, 0])
    assert [found[nth, 0] for nth in (0, 2, 3, 4)] == [by_sorting(rows[nth], ranks[nth])[0] for nth in (0, 2, 3, 4)]


def test_most_rows_of_probes_need_a_single_band() -> None:
    """Of differences as rounds of a day give them, more than four of five rows are found in the first band."""
    chance = np.random.default_rng(20261121)
    ordered = np.sort(chance.lognormal(13, 0.25, (200, 117)) - chance.lognormal(13, 0.25, (200, 117)), axis=1)
    bound = interval_depth(117)
    assert bound is not None
    for rank, slack in ((117 * 118 // 4 + 1, pair_sums._MEDIAN_SLACK), (bound, pair_sums._BAND_SLACK)):
        band = pair_sums._band(117, rank, rank, slack / np.sqrt(117))
        _, sure = pair_sums._sought(ordered, np.array([rank - 1 - band.below]), band)
        assert np.count_nonzero(sure) > 0.8 * len(ordered)
        assert len(band.i) < 1.02 * 117 * 118 / 2 / pair_sums._SHARE


CHANCE = np.random.default_rng(20261121)
KINDS = {
    "smooth": CHANCE.lognormal(12, 1, 300),
    "tied": np.round(CHANCE.normal(0, 3, 300)) * 1_000,
    "outliers": np.concatenate([CHANCE.normal(0, 1, 290), CHANCE.normal(6e10, 1, 10)]),
    "equal": np.full(300, 4_000.0),
    "zero": np.zeros(300),
    "two values": np.repeat([1.0, 2.0], 150),
}


@pytest.mark.parametrize("listed", [pair_sums.MAX_LISTED, 40], ids=["listed", "halved"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_rank_is_found(kind: str, listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank has the sum that a sorted list of all has, whether few sums fit in memory or many, ties or none."""
    monkeypatch.setattr(pair_sums, "MAX_LISTED", listed)
    a = np.sort(KINDS[kind])
    one = np.array([3.0])
    assert PairSums(a=one, b=one, from_j=np.arange(1)).select(1) == 6.0
    for b, from_j, sums in (
        (a, np.arange(len(a)), np.sort((a[:, None] + a)[np.triu_indices(len(a))])),
        (a[:7], np.zeros(len(a), dtype=np.int64), np.sort((a[:, None] + a[:7]).ravel())),
    ):
        pairs = PairSums(a=a, b=b, from_j=from_j)
        assert pairs.total == len(sums)
        for rank in (1, 2, len(sums) // 3, len(sums) // 2 + 1, len(sums) - 1, len(sums)):
            assert pairs.select(rank) == pytest.approx(sums[rank - 1], rel=1e-12, abs=1e-3), rank


def test_a_hundred_million_sums_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand numbers with as many others, never more sums are written down at once than the limit says."""
    sizes = []
    listed = PairSums._listed

    def counted(self: PairSums, low: float, high: float, rank: int) -> float:
        sizes.append(int((self._until(high) - self._until(low)).sum()))
        return listed(self, low, high, rank)

    monkeypatch.setattr(PairSums, "_listed", counted)
    a, b = (np.sort(np.random.default_rng(seed).normal(0, 1, 10_000)) for seed in (1, 2))
    pairs = PairSums(a=a, b=b, from_j=np.zeros(len(a), dtype=np.int64))
    middle = pairs.select(pairs.total // 2)
    assert abs(middle) < 0.05
    assert max(sizes) <= pair_sums.MAX_LISTED
