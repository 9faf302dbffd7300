"""Sums of pairs by rank, found without writing all of them down."""

import numpy as np
import pytest

from isochrone_collector.analysis.stats import pair_sums
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_collector.analysis.stats.pair_sums import PairSums

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


def ordered(values: Reals) -> Reals:
    return np.sort(values)


def test_a_single_number_has_one_sum() -> None:
    """The smallest case."""
    one = ordered(np.array([3.0]))
    assert PairSums(a=one, b=one, from_j=np.arange(1)).select(1) == 6.0
