"""Fifteen targets from twelve regions on screens of 80 and 140 columns, exactly as in the golden files, in `golden/`.

To update the files: `PYTHONPATH=tests python tests/unit/client/pages/test_twelve_regions.py`.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from isochrone_client.live_view.answers import matrix_of, snapshot
from isochrone_client.live_view.screens import View, screen
from isochrone_client.live_view.state import ViewState
from isochrone_client.pages import differentials, routes
from isochrone_client.pages.matrix import fitting_page, region_codes
from isochrone_client.render import renderer
from isochrone_client.render.page import Page, RenderOptions
from isochrone_wire.answers import Metric
from testdata.client_answers import BASELINE
from testdata.insights import NOW_AT
from testdata.routes import TABLES
from testdata.twelve_regions import DIFFERENTIALS, LIVE_ANSWERS, REGIONS, TARGETS

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (80, 140)
ROWS = DIFFERENTIALS.differentials


def text(page: Page[str], width: int) -> str:
    return renderer("table").whole(page, RenderOptions(width=width, wide=False))


def diff(width: int) -> str:
    return text(differentials.in_one_table(DIFFERENTIALS, ROWS, sort="target", width=width, now_at=NOW_AT), width)


def watch(width: int) -> str:
    return text(snapshot(LIVE_ANSWERS, sort="name", width=width), width)


def demo(width: int) -> str:
    return text(fitting_page(matrix_of(LIVE_ANSWERS), "last 60s, in ms", width=width), width)


def live(width: int) -> str:
    view = View(answers=LIVE_ANSWERS, state=ViewState(question=LIVE_ANSWERS.question), now_at=NOW_AT)
    return "".join(f"{line.plain.rstrip()}\n" for line in screen(view, width=width, height=width // 2))


SURFACES: dict[str, Callable[[int], str]] = {"diff": diff, "watch": watch, "demo": demo, "live": live}


def screens(name: str) -> str:
    return "\n".join(f"{'-' * (width - 11)} {width} columns\n{SURFACES[name](width)}" for width in WIDTHS)


@pytest.mark.parametrize("name", SURFACES)
def test_screens_match_the_golden_files(name: str) -> None:
    """A matrix of twelve regions has exactly the text of its golden file."""
    assert screens(name) == (GOLDEN / f"twelve-{name}.txt").read_text()


@pytest.mark.parametrize("width", [80, 100, 140, 200])
@pytest.mark.parametrize("name", SURFACES)
def test_one_table_has_every_region_and_target(name: str, width: int) -> None:
    """One table has a column for each region, whose name is nowhere broken, and both numbers of every place."""
    found = SURFACES[name](width)
    assert max(map(len, found.splitlines())) <= width
    lines = [line.removeprefix("▸").split() for line in found.splitlines()]
    [heading] = [line for line in lines if line[:1] == ["target"]]
    codes = region_codes((BASELINE, *REGIONS))
    is_short = heading[1:] == [*codes.values()]
    assert is_short or heading[1:] == [*codes]
    assert all(region in found.split() or f"{region}," in found.split() for region in codes)
    first = next(place for place, line in enumerate(lines) if line[:1] == heading[:1]) + 1 + (not is_short)
    of_targets = lines[first : first + len(TARGETS) * (1 + is_short)]
    numbers = [word for line in of_targets for word in line[0 if line[0][0] in "+-" else 1 :]]
    signed = [word for word in re.sub("[?=]", " ", " ".join(numbers)).split() if word[0] in "+-"]
    assert len(signed) in (len(ROWS) - 1, len(ROWS) - 2), "one has no difference, and one has an early one"
    assert "left out" not in found


def test_a_code_tells_regions_apart() -> None:
    """Codes are like those of the zones of AWS, and longer where two regions would have the same."""
    assert region_codes(("us-east-2", "ap-southeast-1", "europe-west4", "lab")) == {
        "us-east-2": "use2",
        "ap-southeast-1": "apse1",
        "europe-west4": "euw4",
        "lab": "lab",
    }
    assert region_codes(("frankfurt", "frascati")) == {"frankfurt": "fran", "frascati": "fras"}
    alike = ("office-berlin", "office_berlin")
    assert region_codes(alike) == dict(zip(alike, alike, strict=True))


def test_route_tables_keep_p95() -> None:
    """At 80 columns a route table has p50 and p95, and each region's name is whole."""
    tables = tuple(replace(TABLES[0], client_region=region) for region in REGIONS)
    found = renderer("table").whole(routes.page(tables, now_at=NOW_AT), RenderOptions(width=80, wide=False))
    assert all(f"from {region}:" in found for region in REGIONS)
    headings = [line.split() for line in found.splitlines() if line.startswith("rank")]
    assert all({"p50", "p95"} <= {*heading} for heading in headings)


def test_three_regions_have_their_own_tables() -> None:
    """Up to three regions have a table each, with intervals and causes; more have a column each."""
    of = {count: tuple(row for row in ROWS if row.region in REGIONS[:count]) for count in (3, 4)}
    assert [differentials.has_many_regions(of[count]) for count in (3, 4)] == [False, True]
    page = differentials.page(DIFFERENTIALS, of[3], metric=Metric.TTFT, now_at=NOW_AT)
    assert len({table.heading for table in page.tables()}) == 3


if __name__ == "__main__":
    for surface in SURFACES:
        (GOLDEN / f"twelve-{surface}.txt").write_text(screens(surface))
