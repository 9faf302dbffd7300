"""The layout of tables: what is left out, shortened and folded, in which order."""

from hypothesis import given
from hypothesis import strategies as st

from isochrone_client.render.table import GAP, Extent, Place, arrange

NAME = Extent(natural=26, least=26, flexible=True, short=Extent(natural=17, least=17, flexible=True))
NUMBER = Extent(natural=6, least=6)
DETAIL = Extent(natural=6, least=6, priority=2)
REMARK = Extent(natural=60, least=20, priority=1, flexible=True)


def shown(width: int) -> list[tuple[int, int, bool]]:
    """The index, width and shortness of each column of a table of these four."""
    return [(place.index, place.width, place.is_short) for place in arrange([NAME, NUMBER, DETAIL, REMARK], width)]


def test_nothing_is_left_out_if_everything_fits() -> None:
    """On a wide screen every column has its full width, and no more."""
    assert shown(200) == [(0, 26, False), (1, 6, False), (2, 6, False), (3, 60, False)]


def test_text_gets_what_the_others_leave() -> None:
    """Text is folded before anything is left out, and fills the line."""
    assert shown(90) == [(0, 26, False), (1, 6, False), (2, 6, False), (3, 46, False)]


def test_names_are_shortened_first() -> None:
    """On a narrower screen the names have their shorter texts, and all columns remain."""
    assert shown(60) == [(0, 17, True), (1, 6, False), (2, 6, False), (3, 25, False)]


def test_the_least_important_column_goes_first() -> None:
    """Then the column with the largest priority is left out, and names are full again if there is room."""
    assert shown(50) == [(0, 17, True), (1, 6, False), (3, 23, False)]
    assert shown(40) == [(0, 26, False), (1, 6, False)]
    assert shown(30) == [(0, 17, True), (1, 6, False)]


def test_a_name_becomes_narrower_than_its_words_at_last() -> None:
    """If the columns that always remain do not fit, a name gives way, and a number does not."""
    assert arrange([NAME, NUMBER], 20) == (Place(index=0, width=12, is_short=True), Place(index=1, width=6))


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


@given(EXTENTS, st.integers(60, 200))
def test_a_line_always_fits(extents: list[Extent], width: int) -> None:
    """The columns fit into the width, and every column of priority 0 is among them."""
    places = arrange(extents, width)
    assert sum(place.width for place in places) + GAP * (len(places) - 1) <= width
    assert {index for index, extent in enumerate(extents) if not extent.priority} <= {place.index for place in places}
