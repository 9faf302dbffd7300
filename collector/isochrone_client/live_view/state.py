"""The state of the live view that keys change: what is asked, the order, the filter, the selected target. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from isochrone_client.pages.matrix import METRICS, SORTS
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
class Shown:
    """The names on the screen: the targets in their order, the baseline, and all regions, the baseline included."""

    targets: tuple[str, ...] = ()
    baseline: str = ""
    regions: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The keys of an action, and its sentence in the help."""

    keys: tuple[str, ...]
    sentence: str
    act: "Act"


Act = Callable[[ViewState, Shown], ViewState]


def press(state: ViewState, key: str, shown: Shown) -> ViewState:
    """The state after a key."""
    if state.typed is not None:
        return _typed(state, state.typed, key)
    if state.has_help:
        return replace(state, has_help=False, is_over=key == "q")
    actions = _ACTIONS_OF_DETAIL if state.detail else _ACTIONS
    return actions[key](state, shown) if key in actions else state


def selected_target(state: ViewState, targets: Sequence[str]) -> str:
    """The selected target, the first one if it is not among `targets`; empty without targets."""
    return state.selected if state.selected in targets else next(iter(targets), "")


def _typed(state: ViewState, typed: str, key: str) -> ViewState:
    if key == "enter":
        return replace(state, typed=None, name_part=typed)
    if key == "escape":
        return replace(state, typed=None)
    if key == "backspace":
        return replace(state, typed=typed[:-1])
    return replace(state, typed=typed + key) if len(key) == 1 else state


def _next(items: Sequence[Item], item: Item) -> Item:
    """The item after this one, the first one after the last; the first one for an item that is not among them."""
    return items[(items.index(item) + 1) % len(items)] if item in items else items[0]


def _next_metric(state: ViewState, _shown: Shown) -> ViewState:
    return replace(state, question=replace(state.question, metric=_next(METRICS, state.question.metric)))


def _next_baseline(state: ViewState, shown: Shown) -> ViewState:
    baseline = _next(shown.regions, shown.baseline) if shown.regions else state.question.baseline
    return replace(state, question=replace(state.question, baseline=baseline))


def _next_window(step: int) -> Act:
    return lambda state, _shown: replace(
        state, question=replace(state.question, window=_next(state.windows[::step], state.question.window))
    )


def _open_detail(state: ViewState, shown: Shown) -> ViewState:
    return replace(state, detail=selected_target(state, shown.targets), scrolled=0)


def _select(by: int) -> Act:
    def act(state: ViewState, shown: Shown) -> ViewState:
        if not shown.targets:
            return state
        place = shown.targets.index(selected_target(state, shown.targets)) + by
        return replace(state, selected=shown.targets[min(max(place, 0), len(shown.targets) - 1)])

    return act


def _scroll_regions(by: int) -> Act:
    def act(state: ViewState, shown: Shown) -> ViewState:
        last = max(len(shown.regions) - 2, 0)
        return replace(state, first_region=min(max(state.first_region + by, 0), last))

    return act


def _scroll(by: int) -> Act:
    return lambda state, _shown: replace(state, scrolled=max(state.scrolled + by, 0))


def _set(**changes: object) -> Act:
    return lambda state, _shown: replace(state, **changes)  # type: ignore[arg-type]


_SHARED = (
    Binding(keys=("m",), sentence="the next metric", act=_next_metric),
    Binding(keys=("b",), sentence="the next region as the baseline", act=_next_baseline),
    Binding(keys=("w",), sentence="the next longer window", act=_next_window(1)),
    Binding(keys=("W",), sentence="the next shorter window", act=_next_window(-1)),
    Binding(keys=("?", "h"), sentence="this help; any key closes it", act=_set(has_help=True)),
    Binding(keys=("q",), sentence="quit", act=_set(is_over=True)),
)
BINDINGS = (
    Binding(
        keys=("s",),
        sentence="sort by name, by value (best first) or by difference (worst first)",
        act=lambda state, _shown: replace(state, sort=_next(SORTS, state.sort)),
    ),
    *_SHARED[:4],
    Binding(keys=("/",), sentence="show only targets whose names contain a text", act=_set(typed="")),
    Binding(keys=("escape",), sentence="show all targets again", act=_set(name_part="")),
    Binding(keys=("up", "k"), sentence="select the target above", act=_select(-1)),
    Binding(keys=("down", "j"), sentence="select the target below", act=_select(1)),
    Binding(keys=("page up",), sentence="select ten targets above", act=_select(-_PAGE)),
    Binding(keys=("page down",), sentence="select ten targets below", act=_select(_PAGE)),
    Binding(keys=("enter",), sentence="quantiles, phases and outcomes of the selected target", act=_open_detail),
    Binding(keys=("left",), sentence="show the regions to the left", act=_scroll_regions(-1)),
    Binding(keys=("right",), sentence="show the regions to the right", act=_scroll_regions(1)),
    *_SHARED[4:],
)
_DETAIL_BINDINGS = (
    *_SHARED,
    Binding(keys=("escape", "enter", "backspace"), sentence="back to all targets", act=_set(detail="")),
    Binding(keys=("up", "k"), sentence="scroll up", act=_scroll(-1)),
    Binding(keys=("down", "j"), sentence="scroll down", act=_scroll(1)),
    Binding(keys=("page up",), sentence="scroll up", act=_scroll(-_PAGE)),
    Binding(keys=("page down",), sentence="scroll down", act=_scroll(_PAGE)),
)


_ACTIONS, _ACTIONS_OF_DETAIL = (
    {key: binding.act for binding in bindings for key in binding.keys} for bindings in (BINDINGS, _DETAIL_BINDINGS)
)
