"""How the demo's routes move while it runs: each switch in a sentence, once."""

from collections.abc import Iterator

from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_wire.answers import Selection, Window
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import ChangeKind, RouteEvent

# Before, a first choice is the one of which six samples came first, and tells nothing.
_SETTLED_US = 45 * SECOND_US
_TOLD = frozenset({ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD, ChangeKind.FREEZE, ChangeKind.THAW})


class Moves:
    """Reads the events of routes at one collector, of a demo that began at an instant (microseconds since the epoch),
    as soon as it has settled.
    """

    def __init__(self, client: ObservatoryClient, *, started_at: int) -> None:
        self._client = client
        self._since_at = started_at + _SETTLED_US
        self._generation = 0

    def news(self) -> Iterator[str]:
        """A sentence for each event not told yet, oldest first. Raises `ClientError`."""
        window = Window(from_at=self._since_at, until_at=now_at() + SECOND_US)
        if window.from_at >= window.until_at:
            return
        events = sorted(self._client.list_route_events(Selection(window=window)).events, key=_number)
        for event in events:
            if event.generation > self._generation:
                self._generation = event.generation
                if event.change in _TOLD:
                    yield f"the route {event.route} moves in {event.client_region}: {event.sentence}"


def _number(event: RouteEvent) -> int:
    return event.generation
