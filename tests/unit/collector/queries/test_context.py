"""Names of a selection."""

import pytest

from isochrone_collector.errors import BadRequest
from isochrone_collector.queries.context import _match_targets, check_regions

KNOWN = [f"p/m-{number}" for number in range(10)]


def test_names_are_those_that_a_pattern_matches() -> None:
    """Two hundred patterns are allowed, and none selects everything."""
    assert _match_targets(["p/m-1", "*-2"] * 100, KNOWN) == {"p/m-1", "p/m-2"}
    assert _match_targets([], KNOWN) is None


@pytest.mark.parametrize("names", [["*"] * 201, ["*" * 501]])
def test_a_selection_is_bounded(names: list[str]) -> None:
    """A reader cannot keep the event loop busy for minutes with millions of patterns, or with a huge one."""
    with pytest.raises(BadRequest, match="at most 200 names of at most 500 characters"):
        _match_targets(names, KNOWN)
    with pytest.raises(BadRequest, match="at most 200 names"):
        check_regions(names, ["*"])
