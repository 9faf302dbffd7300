"""The questions of the demo to its collector while it runs."""

from dataclasses import dataclass

from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.demo.board import by_place, read_board
from isochrone_client.demo.scenario import BASELINE, VANTAGES
from isochrone_client.pages.alerts import open_incident
from isochrone_client.screen.board import Board, Place
from isochrone_wire.answers import Differential, Metric, Selection, Window
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import ChangeKind, RouteEvent

_REGIONS = tuple(vantage.region for vantage in VANTAGES if vantage.region != BASELINE)
# Thirty rounds: enough for a decision; a change is found as a step after five.
WINDOW_SECONDS = 60
# The start, which later windows are compared with, ends before the scripted slowdown.
_START_SECONDS = 60
# The rounds of the start have been delivered by then.
_START_KNOWN_SECONDS = 66
# Not `first`: at the start the first choice depends on which member had six samples first, and is corrected.
_REPORTED_CHANGES = frozenset({ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD, ChangeKind.FREEZE, ChangeKind.THAW})


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The board, the samples recorded so far and the failed ones of them, the new switches of routes, and the open
    incidents as sentences.
    """

    board: Board
    recorded: int = 0
    failed: int = 0
    switches: tuple[str, ...] = ()
    incidents: tuple[str, ...] = ()


class Observer:
    """Questions about a demo that began at `started_at`, in microseconds since the epoch."""

    def __init__(self, client: ObservatoryClient, *, targets: tuple[str, ...], started_at: int) -> None:
        self._client = client
        self._targets = targets
        self._started_at = started_at
        self._usual: dict[Place, Differential] = {}
        self._generation = 0

    @property
    def empty_board(self) -> Board:
        """The board before the first answer."""
        return read_board((), (), baseline=BASELINE, regions=_REGIONS, targets=self._targets, usual={})

    def observe(self) -> Observation:
        """Ask for the newest rounds and the counts. Raises `ClientError`."""
        now = now_at()
        newest = Window(from_at=max(self._started_at, now - WINDOW_SECONDS * SECOND_US), until_at=now + SECOND_US)
        if not self._usual and now >= self._started_at + _START_KNOWN_SECONDS * SECOND_US:
            until_at = self._started_at + _START_SECONDS * SECOND_US
            self._usual = by_place(self._differentials(Window(from_at=self._started_at, until_at=until_at)))
        incidents = self._client.list_incidents(newest, past=False).incidents
        board = read_board(
            self._client.get_leaderboard(Selection(window=newest)).standings,
            self._differentials(newest),
            baseline=BASELINE,
            regions=_REGIONS,
            targets=self._targets,
            usual=self._usual,
            failing={(incident.subject, region) for incident in incidents for region in incident.failing},
        )
        recorded, failed = self._counts(Window(from_at=self._started_at, until_at=now))
        return Observation(
            board=board,
            recorded=recorded,
            failed=failed,
            switches=self._switches(),
            incidents=tuple(f"open incident: {open_incident(one)}" for one in incidents),
        )

    def _differentials(self, window: Window) -> tuple[Differential, ...]:
        selection = Selection(window=window)
        return self._client.get_differentials(selection, baseline=BASELINE, metric=Metric.TTFT).differentials

    def _counts(self, window: Window) -> tuple[int, int]:
        """The samples of a window, and those with another outcome than `ok`."""
        coverage = self._client.get_coverage(Selection(window=window)).coverage
        recorded = sum(row.recorded for row in coverage)
        return recorded, recorded - sum(row.outcomes.get("ok", 0) for row in coverage)

    def _switches(self) -> tuple[str, ...]:
        """A sentence for each new switch of a route, oldest first."""
        window = Window(from_at=self._started_at, until_at=now_at() + SECOND_US)
        events = sorted(self._client.list_route_events(Selection(window=window)).events, key=_generation)
        new = [event for event in events if event.generation > self._generation]
        self._generation = max((self._generation, *map(_generation, new)))
        return tuple(
            f"the route {event.route} switches in {event.client_region}: {event.sentence}"
            for event in new
            if event.change in _REPORTED_CHANGES
        )


def _generation(event: RouteEvent) -> int:
    return event.generation
