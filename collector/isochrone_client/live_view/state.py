"""The state of the live view that keys change: what is asked, the order, the filter, the selected target. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from isochrone_client.pages.matrix import METRICS, SORTS, Matrix
from isochrone_wire.answers import Metric, Order

WINDOWS = ("15m", "1h", "6h", "24h", "7d")
_PAGE = 10
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A metric over a `window`, as `--window` takes it, against a `baseline`; empty for the plan's.

    Empty `regions` and `targets` do not restrict; `targets` may be shell-style patterns.
    """

    metric: Metric = Metric.TTFT
    window: str = "1h"
    baseline: str = ""
    regions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def order(self) -> Order:
        """The order of a leaderboard by this metric."""
        return Order(self.metric.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """`name_part` is the filter, and `typed` the one that is being typed. `first_region` counts the regions that are
    scrolled away, `scrolled` the lines of a detail view. `windows` are those to choose from.
    """

    question: Question
    sort: str = SORTS[0]
    windows: tuple[str, ...] = WINDOWS
    name_part: str = ""
    typed: str | None = None
    selected: str = ""
    detail: str = ""
    first_region: int = 0
    scrolled: int = 0
    has_help: bool = False
    is_over: bool = False


# The matrix has the names on the screen in their order.
Act = Callable[[ViewState, Matrix], ViewState]


class Binding(NamedTuple):
    """The keys of an action, and its sentence in the help."""

    keys: tuple[str, ...]
    sentence: str
    act: Act


def press(state: ViewState, key: str, shown: Matrix) -> ViewState:
    """The state after a key."""
    if (typed := state.typed) is not None:
        if key in ("enter", "escape"):
            return replace(state, typed=None, name_part=typed if key == "enter" else state.name_part)
        typed = typed[:-1] if key == "backspace" else typed + key if len(key) == 1 else typed
        return replace(state, typed=typed)
    if state.has_help:
        return replace(state, has_help=False, is_over=key == "q")
    actions = _ACTIONS_OF_DETAIL if state.detail else _ACTIONS
    return actions[key](state, shown) if key in actions else state


def selected_target(state: ViewState, targets: Sequence[str]) -> str:
    """The selected target, the first one if it is not among `targets`; empty without targets."""
    return state.selected if state.selected in targets else next(iter(targets), "")


def _next(items: Sequence[Item], item: Item) -> Item:
    """The item after this one, the first one after the last; the first one for an item that is not among them."""
    return items[(items.index(item) + 1) % len(items)] if item in items else items[0]


def _asking(change: Callable[[ViewState, Matrix], dict[str, object]]) -> Act:
    """An action that changes these fields of the question."""
    return lambda state, shown: replace(state, question=replace(state.question, **change(state, shown)))  # type: ignore[arg-type]


def _next_window(step: int) -> Act:
    return _asking(lambda state, _shown: {"window": _next(state.windows[::step], state.question.window)})


def _select(by: int) -> Act:
    def act(state: ViewState, shown: Matrix) -> ViewState:
        if not shown.targets:
            return state
        place = shown.targets.index(selected_target(state, shown.targets)) + by
        return replace(state, selected=shown.targets[min(max(place, 0), len(shown.targets) - 1)])

    return act


def _scroll_regions(by: int) -> Act:
    return lambda state, shown: replace(
        state, first_region=min(max(state.first_region + by, 0), max(len(shown.regions) - 1, 0))
    )


def _scroll(by: int) -> Act:
    return lambda state, _shown: replace(state, scrolled=max(state.scrolled + by, 0))


def _set(**changes: object) -> Act:
    return lambda state, _shown: replace(state, **changes)  # type: ignore[arg-type]


_SHARED = (
    Binding(("m",), "the next metric", _asking(lambda state, _: {"metric": _next(METRICS, state.question.metric)})),
    Binding(
        ("b",),
        "the next region as the baseline",
        _asking(lambda _, shown: {"baseline": _next(sorted({shown.baseline, *shown.regions}), shown.baseline)}),
    ),
    Binding(("w",), "the next longer window", _next_window(1)),
    Binding(("W",), "the next shorter window", _next_window(-1)),
    Binding(("?", "h"), "this help; any key closes it", _set(has_help=True)),
    Binding(("q",), "quit", _set(is_over=True)),
)
BINDINGS = (
    Binding(
        ("s",),
        "sort by name, by value (best first) or by difference (worst first)",
        lambda state, _shown: replace(state, sort=_next(SORTS, state.sort)),
    ),
    *_SHARED[:4],
    Binding(("/",), "show only targets whose names contain a text", _set(typed="")),
    Binding(("escape",), "show all targets again", _set(name_part="")),
    Binding(("up", "k"), "select the target above", _select(-1)),
    Binding(("down", "j"), "select the target below", _select(1)),
    Binding(("page up",), "select ten targets above", _select(-_PAGE)),
    Binding(("page down",), "select ten targets below", _select(_PAGE)),
    Binding(
        ("enter",),
        "quantiles, phases and outcomes of the selected target",
        lambda state, shown: replace(state, detail=selected_target(state, shown.targets), scrolled=0),
    ),
    Binding(("left",), "show the regions to the left", _scroll_regions(-1)),
    Binding(("right",), "show the regions to the right", _scroll_regions(1)),
    *_SHARED[4:],
)
_DETAIL_BINDINGS = (
    *_SHARED,
    Binding(("escape", "enter", "backspace"), "back to all targets", _set(detail="")),
    Binding(("up", "k"), "scroll up", _scroll(-1)),
    Binding(("down", "j"), "scroll down", _scroll(1)),
    Binding(("page up",), "scroll up", _scroll(-_PAGE)),
    Binding(("page down",), "scroll down", _scroll(_PAGE)),
)
_ACTIONS, _ACTIONS_OF_DETAIL = (
    {key: binding.act for binding in bindings for key in binding.keys} for bindings in (BINDINGS, _DETAIL_BINDINGS)
)
