"""Golden pictures of every answer in every format, in `golden/`: what programs and people may rely on.

A change here is a change of what `isochrone` promises; for JSON and CSV it needs another schema version unless it only
adds. After a change on purpose: `PYTHONPATH=tests python tests/unit/client/test_golden.py`.
"""

from pathlib import Path
from typing import Any

import pytest

from fix_observatory import COVERAGE, DIFFERENTIALS, NOW_AT, SAMPLES, SPEND, STANDINGS, TARGETS, VANTAGES, WINDOW
from isochrone_client.pages import coverage, differentials, leaderboard, regions, samples, spend, targets
from isochrone_client.render import OUTPUTS, renderer
from isochrone_client.render.page import Look, Page
from isochrone_wire.answers import CoverageList, DifferentialList, Leaderboard, Metric, SpendList

GOLDEN = Path(__file__).parent / "golden"
SUFFIX_OF = {"table": "txt", "json": "json", "csv": "csv", "markdown": "md"}
ANSWER = DifferentialList(window=WINDOW, differentials=DIFFERENTIALS)
PAGES: dict[str, Page[Any]] = {
    "diff": differentials.page(
        ANSWER, differentials.arranged(ANSWER, sort="shift", only=None), metric=Metric.TTFT, now_at=NOW_AT
    ),
    "leaderboard": leaderboard.page(Leaderboard(window=WINDOW, standings=STANDINGS)),
    "targets": targets.page(TARGETS),
    "samples": samples.page(SAMPLES, window=WINDOW, now_at=NOW_AT),
    "coverage": coverage.page(CoverageList(window=WINDOW, coverage=COVERAGE), now_at=NOW_AT),
    "regions": regions.page(VANTAGES),
    "spend": spend.page(SpendList(spend=SPEND)),
}


def picture(name: str, output: str) -> Path:
    return GOLDEN / f"{name}.{SUFFIX_OF[output]}"


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", PAGES)
def test_answers_look_as_promised(name: str, output: str) -> None:
    """The same answer is written the same way as in the last release, to the letter."""
    assert renderer(output).whole(PAGES[name], Look()) == picture(name, output).read_text()


if __name__ == "__main__":
    for page_name, page in PAGES.items():
        for output_name in OUTPUTS:
            picture(page_name, output_name).write_text(renderer(output_name).whole(page, Look()))
