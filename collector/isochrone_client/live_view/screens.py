"""The screens of the live view as lines of text, all targets, one target and the help; and the loop that draws them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from textwrap import shorten, wrap
from typing import Any

from rich.text import Text

from isochrone_client.address import Collector
from isochrone_client.client import ReadClient
from isochrone_client.errors import ClientError, SlowError, UnreachableError
from isochrone_client.formats import age, moment, span
from isochrone_client.live_view.answers import NO_VALUE_MARK, Answers, Detail, Observer, matrix_of
from isochrone_client.live_view.state import BINDINGS, Question, Shown, ViewState, press, selected_target
from isochrone_client.pages import differentials, fleet, leaderboard, matrix, samples
from isochrone_client.pages.alerts import open_incident
from isochrone_client.pages.matrix import DECISION_MARKS, FAILING_MARK, FORMS_WITH_BARS, STALE_MARK, Matrix
from isochrone_client.render.page import Column, Page
from isochrone_client.screen import Keyboard, Screen, StopRequests, fitting, lines_of
from isochrone_client.window import now_at
from isochrone_wire.durations import SECOND_US

# The ages on the screen change with each second; an answer is looked for more often while one is awaited.
_DRAW_SECONDS = 1.0
_AWAIT_SECONDS = 0.1
_RETRY_US = SECOND_US
_POINTER = "▸ "
_GAP = "  "
# The lines before the rows of a page without a title: an empty one, two of headings.
_HEADINGS = 3
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


def run(collector: Collector, state: ViewState, *, timeout_us: int, every_us: int) -> None:
    """Show the live view until `q`, Ctrl-C, SIGTERM or SIGHUP. Raises the `ClientError` of the first answer."""
    keyboard = Keyboard()
    with ThreadPoolExecutor(max_workers=1) as beside, ReadClient(collector, timeout_us=timeout_us) as client:
        # The client is closed first, which ends a call that the thread waits for.
        asking = _Asking(observer=Observer(client), beside=beside, every_us=every_us)
        view = View(collector=str(collector), answers=asking.first(state.question), state=state, now_at=now_at())
        with StopRequests() as stop, Screen(keyboard) as drawn:
            while not (stop.wanted or view.state.is_over):
                view = asking.updated(replace(view, now_at=now_at()))
                drawn.draw(partial(screen, view))
                for key in keyboard.wait(_AWAIT_SECONDS if asking.is_waiting else _DRAW_SECONDS, stop):
                    view = replace(view, state=press(view.state, key, shown_of(view.answers, view.state)))
    stop.check(results=True)


@dataclass(slots=True, kw_only=True)
class _Asking:
    """Asks in another thread, so that the screen follows the keys meanwhile: `every_us` after an answer, at once if the
    question has changed, and after a second while the collector does not answer.
    """

    observer: Observer
    beside: ThreadPoolExecutor
    every_us: int
    _asked: "Future[tuple[Answers, Detail | None]] | None" = None
    _next_at: int = 0
    _question: tuple[Question | None, str] = field(default=(None, ""))

    def first(self, question: Question) -> Answers:
        """The first answer. Raises `ClientError`."""
        self._question, self._next_at = (question, ""), now_at() + self.every_us
        return self.observer.observe(question)[0]

    @property
    def is_waiting(self) -> bool:
        """Return whether an answer is awaited."""
        return self._asked is not None

    def updated(self, view: View) -> View:
        """The view with the answer that has arrived, if there is one. Asks if it is time."""
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            view = self._answered(view, asked)
        wanted = view.state.question, view.state.detail
        if self._asked is None and (view.now_at >= self._next_at or wanted != self._question):
            self._question = wanted
            self._asked = self.beside.submit(self.observer.observe, *wanted)
        return view

    def _answered(self, view: View, asked: "Future[tuple[Answers, Detail | None]]") -> View:
        try:
            answers, detail = asked.result()
        except ClientError as error:
            self._next_at = view.now_at + _RETRY_US
            is_away = isinstance(error, UnreachableError | SlowError)
            since = (view.failing_since or view.now_at) if is_away else None
            return replace(view, failure=str(error), failing_since=since)
        self._next_at = view.now_at + self.every_us
        return replace(view, answers=answers, detail=detail, failure="", failing_since=None)


def shown_of(answers: Answers, state: ViewState) -> Shown:
    """The names on the screen, in their order."""
    found = _matrix(answers, state)
    return Shown(targets=found.targets, baseline=found.baseline, regions=(found.baseline, *found.regions))


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


def _matrix(answers: Answers, state: ViewState) -> Matrix:
    name_part = state.name_part if state.typed is None else state.typed
    return matrix.arranged(matrix_of(answers), sort=state.sort, name_part=name_part)


def _all_targets(view: View, width: int, room: int) -> list[Text]:
    found = _matrix(view.answers, view.state)
    part, page = _fitting(found, view.state, width - len(_POINTER))
    lines = lines_of(page, width=width - len(_POINTER))
    above = [_title(view, width), fitting(_signs(view, found, part), width)]
    headings = lines[1:_HEADINGS]
    below = _below(view, width, room - len(above) - len(headings) - min(len(found.targets), _LEAST_ROWS))
    rows = _visible(found.targets, view.state, room - len(above) - len(headings) - len(below))
    pointed = selected_target(view.state, found.targets)
    body = [_pointed(lines[_HEADINGS + row], is_selected=found.targets[row] == pointed) for row in rows]
    return [*above, *(_pointed(line, is_selected=False) for line in headings), *body, *_nothing(view, found), *below]


def _fitting(found: Matrix, state: ViewState, width: int) -> tuple[Matrix, Page[str]]:
    """The matrix with as many regions as fit, from the first one that is not scrolled away; and its page."""
    regions = found.regions[min(state.first_region, max(len(found.regions) - 1, 0)) :]
    while True:
        part = replace(found, regions=regions)
        page = matrix.fitting_page(part, "", width=width, forms=FORMS_WITH_BARS)
        if len(regions) <= 1 or matrix.width_of(page) <= width:
            return part, page
        regions = regions[:-1]


def _one_target(view: View, width: int, room: int) -> list[Text]:
    above = [_title(view, width), Text(view.state.detail, style="bold")]
    detail = view.detail
    if detail is None or detail.target != view.state.detail:
        return [*above, Text("asking the collector …", style="dim")]
    pages: tuple[tuple[str, Page[Any]], ...] = (
        (
            f"median {view.answers.question.metric.display_name} over time",
            samples.series_page(detail.series, now_at=view.now_at),
        ),
        ("quantiles", leaderboard.page(detail.leaderboard)),
        (
            f"contribution of the phases to the difference from {detail.baseline}",
            differentials.phases_page(detail.differentials),
        ),
        ("outcomes", fleet.coverage_page(detail.coverage, now_at=view.now_at)),
    )
    lines: list[Text] = []
    for title, page in pages:
        section = lines_of(_by_region(page, title, detail.baseline), width=width)
        lines += [*([Text("")] if lines and section else []), *section]
    most = max(len(lines) - (room - len(above)), 0)
    return [*above, *lines[min(view.state.scrolled, most) :]]


def _by_region(page: Page[Any], title: str, baseline: str) -> Page[Any]:
    """The page of a command about one target: a row per region, the baseline first."""
    region: Column[Any] = Column(heading="region", text=lambda row: row.region, wide=True)
    kept = [column for column in page.columns if column.heading not in ("rank", "target", "model", "provider")]
    rows = tuple(sorted(page.rows, key=lambda row: (row.region != baseline, row.region)))
    return replace(page, title=title, columns=(region, *kept), rows=rows, group=lambda _row: "")


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
    """The metric and the collector, and on the right the age of the answers or why there are no newer ones."""
    answers = view.answers
    window, metric = answers.question.window, answers.question.metric
    last = f"last {window}" if window[:1].isdigit() and window[-1:] in _DURATION_UNITS else window
    left = f"Isochrone{_GAP}{metric.display_name}, {matrix.unit_of(metric)}{_GAP}{last}{_GAP}{view.collector}"
    if view.failing_since is not None:
        right, style = f"reconnecting for {age(view.failing_since, now_at=view.now_at)}", "bold yellow"
    elif view.state.question != answers.question:
        right, style = "asking …", "dim"
    else:
        right, style = f"{age(answers.answered_at, now_at=view.now_at)} ago", "dim"
    left = left[: max(width - len(right) - len(_GAP), 0)]
    return Text(f"{left:<{max(width - len(right), 0)}}", style="bold").append(right, style=f"not bold {style}")


def _signs(view: View, found: Matrix, part: Matrix) -> tuple[str, ...]:
    hidden = len(found.regions) - len(part.regions)
    cells = found.cells.values()
    marks = (
        (hidden > 0, f"{hidden} more region{'s' * (hidden > 1)}: ← →"),
        (True, f"difference to {found.baseline}" if found.baseline else ""),
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


def _nothing(view: View, found: Matrix) -> list[Text]:
    if found.targets:
        return []
    if view.answers.targets:
        return [Text("no target has such a name; escape shows all of them", style="dim")]
    return [Text("no target is being measured: `isochrone targets` shows the plan", style="dim")]


def _below(view: View, width: int, room: int) -> list[Text]:
    """The failure, the open incidents and the newest event, as far as there is room, below an empty line."""
    lines = list(_remarks(view, width))
    return [Text(""), *lines][: max(room, 0)] if lines else []


def _remarks(view: View, width: int) -> Iterator[Text]:
    incidents, event = view.answers.incidents, view.answers.newest_event
    if view.failure:
        yield Text(shorten(view.failure, width, placeholder=" …"), style="yellow")
    for incident in incidents[:_MOST_INCIDENTS]:
        yield Text(shorten(f"open incident: {open_incident(incident)}", width, placeholder=" …"), style="bold red")
    if len(incidents) > _MOST_INCIDENTS:
        yield Text(f"and {len(incidents) - _MOST_INCIDENTS} more: isochrone incidents", style="bold red")
    if event is not None:
        sentence = f"{moment(event.raised_at, now_at=view.now_at)} {event.subject}: {event.sentence}"
        yield from (Text(line) for line in wrap(sentence, width, subsequent_indent=_GAP, max_lines=2, placeholder=" …"))


def _keys(state: ViewState, width: int) -> list[Text]:
    if state.typed is not None:
        return [Text(f"targets with: {state.typed}▏", style="reverse").append("  enter keeps, escape cancels", "dim")]
    if state.has_help:
        return [Text("any key: back  q quit", style="dim")]
    asked = ("m metric", "w window", "b baseline")
    if state.detail:
        return [fitting(("q quit", "escape back", "↑↓ scroll", *asked, "? help"), width)]
    filtered = f"/ filter: {state.name_part}" if state.name_part else "/ filter"
    return [fitting(("q quit", "? help", f"s sort: {state.sort}", "enter detail", filtered, *asked), width)]
