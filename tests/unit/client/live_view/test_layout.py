"""The screens of the live view at many sizes, and exactly as in the golden files, in `golden/`.

To update the files: `PYTHONPATH=tests python tests/unit/client/live_view/test_layout.py`.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from isochrone_client.live_view.screens import View, screen, shown_of
from isochrone_client.live_view.state import Question, ViewState
from isochrone_client.pages.matrix import FAILING_MARK, STALE_MARK
from isochrone_wire.answers import Metric
from isochrone_wire.durations import MINUTE_US, SECOND_US
from testdata.client_answers import ANSWERS, DETAIL, EQUAL, FAILING, FAST, NEW, SLOW, TARGETS
from testdata.insights import NOW_AT

GOLDEN = Path(__file__).parent / "golden"
STATE = ViewState(question=Question())
STATES = {
    "targets": STATE,
    "sorted": replace(STATE, sort="difference", selected=SLOW),
    "detail": replace(STATE, detail=SLOW),
    "help": replace(STATE, has_help=True),
}
SIZES = ((80, 24), (140, 40))
MANY = replace(ANSWERS, targets=(*TARGETS, *(f"acme/model-{place:02}" for place in range(40))))


def view(state: ViewState = STATE, **more: object) -> View:
    shown = View(collector="127.0.0.1:4600", answers=ANSWERS, state=state, now_at=NOW_AT + 3 * SECOND_US, detail=DETAIL)
    return replace(shown, **more)  # type: ignore[arg-type]


def lines(shown: View, width: int = 80, height: int = 24) -> list[str]:
    return [line.plain.rstrip() for line in screen(shown, width=width, height=height)]


def golden_text(name: str) -> str:
    texts = ["\n".join(lines(view(STATES[name]), width, height)).rstrip() for width, height in SIZES]
    return "\n".join(
        f"{'-' * (width - 11)} {width} columns\n{text}\n" for (width, _), text in zip(SIZES, texts, strict=True)
    )


@pytest.mark.parametrize("name", STATES)
def test_screens_match_the_golden_files(name: str) -> None:
    """At 80 and 140 columns each screen has exactly the text of its golden file."""
    assert golden_text(name) == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", STATES)
def test_every_size_is_filled_and_not_exceeded(name: str) -> None:
    """There are as many lines as the terminal has, and from 60 columns none is wider; the last one has the keys."""
    for width in (60, 80, 100, 140, 200):
        for height in (12, 24, 50):
            shown = lines(view(STATES[name]), width, height)
            assert len(shown) == height
            assert max(map(len, shown)) <= width
            assert "q quit" in shown[-1]


def test_a_tiny_terminal_is_no_error() -> None:
    """Lines fit any terminal; regions that do not are scrolled to, and marks are in their rows only."""
    for height in range(6):
        assert len(lines(view(), 10, height)) == height
    first, second = view(), view(replace(STATE, first_region=1))
    assert "1 more region: ← →" in lines(first, 28)[1]
    assert [lines(shown, 28)[2].split()[2:] for shown in (first, second)] == [["apse1"], ["euc1"]]
    _title, _legend, *rows = lines(view(), 140)
    assert [row.split()[0] for row in rows if FAILING_MARK in row] == [FAILING]
    assert [row.split()[0] for row in rows if STALE_MARK in row] == [EQUAL]


def test_an_outage_is_shown_with_its_age_and_the_last_answers() -> None:
    """While the collector is away, its last answers stay, with the reason and since when."""
    away = view(failure="no collector answers at 127.0.0.1:4600", failing_since=NOW_AT - 2 * MINUTE_US)
    shown = lines(away)
    assert shown[0].endswith("reconnecting for 2 min")
    assert "no collector answers at 127.0.0.1:4600" in shown
    assert any(line.split()[:2] == ["gpt-5-mini", "320"] for line in shown)


def test_a_question_that_is_not_answered_yet_is_marked() -> None:
    """After a key that changes the question, the last answers stay under their own metric until the next ones."""
    shown = lines(view(replace(STATE, question=Question(metric=Metric.E2E))))
    assert shown[0].endswith("asking …")
    assert "time to first token" in shown[0]


@pytest.mark.parametrize(("place", "first", "last"), [(0, 0, 15), (20, 12, 27), (44, 29, 44)])
def test_the_selected_target_is_always_on_the_screen(place: int, first: int, last: int) -> None:
    """With more targets than fit, those around the selected one are shown."""
    answers = replace(MANY, incidents=(), newest_event=None)
    targets = shown_of(view(answers=answers)).targets
    shown = lines(view(replace(STATE, selected=targets[place]), answers=answers), 140, 21)
    rows = shown[4:20]
    assert [row.removeprefix("▸").split()[0] for row in rows] == list(targets[first : last + 1])
    assert [row.split()[1] for row in rows if row.startswith("▸")] == [targets[place]]


def test_incidents_leave_room_for_targets() -> None:
    """On a small terminal some targets are shown, however many incidents there are."""
    many = replace(ANSWERS, incidents=ANSWERS.incidents * 9)
    shown = lines(view(answers=many), 80, 12)
    assert sum(line.startswith("open incident: ") for line in shown) >= 1
    assert sum(line.startswith(("▸ ", "  ")) for line in shown) >= 5
    assert any("and 4 more: isochrone incidents" in line for line in lines(view(answers=many), 80, 40))


def test_a_filter_that_matches_nothing_is_explained() -> None:
    """A filter is applied while it is typed; without a match, a sample or a plan the screen says what to do."""
    assert shown_of(view(replace(STATE, name_part="GPT"))).targets == (SLOW,)
    nothing = lines(view(replace(STATE, name_part="claude")))
    assert any("escape shows all of them" in line for line in nothing)
    shown = lines(view(replace(STATE, typed="glm")))
    assert shown[-1].startswith("targets with: glm")
    assert any("glm-5" in line for line in shown)
    assert not any("gpt-5-mini  " in line for line in shown)
    [row] = [line for line in lines(view(), 140) if NEW in line]
    assert row.split()[:2] == [NEW, "–"]  # noqa: RUF001  # the sign for unknown
    empty = replace(ANSWERS, targets=(), incidents=(), newest_event=None)
    assert any("no target is being measured" in line for line in lines(view(answers=empty)))


def test_a_detail_view_waits_for_its_own_target() -> None:
    """Until its answers are there, a detail view does not show those of another target; it scrolls to its last line."""
    assert any("asking the collector" in line for line in lines(view(replace(STATE, detail=FAST))))
    scrolled = lines(view(replace(STATE, detail=SLOW, scrolled=1_000)))
    assert scrolled[-2].strip()
    assert scrolled[1] == SLOW


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for state_name in STATES:
        (GOLDEN / f"{state_name}.txt").write_text(golden_text(state_name))
