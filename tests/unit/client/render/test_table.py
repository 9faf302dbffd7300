"""Tables: folding of text between words, and the layout, with what is left out, shortened and folded in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from isochrone_client.render.table import Extent, Place, arrange, fold, shortened, text_width, words


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


NAME = Extent(natural=26, least=26, flexible=True, short=Extent(natural=17, least=17, flexible=True))
NUMBER = Extent(natural=6, least=6)
DETAIL = Extent(natural=6, least=6, priority=2)
REMARK = Extent(natural=60, least=20, priority=1, flexible=True)


def shown(width: int) -> list[tuple[int, int, bool]]:
    """The index, width and shortness of each column of a table of these four."""
    return [(place.index, place.width, place.is_short) for place in arrange([NAME, NUMBER, DETAIL, REMARK], width, 2)]


@pytest.mark.parametrize(
    ("width", "places"),
    [
        (200, [(0, 26, False), (1, 6, False), (2, 6, False), (3, 60, False)]),
        # Text is folded before anything is left out, and fills the line.
        (90, [(0, 26, False), (1, 6, False), (2, 6, False), (3, 46, False)]),
        # Then names have their shorter texts, and all columns remain.
        (60, [(0, 17, True), (1, 6, False), (2, 6, False), (3, 25, False)]),
        # Then the column with the largest priority is left out, and names are full again if there is room.
        (50, [(0, 17, True), (1, 6, False), (3, 23, False)]),
        (40, [(0, 26, False), (1, 6, False)]),
        (30, [(0, 17, True), (1, 6, False)]),
    ],
)
def test_columns_give_way_in_order(width: int, places: list[tuple[int, int, bool]]) -> None:
    """On a wide screen every column has its full width, and no more; on a narrower one they give way in an order."""
    assert shown(width) == places


def test_a_name_becomes_narrower_than_its_words_at_last() -> None:
    """If the columns that always remain do not fit, a name gives way, and a number does not."""
    assert arrange([NAME, NUMBER], 20, 2) == (Place(index=0, width=12, is_short=True), Place(index=1, width=6))


EXTENTS = st.lists(
    st.builds(
        lambda least, more, priority, flexible: Extent(
            natural=least + more, least=least, priority=priority, flexible=flexible
        ),
        least=st.integers(1, 90),
        more=st.integers(0, 40),
        priority=st.integers(0, 3),
        flexible=st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


@given(EXTENTS, st.integers(60, 200), st.integers(0, 2))
def test_a_line_always_fits(extents: list[Extent], width: int, gap: int) -> None:
    """The columns fit into the width, and every column of priority 0 is among them."""
    places = arrange(extents, width, gap)
    assert sum(place.width for place in places) + gap * (len(places) - 1) <= width
    assert {index for index, extent in enumerate(extents) if not extent.priority} <= {place.index for place in places}
