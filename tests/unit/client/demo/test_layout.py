"""The lines of the demo's screen at many sizes."""

import re

import pytest

from isochrone_client.demo.layout import Progress, View, board_table, screen
from isochrone_client.demo.scenario import SUGGESTIONS
from isochrone_client.formats import UNKNOWN
from isochrone_client.screen.board import Board, Cell
from isochrone_client.screen.table import CHANGED_MARK
from isochrone_wire.answers import Decision

REGIONS = ("us-east-2", "ap-southeast-1", "eu-central-1")
TARGETS = (
    *("stepfun/step-3.5-flash", "deepseek/deepseek-v4-flash", "tencent/hunyuan-turbos", "qwen/qwen3-8b"),
    *("qwen/qwen3-32b", "bytedance/doubao-seed-lite", "tencent/hunyuan-turbo", "zhipu/glm-4-32b"),
    *("qwen/qwen3.5-27b", "deepseek/deepseek-v4-pro", "minimax/minimax-m2.5", "zhipu/glm-5"),
    *("moonshot/kimi-k2.5", "deepseek/deepseek-r1", "qwen/qwen3.5-397b"),
)
SLOW = ("tencent/hunyuan-turbos", "eu-central-1")
EVENT = (
    "92 s: the route chat switches in eu-central-1: tencent/hunyuan-turbos breaks the objective and zhipu/glm-4-32b "
    "keeps it"
)
SIZES = [(60, 20), (70, 24), (80, 24), (90, 30), (100, 24), (120, 50), (140, 40), (200, 60)]


def cell(place: int, region: str, *, network_us: float | None) -> Cell:
    """One of the four kinds of cells, in turn."""
    ttft_us, shift = 100_000.0 + 85_000 * place, {"us-east-2": 0, "ap-southeast-1": -20_400}.get(region, 35_400)
    if region == "us-east-2":
        return Cell(value=ttft_us)
    if place % 4 == 3:
        return Cell(value=ttft_us + shift, rounds=4)
    changed_us = 400_000.0 if (TARGETS[place], region) == SLOW else None
    shift += 400_000 if changed_us else 0
    return Cell(
        value=ttft_us + shift,
        rounds=10,
        shift=shift,
        low=shift - 2_300,
        high=shift + 4_100,
        decision=(Decision.FASTER, Decision.UNDECIDED, Decision.EQUIVALENT)[place % 4 - 3],
        network_shift=network_us,
        changed=changed_us,
    )


def board(*, network_us: float | None = None) -> Board:
    """A board with one place that has changed."""
    cells = {
        (target, region): cell(place, region, network_us=network_us)
        for place, target in enumerate(TARGETS)
        for region in REGIONS
    }
    return Board(baseline=REGIONS[0], regions=REGIONS[1:], targets=TARGETS, cells=cells)


