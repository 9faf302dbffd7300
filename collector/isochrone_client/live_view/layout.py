"""The screens of the live view as lines of text: all targets, one target, and the help. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten, wrap

from rich.text import Text

from isochrone_client.formats import age, display_unit, moment, span
from isochrone_client.live_view.answers import NO_VALUE_MARK, Answers, Detail, arranged, board_of
from isochrone_client.live_view.detail import detail_lines
from isochrone_client.live_view.state import BINDINGS, Shown, ViewState, selected_target
from isochrone_client.pages.alerts import open_incident
from isochrone_client.screen.board import Board
from isochrone_client.screen.table import DECISION_MARKS, FAILING_MARK, FORMS_WITH_BARS, GAP, STALE_MARK, legend, table

_POINTER = "▸ "
_TABLE_HEADINGS = 2
_LEAST_ROWS = 3
_MOST_INCIDENTS = 5
_SIGNS = {
    FAILING_MARK: "open incident",
    STALE_MARK: "no new round",
    **{mark: decision.value for decision, mark in DECISION_MARKS.items()},
    NO_VALUE_MARK: "probes without a value",
}
_DURATION_UNITS = ("s", "m", "h", "d", "w")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything on the screen: the newest answers, those about one target if its detail view is open, and the reason
    that there are no newer ones since `failing_since` (microseconds since the epoch), if there is one.
    """

    collector: str
    answers: Answers
    state: ViewState
    now_at: int
    detail: Detail | None = None
    failure: str = ""
    failing_since: int | None = None


def shown_of(answers: Answers, state: ViewState) -> Shown:
    """The names on the screen, in their order."""
    board = _board(answers, state)
    return Shown(targets=board.targets, baseline=board.baseline, regions=(board.baseline, *board.regions))


def screen(view: View, *, width: int, height: int) -> list[Text]:
    """The lines for a terminal of this size; the last one has the keys."""
    keys = _keys(view.state, width)
    room = max(height - len(keys), 0)
    if view.state.has_help:
        lines = _help(width)
    elif view.state.detail:
        lines = _one_target(view, width, room)
    else:
        lines = _all_targets(view, width, room)
    lines = lines[:room]
    return [*lines, *[Text("")] * (room - len(lines)), *keys][:height]


def _all_targets(view: View, width: int, room: int) -> list[Text]:
    board = _board(view.answers, view.state)
    title = f"{_window(view)}, in {display_unit(view.answers.question.metric.unit)}"
    lines, regions = _fitting(board, view, title, width - len(_POINTER))
    above = [_title(view, width), legend(_signs(view, board, regions), width)]
    below = _below(view, width, room - len(above) - _TABLE_HEADINGS - min(len(board.targets), _LEAST_ROWS))
    rows = _visible(board.targets, view.state, room - len(above) - _TABLE_HEADINGS - len(below))
    pointed = selected_target(view.state, board.targets)
    body = [_pointed(lines[_TABLE_HEADINGS + row], is_selected=board.targets[row] == pointed) for row in rows]
    headings = [_pointed(line, is_selected=False) for line in lines[:_TABLE_HEADINGS]]
    return [*above, *headings, *body, *_nothing(view, board), *below]


def _one_target(view: View, width: int, room: int) -> list[Text]:
    above = [_title(view, width), Text(view.state.detail, style="bold")]
    if view.detail is None or view.detail.target != view.state.detail:
        return [*above, Text("asking the collector …", style="dim")]
    lines = detail_lines(view.detail, view.answers.question, width=width, now_at=view.now_at)
    most = max(len(lines) - (room - len(above)), 0)
    return [*above, *lines[min(view.state.scrolled, most) :]]


def _help(width: int) -> list[Text]:
    keys = {", ".join(binding.keys): binding.sentence for binding in BINDINGS}
    first = max(map(len, keys)) + len(GAP)
    lines = [Text("isochrone watch", style="bold"), Text("")]
    for names, sentence in keys.items():
        folded = wrap(sentence, max(width - first, 20)) or [""]
        lines.append(Text(f"{names:<{first}}", style="cyan").append(folded[0], style="default"))
        lines += [Text(" " * first + part) for part in folded[1:]]
    signs = ", ".join(f"{sign} {meaning}" for sign, meaning in _SIGNS.items())
    return [*lines, Text(""), *(Text(line, style="dim") for line in wrap(signs, width))]


def _board(answers: Answers, state: ViewState) -> Board:
    name_part = state.name_part if state.typed is None else state.typed
    return arranged(board_of(answers), sort=state.sort, metric=answers.question.metric, name_part=name_part)


def _window(view: View) -> str:
    window = view.answers.question.window
    return f"last {window}" if window[:1].isdigit() and window[-1:] in _DURATION_UNITS else window


