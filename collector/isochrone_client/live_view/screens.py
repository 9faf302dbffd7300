"""The screens of the live view as lines of text, all targets, one target and the help; and the loop that draws them."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from textwrap import shorten, wrap
from typing import Any

from rich.text import Text

from isochrone_client.errors import ClientError, SlowError, UnreachableError
from isochrone_client.formats import age, display_unit, moment, span
from isochrone_client.live_view.answers import NO_VALUE_MARK, Answers, Detail, Observer, matrix_of
from isochrone_client.live_view.state import BINDINGS, ViewState, press, selected_target
from isochrone_client.pages import differentials, fleet, leaderboard, matrix, samples
from isochrone_client.pages.alerts import open_incident
from isochrone_client.render.page import Column, Page
from isochrone_client.screen import Screen, StopRequests, continued, fitting, lines_of, taken
from isochrone_client.window import now_at
from isochrone_wire.durations import SECOND_US

# The ages on the screen change with each second; an answer is looked for more often while one is awaited.
_DRAW_SECONDS, _AWAIT_SECONDS = 1.0, 0.1
_POINTER, _GAP, _PROMPT, _CUT = "▸ ", "  ", "try ", " …"
_MOST_INCIDENTS = 5
_MIN_BAR = 10
_SIGNS = {
    matrix.FAILING_MARK: "open incident",
    matrix.STALE_MARK: "no new round",
    **{mark: decision.value for decision, mark in matrix.DECISION_MARKS.items()},
    NO_VALUE_MARK: "probes without a value",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a demo shows beside its answers: its progress, with the share of the time that is over unless it is endless;
    the events so far, oldest first; the address of the page; commands to try in another terminal.
    """

    progress: str
    share: float | None = None
    events: tuple[str, ...] = ()
    address: str = ""
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything on the screen: the newest answers, those about one target if its detail view is open, and the reason
    that there are no newer ones since `failing_since` (microseconds since the epoch), if there is one.
    """

    answers: Answers
    state: ViewState
    now_at: int
    collector: str = ""
    detail: Detail | None = None
    failure: str = ""
    failing_since: int | None = None
    story: Story | None = None


def run(
    view: View,
    observer: Observer,
    stop: StopRequests,
    *,
    beside: ThreadPoolExecutor,
    every_us: int,
    follow: Callable[[View], View] = lambda view: view,
) -> None:
    """Show the live view, from a first view on, until `q` or a request to stop. The questions are asked in the thread
    `beside`, `every_us` after an answer and each second without one; `follow` changes the view before each draw.
    """
    asked: Future[tuple[Answers, Detail | None]] | None = None
    question, next_at = (view.state.question, ""), view.now_at + every_us
    with Screen() as drawn:
        while not stop.wanted:
            view = replace(view, now_at=now_at())
            if asked is not None and asked.done():
                view, asked = _answered(view, asked), None
                next_at = view.now_at + (SECOND_US if view.failure else every_us)
            wanted = view.state.question, view.state.detail
            # At once if the question has changed; in another thread, so that the screen follows the keys meanwhile.
            if asked is None and (view.now_at >= next_at or wanted != question):
                question, asked = wanted, beside.submit(observer.observe, *wanted)
            view = follow(view)
            if view.state.is_over:
                break
            drawn.draw(partial(screen, view))
            for key in drawn.keys(_DRAW_SECONDS if asked is None else _AWAIT_SECONDS, stop):
                view = replace(view, state=press(view.state, key, shown_of(view)))


def _answered(view: View, asked: "Future[tuple[Answers, Detail | None]]") -> View:
    """The view with the answers that have arrived, or with the reason that there are no newer ones."""
    try:
        answers, detail = asked.result()
    except ClientError as error:
        is_away = isinstance(error, UnreachableError | SlowError)
        since = (view.failing_since or view.now_at) if is_away else None
        return replace(view, failure=str(error), failing_since=since)
    return replace(view, answers=answers, detail=detail, failure="", failing_since=None)


def shown_of(view: View) -> matrix.Matrix:
    """The matrix on the screen: the targets that the filter leaves, in their order."""
    state = view.state
    name_part = state.name_part if state.typed is None else state.typed
    return matrix.arranged(matrix_of(view.answers), sort=state.sort, name_part=name_part)


def screen(view: View, *, width: int, height: int) -> list[Text]:
    """The lines for a terminal of this size; the last one has the keys."""
    room = max(height - 1, 0)
    if view.state.has_help:
        lines = _help(width)
    elif view.state.detail:
        lines = _one_target(view, width, room)
    else:
        lines = _all_targets(view, width, room)
    lines = lines[:room]
    return [*lines, *[Text("")] * (room - len(lines)), _keys(view.state, width)][:height]


def _all_targets(view: View, width: int, room: int) -> list[Text]:
    found = shown_of(view)
    part, page = _fitting(found, view, width - len(_POINTER))
    lines = lines_of(page, width=width - len(_POINTER))
    high = 2 if any(column.below for column in page.columns) else 1
    # The first line of a page without a title is empty.
    first = 1 + max(column.heading.count("\n") + 1 for column in page.columns)
    above = [_title(view, width), fitting(_signs(view, found, part), width)]
    above += [_pointed(line, is_selected=False) for line in lines[1:first]]
    least = len(found.targets) if view.story else min(len(found.targets), 3)
    below = _below(view, width, room - len(above) - high * least)
    # The rows that fit, with the selected one among them.
    pointed, count = selected_target(view.state, found.targets), len(found.targets)
    visible = min(max((room - len(above) - len(below)) // high, 1), count)
    start = min(max((found.targets.index(pointed) if count else 0) - visible // 2, 0), count - visible)
    above += [
        _pointed(lines[first + high * row + line], is_selected=found.targets[row] == pointed and not line)
        for row in range(start, start + visible)
        for line in range(high)
    ]
    legend = [Text(line, style="dim") for note in page.notes[:1] for line in wrap(note, width, break_on_hyphens=False)]
    below = [*legend, *below] if len(above) + len(legend) + len(below) <= room else below
    if not count:
        filtered = "no target has such a name; escape shows all of them"
        empty = "no target is being measured: `isochrone targets` shows the plan"
        above.append(Text(filtered if view.answers.targets else empty, style="dim"))
    return [*above, *below]


def _fitting(found: matrix.Matrix, view: View, width: int) -> tuple[matrix.Matrix, Page[str]]:
    """The matrix with as many regions as fit, from the first one that is not scrolled away; and its page."""
    regions = found.regions[min(view.state.first_region, max(len(found.regions) - 1, 0)) :]
    while True:
        part = replace(found, regions=regions)
        page = matrix.fitting_page(part, "", width=width, forms=matrix.FORMS if view.story else matrix.FORMS_WITH_BARS)
        if len(regions) <= 1 or matrix.width_of(page) <= width:
            return part, page
        regions = regions[:-1]


def _one_target(view: View, width: int, room: int) -> list[Text]:
    above = [_title(view, width), Text(view.state.detail, style="bold")]
    detail = view.detail
    if detail is None or detail.target != view.state.detail:
        return [*above, Text("asking the collector …", style="dim")]
    pages: dict[str, Page[Any]] = {
        f"median {view.answers.question.metric.display_name} over time": samples.series_page(
            detail.series, now_at=view.now_at
        ),
        "quantiles": leaderboard.page(detail.leaderboard),
        f"contribution of the phases to the difference from {detail.baseline}": differentials.phases_page(
            detail.differentials
        ),
        "outcomes": fleet.coverage_page(detail.coverage, now_at=view.now_at),
    }
    lines: list[Text] = []
    region: Column[Any] = Column("region", lambda row: row.region, wide=True)
    for title, page in pages.items():
        kept = [column for column in page.columns if column.heading not in ("rank", "target", "model", "provider")]
        rows = tuple(sorted(page.rows, key=lambda row: (row.region != detail.baseline, row.region)))
        shown = replace(page, title=title, columns=(region, *kept), rows=rows, group=lambda _row: "")
        section = lines_of(shown, width=width)
        lines += [*([Text("")] if lines and section else []), *section]
    most = max(len(lines) - (room - len(above)), 0)
    return [*above, *lines[min(view.state.scrolled, most) :]]


def _help(width: int) -> list[Text]:
    keys = {", ".join(binding.keys): binding.sentence for binding in BINDINGS}
    first = max(map(len, keys)) + len(_GAP)
    lines = [Text("isochrone watch", style="bold"), Text("")]
    for names, sentence in keys.items():
        folded = wrap(sentence, max(width - first, 20)) or [""]
        lines.append(Text(f"{names:<{first}}", style="cyan").append(folded[0], style="default"))
        lines += [Text(" " * first + part) for part in folded[1:]]
    signs = ", ".join(f"{sign} {meaning}" for sign, meaning in _SIGNS.items())
    return [*lines, Text(""), *(Text(line, style="dim") for line in wrap(signs, width))]


def _title(view: View, width: int) -> Text:
    """The subject, and on the right the age of the answers, the length of an outage, or the progress of a demo."""
    answers, story = view.answers, view.story
    window, metric = answers.question.window, answers.question.metric
    last = f"last {window}" if window[:1].isdigit() and window[-1] in "smhdw" else window
    left = f"Isochrone{_GAP}{metric.display_name}, {display_unit(metric.unit)}{_GAP}{last}{_GAP}{view.collector}"
    if view.failing_since is not None:
        right, style = f"reconnecting for {age(view.failing_since, now_at=view.now_at)}", "bold yellow"
    elif view.state.question != answers.question:
        right, style = "asking …", "dim"
    elif story:
        right, style = story.progress, "default"
    else:
        right, style = f"{age(answers.answered_at, now_at=view.now_at)} ago", "dim"
    if story:
        left = f"Isochrone demo{_GAP}"
        bar = width - len(left) - len(right) - len(_GAP)
        if story.share is not None and bar >= _MIN_BAR:
            done = min(bar, round(bar * story.share))
            left += f"{'━' * done}{'┄' * (bar - done)}"
    left = left[: max(width - len(right) - len(_GAP), 0)]
    title = Text(f"{left:<{max(width - len(right), 0)}}", style="bold").append(right, style=f"not bold {style}")
    title.highlight_regex("[━┄]+", "not bold cyan")
    title.truncate(width)
    return title


def _signs(view: View, found: matrix.Matrix, part: matrix.Matrix) -> tuple[str, ...]:
    hidden = len(found.regions) - len(part.regions)
    cells, answers = found.cells.values(), view.answers
    last = f"last {answers.question.window}, {answers.question.metric.value} in {display_unit(found.metric.unit)}"
    marks = (
        (view.story, last),
        (hidden > 0, f"{hidden} more region{'s' * (hidden > 1)}: ← →"),
        (True, f"difference to {found.baseline}" if found.baseline else ""),
        (any(cell.is_failing for cell in cells), f"{matrix.FAILING_MARK} fails"),
        (found.changed, f"{matrix.CHANGED_MARK} changed"),
        (any(cell.is_stale for cell in cells), f"{matrix.STALE_MARK} {_SIGNS[matrix.STALE_MARK]}"),
        (True, f"{matrix.EARLY_MARK} undecided" + " or no interval yet" * any(cell.is_early for cell in cells)),
        (not view.story, f"▁█ {span(answers.series.bucket_us)} each"),
        (True, "± 95 %"),
        (any(NO_VALUE_MARK in cell.bars for cell in cells) and not view.story, f"{NO_VALUE_MARK} no value"),
    )
    return tuple(text for is_there, text in marks if is_there and text)


def _pointed(line: Text, *, is_selected: bool) -> Text:
    return Text(_POINTER if is_selected else " " * len(_POINTER), style="bold cyan").append_text(line)


def _below(view: View, width: int, room: int) -> list[Text]:
    """The failure, the open incidents, the newest events and the rest of a demo, as far as there is room."""
    incidents = [open_incident(one) for one in view.answers.incidents]
    lines = [Text(shorten(view.failure, width, placeholder=_CUT), style="yellow")] if view.failure else []
    shown = (shorten(f"open incident: {one}", width, placeholder=_CUT) for one in incidents[:_MOST_INCIDENTS])
    lines += [Text(line, style="bold red") for line in shown]
    if len(incidents) > _MOST_INCIDENTS:
        lines.append(Text(f"and {len(incidents) - _MOST_INCIDENTS} more: isochrone incidents", style="bold red"))
    if view.story:
        return _below_story(view.story, lines, width, room)
    event = view.answers.newest_event
    if event is not None:
        at = moment(event.raised_at, now_at=view.now_at)
        lines += _folded(f"{at} {event.subject}: {event.sentence}", width)
    return [Text(""), *lines][: max(room, 0)] if lines else []


def _below_story(story: Story, problems: list[Text], width: int, room: int) -> list[Text]:
    address = [[Text(story.address, style="dim")]] if len(story.address) <= width else []
    events = [_folded(event, width, style="bold") for event in reversed(story.events)]
    advice = [[Text(part, style="cyan") for part in continued(line, width - len(_PROMPT))] for line in story.advice]
    *others, newest, commands = taken(([[line] for line in problems], address, events, advice), room)
    below = [line for section in (*others, newest[::-1]) for item in section for line in item]
    for place, line in enumerate(line for item in commands for line in item):
        below.append(Text(" " * len(_PROMPT) if place else _PROMPT, style="dim").append_text(line))
    return [*([Text("")] if len(below) < room else []), *below] if below else []


def _folded(sentence: str, width: int, style: str = "") -> list[Text]:
    lines = wrap(sentence, width, subsequent_indent=_GAP, max_lines=2, placeholder=_CUT, break_on_hyphens=False)
    return [Text(line, style=style) for line in lines]


def _keys(state: ViewState, width: int) -> Text:
    if state.typed is not None:
        return Text(f"targets with: {state.typed}▏", style="reverse").append("  enter keeps, escape cancels", "dim")
    if state.has_help:
        return Text("any key: back  q quit", style="dim")
    asked = ("m metric", "w window", "b baseline")
    if state.detail:
        return fitting(("q quit", "escape back", "↑↓ scroll", *asked, "? help"), width)
    filtered = f"/ filter: {state.name_part}" if state.name_part else "/ filter"
    return fitting(("q quit", "? help", f"s sort: {state.sort}", "enter detail", filtered, *asked), width)
