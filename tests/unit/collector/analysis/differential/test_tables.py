"""Decisions in large tables of short windows: drift is slower than the window, and chance has many occasions."""

import pytest

from bench.truth.decisions import lone_pairs, mixed_tables, null_tables_with_a_decision_pct, wrong_equivalent_pct

SEED = 5


@pytest.mark.parametrize("has_history", [False, True])
def test_equal_pairs_are_not_decided_by_drift(monkeypatch: pytest.MonkeyPatch, *, has_history: bool) -> None:
    """Among 2 200 equal pairs of 60 rounds, three tenths of whose variance is drift, none is decided."""
    monkeypatch.setattr("bench.truth.decisions.NULL_TABLES", 1)
    assert null_tables_with_a_decision_pct(SEED, has_history=has_history) == 0


@pytest.mark.parametrize("has_history", [False, True])
def test_large_differences_are_decided_nevertheless(monkeypatch: pytest.MonkeyPatch, *, has_history: bool) -> None:
    """In tables with true differences these are decided, with the right sign, and hardly any equal pair."""
    monkeypatch.setattr("bench.truth.decisions._MIXED_DRIFTS", (0.3,))
    found = mixed_tables(SEED, has_history=has_history)
    assert found.decided > 50
    assert found.false_share_of_decisions_pct <= 5
    assert found.wrong_sign_pct <= 5


def test_equivalence_is_rarely_wrong_under_drift() -> None:
    """Pairs that differ by the margin are called equivalent in at most 5 %, a tenth of their variance being drift."""
    assert wrong_equivalent_pct(SEED) <= 5


def test_pairs_alone_are_rarely_decided_wrongly() -> None:
    """Of the decisions on pairs one by one, with drift up to three tenths, at most 5 % are false or of wrong sign."""
    found = lone_pairs(SEED, pairs=300)
    assert found.decided > 80
    assert found.false_share_of_decisions_pct <= 5
    assert found.wrong_sign_pct <= 5
