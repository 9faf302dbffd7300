"""The lines of the demo's screen at many sizes."""

import re

import pytest

from isochrone_client.demo.display import Progress, View, changes, screen
from isochrone_client.demo.scenario import SUGGESTIONS
from isochrone_client.pages.matrix import CHANGED_MARK, Cell, Matrix, by_place
from isochrone_wire.answers import Decision, Metric
from testdata.client_answers import cell as cell_of
from testdata.client_answers import difference

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
    ttft = 100.0 + 85 * place
    if region == "us-east-2":
        return Cell(value=1000 * ttft)
    changed = 400_000.0 if (TARGETS[place], region) == SLOW else None
    shift = {"ap-southeast-1": -20.4}.get(region, 35.4) + (400 if changed else 0)
    if place % 4 == 3:
        return cell_of(ttft + shift, difference(None, n=4))
    decision = (Decision.FASTER, Decision.UNDECIDED, Decision.EQUIVALENT)[place % 4 - 3]
    row = difference(shift, 2.3, 4.1, decision=decision, network_shift=network_us)
    return cell_of(ttft + shift, row, changed=changed)


def board(*, network_us: float | None = None) -> Matrix:
    """A matrix with one place that has changed."""
    cells = {
        (target, region): cell(place, region, network_us=network_us)
        for place, target in enumerate(TARGETS)
        for region in REGIONS
    }
    return Matrix(metric=Metric.TTFT, baseline=REGIONS[0], regions=REGIONS[1:], targets=TARGETS, cells=cells)


def lines(width: int, height: int, *, network_us: float | None = None, total: float | None = None) -> list[str]:
    """The screen as plain lines."""
    view = View(
        progress=Progress(elapsed=98.4, total=total, recorded=1_102, failed=0),
        matrix=board(network_us=network_us),
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


@pytest.mark.parametrize(
    ("usual_ms", "now_ms", "error_ms", "change_ms"),
    [
        (35, 435, 5, 400),
        (435, 35, 5, -400),
        (35, 65, 4, 30),
        (35, 60, 4, None),  # 17 ms apart: less than the smallest difference that matters
        (35, 435, 400, None),  # the intervals overlap
        (None, 435, 5, None),
        (35, None, 5, None),
    ],
)
def test_a_change_is_certain_and_matters(
    usual_ms: float | None, now_ms: float | None, error_ms: float, change_ms: float | None
) -> None:
    """A place has changed if the intervals of now and of the start are apart by more than the smallest difference that
    matters; no other place is marked.
    """
    other = difference(35, target="acme/small")
    usual, now = by_place([difference(usual_ms), other]), by_place([difference(now_ms, error_ms, error_ms), other])
    wanted = {} if change_ms is None else {("acme/large", "ap-southeast-1"): 1000 * change_ms}
    assert changes(now, usual) == wanted
    assert changes(now, {}) == {}
