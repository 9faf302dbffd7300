"""The demo on a terminal at many sizes, and the changes that it marks."""

import re
from dataclasses import replace
from typing import Any

import pytest

from isochrone_client.demo.display import QUESTION, PrintedTables, changes
from isochrone_client.demo.scenario import SUGGESTIONS
from isochrone_client.live_view.screens import Story, View, screen
from isochrone_client.live_view.state import ViewState
from isochrone_client.pages.matrix import CHANGED_MARK, by_place
from isochrone_wire.answers import Quantile
from isochrone_wire.insights import Standing
from testdata.client_answers import ANSWERS, BASELINE, OTHER, REGION, SLOW, TARGETS, difference
from testdata.insights import NOW_AT

EVENT = (
    "92 s: the route chat switches in eu-central-1: tencent/hunyuan-turbos breaks the objective and zhipu/glm-4-32b "
    "keeps it"
)
SIZES = [(60, 14), (70, 16), (80, 24), (90, 30), (120, 50), (200, 60)]
STORY = Story(
    progress="98 s · 1102 samples, 0 failed",
    events=("75 s: tencent gets 400 ms slower from eu-central-1, for 180 s", EVENT),
    address="live page: http://127.0.0.1:4680/",
    advice=SUGGESTIONS,
)
CHANGED = replace(ANSWERS, changed={(SLOW, OTHER): 400_000.0}, newest_event=None)


def lines(width: int, height: int, story: Story = STORY) -> list[str]:
    view = View(answers=CHANGED, state=ViewState(question=ANSWERS.question), now_at=NOW_AT, story=story)
    return [line.plain.rstrip() for line in screen(view, width=width, height=height)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_screen_fits(width: int, height: int) -> None:
    """No line is wider than the terminal, each target has one, and no word is broken, nor a line to copy cut."""
    shown = lines(width, height)
    assert len(shown) <= height
    assert max(map(len, shown)) <= width
    for target in TARGETS:
        assert sum(line[2:].startswith((f"{target} ", f"{target.partition('/')[2]} ")) for line in shown) == 1
    assert STORY.address in shown
    assert any(line.startswith("open incident: moonshot/kimi-k2.5") for line in shown)
    words = set(" ".join(lines(200, 60)).replace("/", " ").split()) | {"equal", "…"}
    words |= {f"{word}{mark}" for word in words if word.isdigit() for mark in "?=~"}
    for line in re.sub(r" \\\n +", " ", "\n".join(shown)).splitlines():
        assert set(line.replace("/", " ").split()) <= words, line
        if "isochrone " in line:
            assert line.removeprefix("try ").strip() in SUGGESTIONS


def test_a_small_screen_begins_the_newest_event() -> None:
    """If there is no room for all of the newest event, its beginning is shown, up to a whole word."""
    *_, first, last, _keys = lines(60, 14)
    assert first == "92 s: the route chat switches in eu-central-1:"
    assert last == "  tencent/hunyuan-turbos breaks the objective and …"


def test_a_large_screen_has_everything() -> None:
    """All events are shown in order, all commands with one prompt, and the mark only where something changed."""
    shown = lines(140, 50)
    assert shown.index(STORY.events[0]) + 1 == shown.index(EVENT)
    first = shown.index(f"try {SUGGESTIONS[0]}")
    assert shown[first + 1 : first + 5] == [f"    {line}" for line in SUGGESTIONS[1:]]
    _title, legend, *shown = lines(80, 24)
    assert legend.startswith("last 1h, ttft in ms   difference to us-east-2   ✗ fails   ▲ changed")
    [marked] = [line for line in shown if CHANGED_MARK in line]
    heading = next(line for line in shown if OTHER in line)
    assert marked[2:].startswith("gpt-5-mini ")
    assert heading.index(OTHER) <= marked.index(CHANGED_MARK)


def test_progress_is_a_bar_only_with_an_end() -> None:
    """A demo without an end shows its age and no bar."""
    assert lines(80, 24)[0].split("  ", 1) == ["Isochrone demo", f"{STORY.progress:>64}"]
    bar = lines(80, 24, replace(STORY, share=0.5))[0]
    assert bar.count("┄") - bar.count("━") in (0, 1)
    assert bar.count("━") > 10
    assert bar.endswith(f"  {STORY.progress}")
    assert len(bar) == 80


def test_the_demo_asks_about_its_newest_rounds() -> None:
    """The window is short enough for a demo of a minute, and the differences are those of the time to first token."""
    assert (QUESTION.window, QUESTION.metric.value) == ("60s", "ttft")


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
    """A place has changed if the intervals of now and of the start are farther apart than what matters."""
    other = difference(35, target="acme/small")
    usual, now = by_place([difference(usual_ms), other]), by_place([difference(now_ms, error_ms, error_ms), other])
    wanted = {} if change_ms is None else {("acme/large", "ap-southeast-1"): 1000 * change_ms}
    assert changes(now, usual) == wanted
    assert changes(now, {}) == {}


def one_target(step: int) -> View:
    """A target that warms up, has an interval after two steps, and has changed after four."""
    parts: dict[str, Any] = {"target": "acme/large", "provider": "acme", "model": "large"}
    standings = (
        Standing(region=region, rank=1, n=step, failed=0, ttft_p50_us=Quantile(value=235_000.0), **parts)
        for region in (BASELINE, REGION, OTHER)
    )
    rows = [difference(35 if step >= 2 else None, region=region, n=0) for region in (REGION, OTHER)]
    answers = replace(
        CHANGED,
        targets=("acme/large",),
        leaderboard=replace(CHANGED.leaderboard, standings=tuple(standings)),
        differentials=replace(CHANGED.differentials, differentials=tuple(rows)),
        incidents=(),
        changed={("acme/large", OTHER): 400_000.0} if step >= 4 else {},
    )
    state = ViewState(question=QUESTION)
    return View(answers=answers, state=state, now_at=NOW_AT, story=Story(progress=f"{step} s"))


def test_a_pipe_gets_a_table_when_there_is_news(capsys: pytest.CaptureFixture[str]) -> None:
    """On a pipe there is a table when each cell has a value, when each is firm, and when one has changed; not with
    every view. The progress is on stderr after ten seconds without a table.
    """
    printed = PrintedTables()
    for step in range(40):
        printed.show(one_target(step), elapsed=float(step), has_samples=step > 0)
    shown = capsys.readouterr()
    tables = shown.out.removesuffix("\n\n").split("\n\n")
    assert [table.splitlines()[-1].split()[3:6] for table in tables] == [
        ["warming", "up", "0/6"],
        ["+35", "±2", "slower"],
        ["+35", "±2", "slower"],
    ]
    assert tables[0].startswith("after 0 s:\nlast 60s, in ms\n")
    assert "235▲" in tables[2]
    assert shown.err.splitlines() == [f"· {second} s" for second in (14, 24, 34)]
