"""The running live view: asks the collector again and again, draws what it answers, and follows the keys."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.errors import ClientError, SlowError, UnreachableError
from isochrone_client.live_view.answers import Question
from isochrone_client.live_view.layout import View, screen, shown_of
from isochrone_client.live_view.observer import Observation, Observer
from isochrone_client.live_view.state import ViewState, press
from isochrone_client.screen.alternate_screen import AlternateScreen
from isochrone_client.screen.keyboard import Keyboard
from isochrone_client.screen.stop_requests import StopRequests
from isochrone_wire.durations import SECOND_US

# The ages on the screen change with each second; an answer is looked for more often while one is awaited.
_DRAW_SECONDS = 1.0
_AWAIT_SECONDS = 0.1
_RETRY_US = SECOND_US


def run(collector: Collector, state: ViewState, *, timeout_us: int, every_us: int) -> None:
    """Show the live view until `q`, Ctrl-C, SIGTERM or SIGHUP. Raises the `ClientError` of the first answer."""
    keyboard = Keyboard()
    with ThreadPoolExecutor(max_workers=1) as beside, ObservatoryClient(collector, timeout_us=timeout_us) as client:
        # The client is closed first, which ends a call that the thread waits for.
        asking = _Asking(observer=Observer(client), beside=beside, every_us=every_us)
        first = asking.first(state.question)
        view = View(collector=str(collector), answers=first.answers, state=state, now_at=now_at())
        with StopRequests() as stop, AlternateScreen(keyboard) as drawn:
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
    _asked: Future[Observation] | None = None
    _next_at: int = 0
    _question: tuple[Question | None, str] = field(default=(None, ""))

    def first(self, question: Question) -> Observation:
        """The first answer. Raises `ClientError`."""
        self._question, self._next_at = (question, ""), now_at() + self.every_us
        return self.observer.observe(question)

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

    def _answered(self, view: View, asked: Future[Observation]) -> View:
        try:
            found = asked.result()
        except ClientError as error:
            self._next_at = view.now_at + _RETRY_US
            is_away = isinstance(error, UnreachableError | SlowError)
            since = (view.failing_since or view.now_at) if is_away else None
            return replace(view, failure=str(error), failing_since=since)
        self._next_at = view.now_at + self.every_us
        return replace(view, answers=found.answers, detail=found.detail, failure="", failing_since=None)
