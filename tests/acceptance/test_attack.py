"""Attacks of several kinds on a collector while agents push, in short."""

import pytest

from bench import attack


@pytest.mark.slow
def test_attacks_are_refused_and_take_little_memory() -> None:
    """Every attack is refused and every push of live agents stored; the benchmark alone measures the pushes' delay."""
    assert attack.main(["--quick"]) == 0
