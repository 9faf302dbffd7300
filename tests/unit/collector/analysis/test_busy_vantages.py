"""Probes of a busy vantage are not compared with others."""

import numpy as np

from isochrone_collector.analysis.probe_records import BUSY_CELL_US, COMPARABLE, comparable

BEGIN_AT = 1_795_219_200_000_000
FINE, BUSY = COMPARABLE, 0


def kept(*probes: tuple[int, int, int]) -> list[bool]:
    """Whether each probe, a vantage with a cell of time and the traits, can be compared."""
    vantage, cell, traits = (np.array(column) for column in zip(*probes, strict=True))
    return list(map(bool, comparable(traits.astype(np.int16), vantage, BEGIN_AT + cell * BUSY_CELL_US)))


def test_a_busy_vantage_is_left_out_of_its_minutes() -> None:
    """Probes without the trait are left out, and the others of a vantage in five minutes in which most lack it."""
    assert kept((1, 0, FINE), (1, 0, BUSY), (1, 0, BUSY)) == [False] * 3
    assert kept((1, 0, FINE), (1, 0, BUSY)) == [True, False]
    assert kept((1, 0, FINE), (2, 0, BUSY), (2, 0, FINE), (2, 0, BUSY)) == [True, False, False, False]
    assert kept((1, 0, BUSY), (1, 1, FINE), (1, 1, FINE)) == [False, True, True]
    assert kept((1, 0, FINE), (1, 1, FINE)) == [True, True]


def test_no_probes() -> None:
    """Of no probe none is left out."""
    assert comparable(np.empty(0, np.int16), np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []
