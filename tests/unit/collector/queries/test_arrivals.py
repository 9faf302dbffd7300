"""Arrivals: new batches are read in groups."""

from isochrone_collector.queries.samples import grouped
from isochrone_collector.store.batches import NewBatch


def batch(seq: int, stored: int) -> NewBatch:
    return NewBatch((1, 1, seq), "us", 0, 0, stored, seq, None)


def test_groups_are_of_about_a_size() -> None:
    """Batches are read together up to a number of samples; a larger one is read alone."""
    batches = [batch(seq, stored) for seq, stored in enumerate((10, 10, 10, 50, 5))]
    assert [[row.key[2] for row in group] for group in grouped(batches, samples=20)] == [[0, 1], [2], [3], [4]]
    assert list(grouped([], samples=20)) == []
