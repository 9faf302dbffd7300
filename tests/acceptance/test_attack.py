"""Attacks of several kinds on a collector while agents push, in short."""

import pytest

from bench import attack
from bench.result import at_least, at_most


def test_attacks_are_refused_and_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand idle connections, bytes that trickle, bombs, long fields, guesses, junk and long plans are refused;
    every push of the live agents is stored. The delay of their pushes is measured by the benchmark only.
    """
    monkeypatch.setattr(attack, "GOALS", {"collector_peak_mb": at_most(600), "refused_pct": at_least(100)})
    monkeypatch.setattr(attack, "IDLE_SECONDS", 1.0)
    monkeypatch.setattr(attack, "WARM_SECONDS", 1.0)
    assert attack.main(["--quick"]) == 0
