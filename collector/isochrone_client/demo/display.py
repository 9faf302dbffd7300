"""The running demo: its questions to the collector, and what is shown of the answers until the time is over.

A terminal is redrawn in place; elsewhere, tables are printed below each other.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from textwrap import shorten, wrap

import click
from rich.text import Text

from isochrone_client import terminal
from isochrone_client.client import ReadClient
from isochrone_client.demo.receiver import AlertReceiver
from isochrone_client.demo.scenario import BASELINE, VANTAGES, Timeline
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_client.pages.alerts import open_incident
from isochrone_client.pages.matrix import (
    CHANGED_MARK,
    FAILING_MARK,
    Matrix,
    Place,
    by_place,
    fitting_page,
    marked,
    matrix_of,
)
from isochrone_client.screen import Screen, StopRequests, can_be_redrawn, fitting, lines_of
from isochrone_client.window import now_at
from isochrone_wire.answers import Differential, Metric, Selection, Window
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import ChangeKind

_REGIONS = tuple(vantage.region for vantage in VANTAGES if vantage.region != BASELINE)
# Thirty rounds: enough for a decision; a change is found as a step after five.
WINDOW_SECONDS = 60
# The start, which later windows are compared with, ends before the scripted slowdown. Its rounds are delivered by then.
_START_SECONDS, _START_KNOWN_SECONDS = 60, 66
# Not `first`: at the start the first choice depends on which member had six samples first, and is corrected.
_REPORTED_CHANGES = frozenset({ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD, ChangeKind.FREEZE, ChangeKind.THAW})
_OBSERVE_SECONDS, _DRAW_SECONDS = 2.0, 0.5
# A table is printed so many seconds after the first sample, even if it has gaps; and, without any change, so often.
_FIRST_TABLE_SECONDS, _TABLE_SECONDS, _PROGRESS_SECONDS = 10.0, 60.0, 10.0
_TITLE = f"last {WINDOW_SECONDS} s, in ms"
_MIN_BAR = 10
_GAP, _PROMPT, _CONTINUES = "  ", "try ", " \\"
# The order in which lines below the table get their place on a small screen; larger ones have room for more of each.
_PRIORITIES = ("incident", "event", "advice", "address", "event", "advice", "blank", "blank")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The matrix of the newest rounds, the samples recorded so far and the failed ones of them, the new switches of
    routes, and the open incidents as sentences.
    """

    matrix: Matrix
    recorded: int = 0
    failed: int = 0
    switches: tuple[str, ...] = ()
    incidents: tuple[str, ...] = ()


class Observer:
    """Questions about a demo that began at `started_at`, in microseconds since the epoch."""

    def __init__(self, client: ReadClient, *, targets: tuple[str, ...], started_at: int) -> None:
        self._client = client
        self._targets = targets
        self._started_at = started_at
        self._usual: dict[Place, Differential] = {}
        self._generation = 0

    @property
    def empty(self) -> Matrix:
        """The matrix before the first answer."""
        return matrix_of((), (), metric=Metric.TTFT, baseline=BASELINE, regions=_REGIONS, targets=self._targets)

    def observe(self) -> Observation:
        """Ask for the newest rounds and the counts. Raises `ClientError`."""
        now = now_at()
        newest = Window(from_at=max(self._started_at, now - WINDOW_SECONDS * SECOND_US), until_at=now + SECOND_US)
        if not self._usual and now >= self._started_at + _START_KNOWN_SECONDS * SECOND_US:
            until_at = self._started_at + _START_SECONDS * SECOND_US
            self._usual = by_place(self._differentials(Window(from_at=self._started_at, until_at=until_at)))
        incidents = self._client.list_incidents(newest, past=False).incidents
        rows = self._differentials(newest)
        found = matrix_of(
            self._client.get_leaderboard(Selection(window=newest)).standings,
            rows,
            metric=Metric.TTFT,
            baseline=BASELINE,
            regions=_REGIONS,
            targets=self._targets,
            shown=lambda median: median.value if median else None,
        )
        coverage = self._client.get_coverage(Selection(window=Window(from_at=self._started_at, until_at=now))).coverage
        recorded = sum(row.recorded for row in coverage)
        return Observation(
            matrix=marked(
                found,
                failing={(incident.subject, region) for incident in incidents for region in incident.failing},
                changed=changes(by_place(rows), self._usual),
            ),
            recorded=recorded,
            failed=recorded - sum(row.outcomes.get("ok", 0) for row in coverage),
            switches=tuple(self._switches(Window(from_at=self._started_at, until_at=now_at() + SECOND_US))),
            incidents=tuple(f"open incident: {open_incident(one)}" for one in incidents),
        )

    def _differentials(self, window: Window) -> tuple[Differential, ...]:
        selection = Selection(window=window)
        return self._client.get_differentials(selection, baseline=BASELINE, metric=Metric.TTFT).differentials

    def _switches(self, window: Window) -> Iterator[str]:
        """Yield a sentence for each new switch of a route, oldest first."""
        events = self._client.list_route_events(Selection(window=window)).events
        for event in sorted(events, key=lambda event: event.generation):
            if event.generation > self._generation:
                self._generation = event.generation
                if event.change in _REPORTED_CHANGES:
                    yield f"the route {event.route} switches in {event.client_region}: {event.sentence}"