def lines(width: int, height: int, *, network_us: float | None = None, total: float | None = None) -> list[str]:
    """The screen as plain lines."""
    view = View(
        progress=Progress(elapsed=98.4, total=total, recorded=1_102, failed=0),
        window_seconds=40,
        board=board(network_us=network_us),
        events=("75 s: tencent gets 400 ms slower from eu-central-1, for 180 s", EVENT),
        addresses=("live page: http://127.0.0.1:4680/",),
        advice=SUGGESTIONS,
    )
    return [line.plain for line in screen(view, width=width, height=height)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("network_us", [None, 61_000.0])
def test_the_screen_fits(width: int, height: int, network_us: float | None) -> None:
    """No line is wider than the terminal, there are no more lines than fit, and every target has its line."""
    shown = lines(width, height, network_us=network_us)
    assert len(shown) <= height
    assert max(map(len, shown)) <= width
    for target in TARGETS:
        assert sum(line.startswith((f"{target} ", f"{target.partition('/')[2]} ")) for line in shown) == 1


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_no_word_is_broken(width: int, height: int) -> None:
    """Each word on a screen is a word of the largest one, or a known short form, and no line to copy is cut."""
    words = set(" ".join(lines(200, 60)).replace("/", " ").split()) | {"equal", "?", "diff", "4/6", "6", "…"}
    for line in re.sub(r" \\\n +", " ", "\n".join(lines(width, height))).splitlines():
        assert set(re.sub("[━┄]+", "", line).replace("/", " ").split()) <= words, line
        if "isochrone " in line:
            assert line.removeprefix("try ").strip() in SUGGESTIONS


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_change_is_shown_where_it_is(width: int, height: int) -> None:
    """Only the place that changed has the mark, in the column of its region."""
    _title, _legend, *shown = lines(width, height)
    [marked] = [line for line in shown if CHANGED_MARK in line]
    heading = next(line for line in shown if "eu-central-1" in line)
    assert marked.startswith(("hunyuan-turbos ", "tencent/hunyuan-turbos "))
    assert heading.index("eu-central-1") <= marked.index(CHANGED_MARK)
    assert "+435" in marked


def test_columns_are_aligned() -> None:
    """At the usual width a table reads as follows: what is certain with its error, what is not with its rounds."""
    shown = [line.plain for line in board_table(board(), window_seconds=40, width=80)]
    assert shown[:6] == [
        "last 40 s, in ms   us-east-2  ap-southeast-1           eu-central-1",
        "                        ttft  ttft  difference         ttft  difference",
        "step-3.5-flash           100    80    -20 ±5   faster   135    +35 ±5   faster",
        "deepseek-v4-flash        185   165    -20 ±5   ?        220    +35 ±5   ?",
        "hunyuan-turbos           270   250    -20 ±5   equal    705▲  +435 ±5   equal",
        "qwen3-8b                 355   335  warming up 4/6      390  warming up 4/6",
    ]


def test_a_wide_table_has_providers_and_whole_words() -> None:
    """With more room a table has each target with its provider, decisions in full and, if there is any, the network."""
    _, _, first, second, *_ = (
        line.plain for line in board_table(board(network_us=61_000.0), window_seconds=40, width=140)
    )
    assert first.split() == [
        *("stepfun/step-3.5-flash", "100"),
        *("80", "-20", "±5", "faster", "+61"),
        *("135", "+35", "±5", "faster", "+61"),
    ]
    assert "undecided" in second
    without = [line.plain for line in board_table(board(), window_seconds=40, width=140)]
    assert "network" not in without[1]


def test_progress_is_a_bar_only_with_an_end() -> None:
    """A demo without an end shows its age and no bar."""
    assert lines(80, 24)[0] == "Isochrone demo  98 s · 1102 samples, 0 failed"
    bar = lines(80, 24, total=197)[0]
    assert bar.count("━") == bar.count("┄")
    assert bar.endswith("  98 of 197 s · 1102 samples, 0 failed")
    assert len(bar) == 80


def test_a_small_screen_begins_the_newest_event() -> None:
    """If there is no room for all of the newest event, its beginning is shown, up to a whole word."""
    shown = lines(80, 20)
    assert shown[-1] == "92 s: the route chat switches in eu-central-1: tencent/hunyuan-turbos breaks …"


def test_a_changing_difference_counts_the_rounds_since_its_change() -> None:
    """A difference that has just changed is not warming up."""
    place = (TARGETS[0], REGIONS[1])
    changing = Board(
        baseline=REGIONS[0],
        regions=REGIONS[1:],
        targets=TARGETS[:1],
        cells={place: Cell(value=500_000.0, rounds=5, is_changing=True)},
    )
    assert " 500  changing 5/6 " in board_table(changing, window_seconds=40, width=80)[2].plain


def test_nothing_has_no_numbers() -> None:
    """Before the first sample each cell warms up, and no line is missing."""
    empty = Board(baseline=REGIONS[0], regions=REGIONS[1:], targets=TARGETS, cells={})
    shown = [line.plain for line in board_table(empty, window_seconds=40, width=80)]
    assert len(shown) == 2 + len(TARGETS)
    assert shown[2].split() == f"step-3.5-flash {UNKNOWN} {UNKNOWN} warming up 0/6 {UNKNOWN} warming up 0/6".split()
