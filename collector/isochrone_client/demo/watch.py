"""The running demo: asks the collector, and shows what it answers, until the time is over or the demo is to stop."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from isochrone_client.clock import now_at
from isochrone_client.demo.events import Timeline
from isochrone_client.demo.layout import Progress, View
from isochrone_client.demo.observer import WINDOW_SECONDS, Observation, Observer
from isochrone_client.demo.receiver import AlertReceiver
from isochrone_client.demo.views import display
from isochrone_client.errors import SlowError, UnreachableError
from isochrone_client.screen.stop_requests import StopRequests
from isochrone_wire.model import SECOND_US

_OBSERVE_SECONDS = 2.0
_DRAW_SECONDS = 0.5


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
        seen = Observation(board=self.observer.empty_board)
        asked: Future[Observation] | None = None
        asked_at = -_OBSERVE_SECONDS
        # The answers are awaited in another thread, so that the screen follows the clock and the keyboard meanwhile.
        with display() as shown, ThreadPoolExecutor(max_workers=1) as beside:
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
                new = self.timeline.note(self._elapsed(), seen.board, news)
                shown.show(self._view(seen), new)
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
            window_seconds=WINDOW_SECONDS,
            board=seen.board,
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
