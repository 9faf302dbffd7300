"""Attacks of several kinds on a collector while agents push, in short."""

import pytest

from bench import attack


@pytest.mark.slow
def test_attacks_are_refused_and_take_little_memory() -> None:
    """Idle connections, bytes that trickle, 30 bombs, long fields, guesses, junk and long plans are refused, and every
    push of the live agents is stored. The delay of their pushes is measured by the benchmark only.
    """
    assert attack.main(["--quick"]) == 0