def changes(now: dict[Place, Differential], usual: dict[Place, Differential]) -> dict[Place, float]:
    """The changes of differences whose intervals are apart by more than the smallest difference that matters."""
    found = {}
    for place, row in now.items():
        before = usual.get(place)
        if before is None or row.shift is None or before.shift is None:
            continue
        bounds = (row.shift_low, row.shift_high, before.shift_low, before.shift_high)
        low, high, usual_low, usual_high = (bound if bound is not None else float("nan") for bound in bounds)
        if max(low - usual_high, usual_low - high) > max(row.margin or 0.0, before.margin or 0.0):
            found[place] = row.shift - before.shift
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Seconds since the start and, unless it is endless, in total; samples recorded, and the failed ones of them."""

    elapsed: float
    total: float | None
    recorded: int = 0
    failed: int = 0

    def __str__(self) -> str:
        time = f"{self.elapsed:.0f} s" if self.total is None else f"{self.elapsed:.0f} of {self.total:g} s"
        return f"{time} · {self.recorded} samples, {self.failed} failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that is shown; `advice` are lines to copy into a shell."""

    progress: Progress
    matrix: Matrix
    incidents: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


Show = Callable[[View, list[str]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A demo that began at `started_at` (microseconds since the epoch) and lasts `seconds`, `None` for no end. `check`
    raises `DemoError` if one of its processes has ended; what arrives at the `receiver` is shown among the events.
    """

    observer: Observer
    timeline: Timeline
    stop: StopRequests
    check: Callable[[], None]
    started_at: int
    seconds: float | None
    addresses: tuple[str, ...]
    advice: tuple[str, ...]
    receiver: AlertReceiver | None = None

    def run(self) -> None:
        """Show the demo. Raises `ClientError`."""
        with display() as show:
            self._follow(show)

    def _follow(self, show: Show) -> None:
        seen, asked_at = Observation(matrix=self.observer.empty), -_OBSERVE_SECONDS
        asked: Future[Observation] | None = None
        # The answers are awaited in another thread, so that the screen follows the clock and the keyboard meanwhile.
        with ThreadPoolExecutor(max_workers=1) as beside:
            while not self.stop.wanted and self._left() > 0:
                self.check()
                if asked is None and self._elapsed() - asked_at >= _OBSERVE_SECONDS:
                    asked, asked_at = beside.submit(self.observer.observe), self._elapsed()
                news: tuple[str, ...] = ()
                if asked is not None and asked.done():
                    seen, asked = _answer(asked, before=seen), None
                    news = seen.switches
                if self.receiver is not None:
                    news += tuple(str(alert) for alert in self.receiver.new() if alert.is_about_an_incident)
                new = self.timeline.note(self._elapsed(), seen.matrix, news)
                show(self._view(seen), new)
                self.stop.sleep(min(_DRAW_SECONDS, self._left()))

    def _elapsed(self) -> float:
        return (now_at() - self.started_at) / SECOND_US

    def _left(self) -> float:
        return _DRAW_SECONDS if self.seconds is None else self.seconds - self._elapsed()

    def _view(self, seen: Observation) -> View:
        elapsed = self._elapsed()
        coming = self.timeline.coming(elapsed)
        return View(
            progress=Progress(elapsed=elapsed, total=self.seconds, recorded=seen.recorded, failed=seen.failed),
            matrix=seen.matrix,
            incidents=seen.incidents,
            events=(*self.timeline.events, *([coming] if coming else [])),
            addresses=self.addresses,
            advice=self.advice,
        )


def _answer(asked: Future[Observation], *, before: Observation) -> Observation:
    """The answer; on a machine that is too busy to answer in time, the one before without its events."""
    try:
        return asked.result()
    except (SlowError, UnreachableError):
        return replace(before, switches=())


@contextmanager
def display() -> Iterator[Show]:
    """A function that shows views on standard output, with the events that the view before did not have."""
    if not can_be_redrawn():
        yield PrintedTables().show
        return
    noted: list[str] = []
    try:
        with Screen() as drawn:

            def show(view: View, new_events: list[str]) -> None:
                noted.extend(new_events)
                drawn.draw(partial(screen, view))

            yield show
    finally:
        for event in noted:  # they disappear with the screen
            click.echo(f"· {event}", err=True)


class PrintedTables:
    """A table when the first one is possible, when it is complete, after each change, and otherwise every minute."""

    def __init__(self) -> None:
        self._first_at: float | None = None
        self._table_at: float | None = None
        self._progress_at = 0.0
        self._was_firm = False
        self._marked: frozenset[Place] = frozenset()

    def show(self, view: View, new_events: list[str]) -> None:
        """Print the events, and a table or the progress if it is time."""
        elapsed, found = view.progress.elapsed, view.matrix
        places = frozenset(place for place, cell in found.cells.items() if cell.changed is not None or cell.is_failing)
        for event in new_events:
            click.echo(f"· {event}", err=True)
        if self._is_time(view, places):
            self._table_at, self._progress_at = elapsed, elapsed
            self._was_firm, self._marked = self._was_firm or found.is_firm, places
            click.echo(f"after {view.progress}:")
            width = terminal.render_options().width
            title, _, *lines = lines_of(fitting_page(found, _TITLE, width=width), width=width)
            click.echo("\n".join(line.plain for line in (title, *lines)) + "\n")
        elif elapsed - self._progress_at >= _PROGRESS_SECONDS:
            self._progress_at = elapsed
            click.echo(f"· {view.progress}", err=True)

    def _is_time(self, view: View, places: frozenset[Place]) -> bool:
        elapsed = view.progress.elapsed
        if self._first_at is None and view.progress.recorded:
            self._first_at = elapsed
        if self._table_at is None:
            waited = self._first_at is not None and elapsed - self._first_at >= _FIRST_TABLE_SECONDS
            return view.matrix.has_every_value or waited
        has_news = places != self._marked or (view.matrix.is_firm and not self._was_firm)
        return has_news or elapsed - self._table_at >= _TABLE_SECONDS


def screen(view: View, *, width: int, height: int) -> list[Text]:
    """The lines for a terminal of this size. A small one shows less of what happened and what to try."""
    page = fitting_page(view.matrix, _TITLE, width=width)
    table = lines_of(page, width=width)[2:]  # without the title, which the legend has
    marks = (f"{FAILING_MARK} fails",) if view.incidents else ()
    first = (_TITLE, f"difference to {view.matrix.baseline}", "± 95 %")
    legend = fitting((*first, f"{CHANGED_MARK} changed", *marks, "? undecided"), width)
    above = [_title(view.progress, width), legend, *table]
    return [*above, *_below(view, width, height - len(above))][:height]


def _title(progress: Progress, width: int) -> Text:
    title = Text("Isochrone demo", style="bold").append(_GAP)
    bar = width - title.cell_len - len(str(progress)) - len(_GAP)
    if progress.total is not None and bar >= _MIN_BAR:
        done = min(bar, round(bar * progress.elapsed / progress.total))
        title.append("━" * done, style="cyan").append("┄" * (bar - done), style="dim").append(_GAP)
    title.append(str(progress), style="not bold")
    title.truncate(width)
    return title


def _below(view: View, width: int, room: int) -> list[Text]:
    """The open incidents, newest events, advice and addresses that fit into `room` lines."""
    advice, addresses = list(_advice(view.advice, width)), [one for one in view.addresses if len(one) <= width]
    folded = [_folded(event, width) for event in view.events]
    incidents = [shorten(incident, width, placeholder=" …") for incident in view.incidents]
    there = {
        "incident": len(incidents),
        "event": sum(map(len, folded)),
        "advice": len(advice),
        "address": len(addresses),
        "blank": 2,
    }
    shown = dict.fromkeys(there, 0)
    rest = ["incident"] * there["incident"] + ["advice"] * there["advice"] + ["event"] * there["event"]
    for kind in (*_PRIORITIES, *rest):
        if sum(shown.values()) < room and shown[kind] < there[kind]:
            shown[kind] += 1
    return [
        *[Text("")] * (shown["blank"] > 0),
        *(Text(line, style="bold red") for line in incidents[: shown["incident"]]),
        *(Text(line, style="bold") for line in _newest(folded, shown["event"])),
        *[Text("")] * (shown["blank"] > 1),
        *_whole(advice[: shown["advice"]]),
        *(Text(one, style="dim") for one in addresses[: shown["address"]]),
    ]


def _newest(events: list[list[str]], room: int) -> list[str]:
    """The lines of the newest events that fit, and of the newest one at least its beginning."""
    if events and len(events[-1]) > room > 0:
        *lines, last = events[-1][:room]
        return [*lines, f"{last[:-1].rpartition(' ')[0]} …"]
    lines = []
    for event in reversed(events):
        if len(lines) + len(event) > room:
            break
        lines = [*event, *lines]
    return lines


def _folded(sentence: str, width: int) -> list[str]:
    return wrap(sentence, width, subsequent_indent=_GAP, break_long_words=False, break_on_hyphens=False)


def _advice(advice: tuple[str, ...], width: int) -> Iterator[Text]:
    """The lines to copy; one that is too long is continued as a shell has it."""
    folded = [part for line in advice for part in continued(line, width - len(_PROMPT))]
    for place, line in enumerate(folded):
        yield Text(" " * len(_PROMPT) if place else _PROMPT, style="dim").append(line, style="cyan")


def continued(line: str, width: int) -> list[str]:
    """The line in parts of at most `width` columns, with a backslash at the end of all but the last."""
    if len(line) <= width:
        return [line]
    *parts, last = _folded(line, width - len(_CONTINUES))
    return [*(f"{part}{_CONTINUES}" for part in parts), last]


def _whole(lines: list[Text]) -> list[Text]:
    """The lines without a command at the end whose continuation is missing."""
    while lines and lines[-1].plain.endswith(_CONTINUES):
        lines = lines[:-1]
    return lines
