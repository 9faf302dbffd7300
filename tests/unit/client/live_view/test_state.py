"""The keys of the live view."""

from dataclasses import replace

import pytest

from isochrone_client.live_view.state import BINDINGS, Question, ViewState, press
from isochrone_client.pages.matrix import METRICS, Matrix
from isochrone_wire.answers import Metric

STATE = ViewState(question=Question())
SHOWN = Matrix(metric=Metric.TTFT, targets=("a/a", "b/b", "c/c"), baseline="us", regions=("eu", "sg"))
EMPTY = Matrix(metric=Metric.TTFT, targets=(), baseline="", regions=())


def after(*keys: str, state: ViewState = STATE, shown: Matrix = SHOWN) -> ViewState:
    """The state after some keys."""
    for key in keys:
        state = press(state, key, shown)
    return state


@pytest.mark.parametrize(
    ("keys", "changed"),
    [
        (["s"], {"sort": "value"}),
        (["s", "s"], {"sort": "difference"}),
        (["s", "s", "s"], {}),
        (["m"], {"question": Question(metric=Metric.TTFT_COLD)}),
        (["m"] * len(METRICS), {}),
        (["b"], {"question": Question(baseline="eu")}),
        (["w"], {"question": Question(window="6h")}),
        (["W"], {"question": Question(window="15m")}),
        (["W", "W"], {"question": Question(window="7d")}),
        (["/", "g", "p", "t", "enter"], {"name_part": "gpt"}),
        (["/", "g", "x", "backspace", "escape"], {}),
        (["/", "q", "enter"], {"name_part": "q"}),
        (["/", "é", "up", "enter"], {"name_part": "é"}),
        (["/", "g", "enter", "escape"], {}),
        (["down"], {"selected": "b/b"}),
        (["j", "j", "j"], {"selected": "c/c"}),
        (["page down", "page up"], {"selected": "a/a"}),
        (["right"], {"first_region": 1}),
        (["right", "right", "right"], {"first_region": 1}),
        (["left"], {}),
        (["j", "enter"], {"selected": "b/b", "detail": "b/b"}),
        (["enter", "escape"], {}),
        (["enter", "down", "j", "up"], {"detail": "a/a", "scrolled": 1}),
        (["enter", "up"], {"detail": "a/a"}),
        (["?"], {"has_help": True}),
        (["?", "s"], {}),
        (["?", "q"], {"is_over": True}),
        (["q"], {"is_over": True}),
        (["enter", "q"], {"detail": "a/a", "is_over": True}),
        (["x", "end"], {}),
    ],
)
def test_each_key_does_what_the_help_states(keys: list[str], changed: dict[str, object]) -> None:
    """A key changes what its sentence in the help states, and nothing else."""
    assert after(*keys) == replace(STATE, **changed)  # type: ignore[arg-type]


def test_nothing_is_selected_where_there_is_nothing() -> None:
    """Without targets and regions no key is an error."""
    for binding in BINDINGS:
        for key in binding.keys:
            assert after(key, shown=EMPTY).question.baseline == ""


def test_a_window_of_ones_own_is_kept() -> None:
    """A window that is not among the usual ones can be chosen again."""
    state = replace(STATE, question=Question(window="today"), windows=("today", "15m", "1h"))
    assert after("w", state=state).question.window == "15m"
    assert after("w", "W", state=state).question.window == "today"


def test_a_selected_target_that_is_gone_is_replaced_by_the_first() -> None:
    """If a filter hides the selected target, keys begin at the first one shown."""
    assert after("down", state=replace(STATE, selected="gone")).selected == "b/b"