def _fitting(board: Board, view: View, title: str, width: int) -> tuple[list[Text], tuple[str, ...]]:
    """The table with as many regions as fit, from the first one that is not scrolled away; and these regions."""
    scale = view.answers.question.scale
    regions = board.regions[min(view.state.first_region, max(len(board.regions) - 1, 0)) :]
    while True:
        part = replace(board, regions=regions)
        lines = table(part, title=title, width=width, forms=FORMS_WITH_BARS, scale=scale)
        if len(regions) <= 1 or max(line.cell_len for line in lines) <= width:
            return lines, regions
        regions = regions[:-1]


def _title(view: View, width: int) -> Text:
    """The metric and the collector, and on the right the age of the answers or why there are no newer ones."""
    answers = view.answers
    left = f"Isochrone{GAP}{answers.question.metric.display_name}{GAP}{view.collector}"
    if view.failing_since is not None:
        right, style = f"reconnecting for {age(view.failing_since, now_at=view.now_at)}", "bold yellow"
    elif view.state.question != answers.question:
        right, style = "asking …", "dim"
    else:
        right, style = f"{age(answers.answered_at, now_at=view.now_at)} ago", "dim"
    left = left[: max(width - len(right) - len(GAP), 0)]
    return Text(f"{left:<{max(width - len(right), 0)}}", style="bold").append(right, style=f"not bold {style}")


def _signs(view: View, board: Board, regions: tuple[str, ...]) -> tuple[str, ...]:
    hidden = len(board.regions) - len(regions)
    cells = board.cells.values()
    marks = (
        (hidden > 0, f"{hidden} more region{'s' * (hidden > 1)}: ← →"),
        (True, f"difference to {board.baseline}" if board.baseline else ""),
        (any(cell.is_failing for cell in cells), f"{FAILING_MARK} fails"),
        (any(cell.is_stale for cell in cells), f"{STALE_MARK} {_SIGNS[STALE_MARK]}"),
        (True, "? undecided"),
        (True, f"▁█ {span(view.answers.series.bucket_us)} each"),
        (True, "± 95 %"),
        (any(NO_VALUE_MARK in cell.bars for cell in cells), f"{NO_VALUE_MARK} no value"),
    )
    return tuple(text for is_there, text in marks if is_there and text)


def _pointed(line: Text, *, is_selected: bool) -> Text:
    return Text(_POINTER if is_selected else " " * len(_POINTER), style="bold cyan").append_text(line)


def _visible(targets: Sequence[str], state: ViewState, room: int) -> range:
    """The rows that fit, with the selected one among them."""
    count = min(max(room, 1), len(targets))
    pointed = targets.index(selected_target(state, targets)) if targets else 0
    start = min(max(pointed - count // 2, 0), len(targets) - count)
    return range(start, start + count)


def _nothing(view: View, board: Board) -> list[Text]:
    if board.targets:
        return []
    if view.answers.targets:
        return [Text("no target has such a name; escape shows all of them", style="dim")]
    return [Text("no target is being measured: `isochrone targets` shows the plan", style="dim")]


def _below(view: View, width: int, room: int) -> list[Text]:
    """The failure, the open incidents and the newest event, as far as there is room, below an empty line."""
    lines = [*_failure(view, width), *_incidents(view, width), *_event(view, width)]
    return [Text(""), *lines][: max(room, 0)] if lines else []


def _failure(view: View, width: int) -> Iterator[Text]:
    if view.failure:
        yield Text(shorten(view.failure, width, placeholder=" …"), style="yellow")


def _incidents(view: View, width: int) -> Iterator[Text]:
    incidents = view.answers.incidents
    for incident in incidents[:_MOST_INCIDENTS]:
        yield Text(shorten(f"open incident: {open_incident(incident)}", width, placeholder=" …"), style="bold red")
    if len(incidents) > _MOST_INCIDENTS:
        yield Text(f"and {len(incidents) - _MOST_INCIDENTS} more: isochrone incidents", style="bold red")


def _event(view: View, width: int) -> Iterator[Text]:
    event = view.answers.newest_event
    if event is not None:
        sentence = f"{moment(event.raised_at, now_at=view.now_at)} {event.subject}: {event.sentence}"
        yield from (Text(line) for line in wrap(sentence, width, subsequent_indent=GAP, max_lines=2, placeholder=" …"))


def _keys(state: ViewState, width: int) -> list[Text]:
    if state.typed is not None:
        return [Text(f"targets with: {state.typed}▏", style="reverse").append("  enter keeps, escape cancels", "dim")]
    if state.has_help:
        return [Text("any key: back  q quit", style="dim")]
    if state.detail:
        return [legend(("q quit", "escape back", "↑↓ scroll", "m metric", "w window", "b baseline", "? help"), width)]
    filtered = f"/ filter: {state.name_part}" if state.name_part else "/ filter"
    parts = (
        "q quit",
        "? help",
        f"s sort: {state.sort}",
        "enter detail",
        filtered,
        "m metric",
        "w window",
        "b baseline",
    )
    return [legend(parts, width)]
