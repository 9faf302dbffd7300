"""Joint rounds: the rows in which all of some members have a value."""

import pytest

from testdata.routing_inputs import AT, joint_rounds

NAN = float("nan")


def test_only_complete_rows_are_joint() -> None:
    """A row counts for those members only that all have a value in it; a member without any has no joint row."""
    rows = joint_rounds(10, a=[100, 200, NAN], b=[300, NAN, 500])
    rounds_at, ttft_us = rows.of("a", "b")
    assert rounds_at.tolist() == [AT - 20]
    assert ttft_us.tolist() == [pytest.approx([100e3, 300e3], rel=0.01)]
    assert [len(rows.of(*names)[0]) for names in (("a",), ("b",), ("c",), ("a", "c"))] == [2, 2, 0, 0]
