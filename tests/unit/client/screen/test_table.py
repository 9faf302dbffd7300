"""Tables of boards beyond those of the demo: marks, bars and other metrics."""

import pytest

from isochrone_client.screen.board import Board, Cell
from isochrone_client.screen.table import FORMS_WITH_BARS, Scale, table
from isochrone_wire.answers import Decision

SPEED = Scale(heading="speed", unit="tokens/s", decimals=1)


def row(cell: Cell, *, width: int = 60, scale: Scale | None = None) -> str:
    """The line of a target with one cell besides the baseline."""
    cells = {("acme/m", "home"): Cell(value=2e5, bars="▃▃▃▃▃▃▃▃"), ("acme/m", "away"): cell}
    board = Board(baseline="home", regions=("away",), targets=("acme/m",), cells=cells)
    return table(board, title="", width=width, forms=FORMS_WITH_BARS, scale=scale or Scale())[-1].plain


def firm(decision: Decision, **more: object) -> Cell:
    """A cell with a difference."""
    return Cell(value=235e3, shift=35e3, low=33e3, high=37e3, decision=decision, bars="▃▄▅", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cell", "mark"),
    [
        (firm(Decision.SLOWER), " "),
        (firm(Decision.EQUIVALENT), "="),
        (firm(Decision.MIXED), "~"),
        (firm(Decision.UNDECIDED), "?"),
        (firm(Decision.UNDECIDED, is_stale=True), "○"),
        (firm(Decision.UNDECIDED, is_stale=True, changed=1.0), "▲"),
        (firm(Decision.UNDECIDED, is_stale=True, changed=1.0, is_failing=True), "✗"),
    ],
)
def test_without_words_a_mark_has_the_decision(cell: Cell, mark: str) -> None:
    """Where there is no room for words, a mark replaces them, and the gravest one is shown."""
    assert f" 235{mark} " in row(cell, width=42)
    assert "faster" not in row(cell, width=42)


def test_bars_end_at_the_right() -> None:
    """Bars are the newest ones, and fewer than there is room for are at the right, where the newest belong."""
    assert row(firm(Decision.SLOWER), width=42).endswith("   ▃▄▅")
    assert "▃▃▃▃▃▃ " in row(firm(Decision.SLOWER), width=42)
    assert "▃▃▃▃▃▃▃" not in row(firm(Decision.SLOWER), width=42)


def test_rates_have_a_decimal() -> None:
    """A speed is shown in its own unit with a decimal, and its error is rounded up."""
    cell = Cell(value=60.25, shift=-3.04, low=-3.61, high=-2.5, decision=Decision.SLOWER)
    assert row(cell, width=140, scale=SPEED).split()[-4:] == ["60.2", "-3.0", "±0.6", "slower"]
