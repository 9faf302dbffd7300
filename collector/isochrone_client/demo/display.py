"""The running demo: its questions to the collector, and what is shown of the answers until the time is over.

A terminal has the live view, with the events of the demo; elsewhere, tables are printed below each other.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import click

from isochrone_client import terminal
from isochrone_client.demo.receiver import AlertReceiver
from isochrone_client.demo.scenario import BASELINE, VANTAGES, Timeline
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_client.live_view import answers as live
from isochrone_client.live_view.answers import Answers, Detail, matrix_of
from isochrone_client.live_view.screens import Story, View, run
from isochrone_client.live_view.state import WINDOWS, Question, ViewState
from isochrone_client.pages.matrix import Matrix, Place, by_place, fitting_page
from isochrone_client.screen import StopRequests, can_be_redrawn, lines_of
from isochrone_client.window import now_at
from isochrone_wire.answers import Differential, Metric, Selection, Window
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import ChangeKind

# Thirty rounds: enough for a decision; a change is found as a step after five.
QUESTION = Question(window="60s", baseline=BASELINE)
# The start, which later windows are compared with, ends before the scripted slowdown. Its rounds are delivered by then.
_START_SECONDS, _START_KNOWN_SECONDS = 60, 66
# Not `first`: at the start the first choice depends on which member had six samples first, and is corrected.
_REPORTED_CHANGES = frozenset({ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD, ChangeKind.FREEZE, ChangeKind.THAW})
_OBSERVE_SECONDS, _DRAW_SECONDS = 2.0, 0.5
# A table is printed so many seconds after the first sample, even if it has gaps; and, without any change, so often.
_FIRST_TABLE_SECONDS, _TABLE_SECONDS, _PROGRESS_SECONDS = 10.0, 60.0, 10.0


@dataclass(eq=False)
class Observer(live.Observer):
    """Questions about a demo that began at `started_at`, in microseconds since the epoch: also for the samples recorded
    so far, the failed ones of them, and the switches of routes that were not taken yet.
    """

    started_at: int
    recorded: int = 0
    failed: int = 0
    switches: deque[str] = field(default_factory=deque)
    _usual: dict[Place, Differential] = field(default_factory=dict)
    _generation: int = 0

    def observe(self, question: Question, detail: str = "") -> tuple[Answers, Detail | None]:
        """See `live_view.answers.Observer`. Differences that have changed since the start are marked."""
        answers, about = super().observe(question, detail)
        started_at = self.started_at
        if not self._usual and answers.answered_at >= started_at + _START_KNOWN_SECONDS * SECOND_US:
            start = Selection(window=Window(from_at=started_at, until_at=started_at + _START_SECONDS * SECOND_US))
            found = self.client.get_differentials(start, baseline=BASELINE, metric=Metric.TTFT)
            self._usual = by_place(found.differentials)
        so_far = Selection(window=Window(from_at=started_at, until_at=now_at() + SECOND_US))
        coverage = self.client.get_coverage(so_far).coverage
        self.recorded = sum(row.recorded for row in coverage)
        self.failed = self.recorded - sum(row.outcomes.get("ok", 0) for row in coverage)
        for event in sorted(self.client.list_route_events(so_far).events, key=lambda event: event.generation):
            if event.generation > self._generation:
                self._generation = event.generation
                if event.change in _REPORTED_CHANGES:
                    what = f"the route {event.route} switches in {event.client_region}"
                    self.switches.append(f"{what}: {event.sentence}")
        now = by_place(answers.differentials.differentials)
        changed = changes(now, self._usual) if question == QUESTION else {}
        return replace(answers, changed=changed, newest_event=None), about


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
class Display:
    """A demo that began at `started_at` (microseconds since the epoch) and lasts `seconds`, `None` for no end. `check`
    raises `DemoError` if one of its processes has ended; what arrives at the `receiver` is shown among the events.
    """

    observer: Observer
    timeline: Timeline
    stop: StopRequests
    check: Callable[[], None]
    started_at: int
    seconds: float | None
    address: str
    advice: tuple[str, ...]
    receiver: AlertReceiver | None = None

    def run(self) -> None:
        """Show the demo. Raises `ClientError`."""
        state = ViewState(question=QUESTION, windows=(QUESTION.window, *WINDOWS))
        view = View(answers=self._answers(None), state=state, now_at=now_at())
        if not can_be_redrawn():
            self._print_tables(view)
            return
        try:
            with ThreadPoolExecutor(max_workers=1) as beside:
                every_us = round(_OBSERVE_SECONDS * SECOND_US)
                run(view, self.observer, self.stop, beside=beside, every_us=every_us, follow=self.follow)
        finally:
            for event in self.timeline.events:  # they disappear with the screen
                click.echo(f"· {event}", err=True)

    def follow(self, view: View) -> View:
        """The view with what has happened until now; over if the time is. Raises `DemoError`."""
        self.check()
        elapsed, total = self._elapsed(), self.seconds
        news = [self.observer.switches.popleft() for _ in range(len(self.observer.switches))]
        if self.receiver is not None:
            news += self.receiver.new()
        self.timeline.note(elapsed, matrix_of(view.answers) if view.answers.question == QUESTION else None, news)
        coming = self.timeline.coming(elapsed)
        time = f"{elapsed:.0f} s" if total is None else f"{elapsed:.0f} of {total:g} s"
        story = Story(
            progress=f"{time} · {self.observer.recorded} samples, {self.observer.failed} failed",
            share=None if total is None else elapsed / total,
            events=(*self.timeline.events, *([coming] if coming else [])),
            address=self.address,
            advice=self.advice,
        )
        is_over = view.state.is_over or (total is not None and elapsed >= total)
        return replace(view, story=story, state=replace(view.state, is_over=is_over))

    def _elapsed(self) -> float:
        return (now_at() - self.started_at) / SECOND_US

    def _answers(self, before: Answers | None) -> Answers:
        """The answers of now; on a machine that is too busy to answer in time, those before."""
        while True:
            try:
                return self.observer.observe(QUESTION)[0]
            except (SlowError, UnreachableError):
                if before is not None:
                    return before
            self.check()
            self.stop.check()
            self.stop.sleep(_DRAW_SECONDS)

    def _print_tables(self, view: View) -> None:
        printed, asked_at, shown = PrintedTables(), self._elapsed(), 0
        while not self.stop.wanted and not (view := self.follow(view)).state.is_over:
            for event in self.timeline.events[shown:]:
                click.echo(f"· {event}", err=True)
            shown = len(self.timeline.events)
            printed.show(view, elapsed=self._elapsed(), has_samples=self.observer.recorded > 0)
            left = _DRAW_SECONDS if self.seconds is None else self.seconds - self._elapsed()
            self.stop.sleep(min(_DRAW_SECONDS, left))
            if self._elapsed() - asked_at >= _OBSERVE_SECONDS:
                asked_at, view = self._elapsed(), replace(view, answers=self._answers(view.answers))


@dataclass(slots=True)
class PrintedTables:
    """A table when it is first possible, complete, or changed, else every minute; the progress every ten seconds."""

    _first_at: float | None = None
    _table_at: float | None = None
    _progress_at: float = 0.0
    _was_firm: bool = False
    _marked: frozenset[Place] = field(default_factory=frozenset)

    def show(self, view: View, *, elapsed: float, has_samples: bool) -> None:
        """Print a table or the progress if it is time."""
        found, progress = matrix_of(view.answers), view.story.progress if view.story else ""
        if self._first_at is None and has_samples:
            self._first_at = elapsed
        places = frozenset(place for place, cell in found.cells.items() if cell.changed is not None or cell.is_failing)
        if self._is_time(found, places, elapsed):
            self._table_at, self._progress_at = elapsed, elapsed
            self._was_firm, self._marked = self._was_firm or found.is_firm, places
            width = terminal.render_options().width
            page = fitting_page(found, f"last {QUESTION.window}, in ms", width=width)
            title, _, *lines = lines_of(page, width=width)
            click.echo("\n".join((f"after {progress}:", *(line.plain for line in (title, *lines)))) + "\n")
        elif elapsed - self._progress_at >= _PROGRESS_SECONDS:
            self._progress_at = elapsed
            click.echo(f"· {progress}", err=True)

    def _is_time(self, found: Matrix, places: frozenset[Place], elapsed: float) -> bool:
        if self._table_at is None:
            waited = self._first_at is not None and elapsed - self._first_at >= _FIRST_TABLE_SECONDS
            return waited or (len(found.regions) == len(VANTAGES) - 1 and found.has_every_value)
        has_news = places != self._marked or (found.is_firm and not self._was_firm)
        return has_news or elapsed - self._table_at >= _TABLE_SECONDS
