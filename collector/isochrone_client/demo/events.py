"""The events of the demo as sentences: what is scripted, the changes that are measured, and what the collector reports.
Pure.
"""

from collections.abc import Iterable, Iterator, Sequence

from isochrone_client.demo.scenario import ScriptedEvent
from isochrone_client.formats import milliseconds, number
from isochrone_client.screen.board import Board, Cell, Place


class Timeline:
    """The events so far, oldest first, each with the second in which it was noticed. `seconds` is the length of the
    demo, `None` without an end; only what happens within it is announced.
    """

    def __init__(self, script: Sequence[ScriptedEvent], *, seconds: float | None) -> None:
        self._seconds = seconds
        self._scripted = list(script)
        self._changed: list[Place] = []
        self.events: list[str] = []

    def coming(self, elapsed: float) -> str:
        """The announcement of what begins next; empty if nothing does before the end of the demo."""
        end = float("inf") if self._seconds is None else self._seconds
        for event in self._scripted:
            if event.lasting_seconds is not None and elapsed < event.after_seconds < end:
                is_cut_short = event.after_seconds + event.lasting_seconds > end
                until = "until the end" if is_cut_short else f"for {event.lasting_seconds} s"
                return f"in {event.after_seconds - elapsed:.0f} s {event.sentence}, {until}"
        return ""

    def note(self, elapsed: float, board: Board, reported: Iterable[str]) -> list[str]:
        """Add what is new at `elapsed` seconds, with what the collector has `reported`, and return it."""
        due = [event for event in self._scripted if event.after_seconds <= elapsed]
        self._scripted = self._scripted[len(due) :]
        new = [f"{event.after_seconds} s: {_scripted(event)}" for event in due]
        new += [f"{elapsed:.0f} s: {sentence}" for sentence in (*self._measured(board), *reported)]
        self.events += new
        return new

    def _measured(self, board: Board) -> Iterator[str]:
        for place in board.changed:
            cell = board.cell(*place)
            if cell.has_known_change and place not in self._changed:
                self._changed.append(place)
                yield f"measured: {_change(place, cell)}"
        for target, region in [place for place in self._changed if place not in board.changed]:
            self._changed.remove((target, region))
            yield f"measured: {target} is as fast as at the start from {region}"


def _scripted(event: ScriptedEvent) -> str:
    return event.sentence if event.lasting_seconds is None else f"{event.sentence}, for {event.lasting_seconds} s"


def _change(place: Place, cell: Cell) -> str:
    target, region = place
    change = milliseconds(cell.changed) or 0.0
    by = f"{number(abs(change))} ms {'longer' if change > 0 else 'less'}"
    return f"{target} takes {by} from {region} than at the start"
