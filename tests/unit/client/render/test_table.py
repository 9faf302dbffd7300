"""Folding of long names in tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from isochrone_client.render.table import fold


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("openai/gpt-5-mini", 20, ["openai/gpt-5-mini"]),
        ("openai/gpt-5-mini", 17, ["openai/gpt-5-mini"]),
        ("openai/gpt-5-mini", 16, ["openai/gpt-5-", "mini"]),
        ("deepseek/deepseek-v4-flash", 18, ["deepseek/deepseek-", "v4-flash"]),
        ("ok 1430, throttled 6", 10, ["ok 1430,", "throttled", "6"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("千问千问", 4, ["千问", "千问"]),
        ("", 5, [""]),
        ("   ", 2, [""]),
    ],
)
def test_names_break_at_separators(text: str, width: int, lines: list[str]) -> None:
    """A line breaks after a slash, hyphen, comma or space if one fits."""
    assert fold(text, width) == lines


@given(st.text(alphabet=st.characters(categories=["L", "N", "P"]), max_size=80), st.integers(2, 40))
def test_folding_loses_nothing_and_fits(text: str, width: int) -> None:
    """The joined lines are the text, and no line is wider than the limit."""
    lines = fold(text, width)
    assert "".join(lines) == text
    assert all(cell_len(line) <= width for line in lines)
