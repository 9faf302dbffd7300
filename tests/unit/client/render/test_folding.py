"""Folding of text: between words, and within a word only if it is longer than a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from isochrone_client.render.table import fold, shortened, text_width, words


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("openai/gpt-5-mini", 17, ["openai/gpt-5-mini"]),
        ("openai/gpt-5-mini", 16, ["openai/", "gpt-5-mini"]),
        ("to openai/gpt-5-mini", 17, ["to", "openai/gpt-5-mini"]),
        ("ok 1430, throttled 6", 10, ["ok 1430,", "throttled", "6"]),
        ("slower by 31 ms, or so", 12, ["slower by", "31 ms, or so"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("千问千问", 4, ["千问", "千问"]),
        ("", 5, [""]),
        ("   ", 2, [""]),
    ],
)
def test_lines_break_between_words(text: str, width: int, lines: list[str]) -> None:
    """A line breaks at spaces, but not before a unit; a word that does not fit breaks after a slash."""
    assert fold(text, width) == lines


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("openai/gpt-5-mini", 8, ["openai/", "gpt-…ini"]),
        ("deepseek-v4-flash", 9, ["deep…lash"]),
        ("千问千问千问", 7, ["千问…问"]),
        ("abc", 1, ["…"]),
    ],
)
def test_a_name_that_does_not_fit_loses_its_middle(text: str, width: int, lines: list[str]) -> None:
    """A shortened name has an ellipsis in the place of what is missing, and keeps its beginning and its end."""
    assert fold(text, width, shorten=True) == lines


@given(st.text(alphabet=st.characters(categories=["L", "N", "P"]), max_size=80), st.integers(2, 40))
def test_folding_loses_nothing_and_fits(text: str, width: int) -> None:
    """The joined lines are the text, and no line is wider than the limit; a shortened one is not, either."""
    lines = fold(text, width)
    assert "".join(lines) == text
    assert all(cell_len(line) <= width for line in lines)
    assert cell_len(shortened(text, width)) <= width


@given(st.lists(st.sampled_from(["to", "openai/gpt-5-mini", "31 ms", "deepseek-v4-flash,"]), min_size=1), st.data())
def test_words_stay_whole(parts: list[str], data: st.DataObject) -> None:
    """If every word fits, the lines have the same words as the text."""
    text = " ".join(parts)
    width = data.draw(st.integers(max(map(text_width, words(text))), 80))
    assert " ".join(fold(text, width)) == text


@given(st.text(alphabet=st.characters(exclude_categories=["C", "Zl", "Zp"])))
def test_the_width_is_that_of_a_terminal(text: str) -> None:
    """The short way for common characters gives the same width as the table of all characters."""
    assert text_width(text) == cell_len(text)
