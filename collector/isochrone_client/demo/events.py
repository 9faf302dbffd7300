"""The events of the demo as sentences: the scripted slowdown, the changes that are measured, and the switches of
routes. Pure.
"""

from collections.abc import Iterable, Iterator

from isochrone_client.demo.board import Board, Cell, Place
from isochrone_client.demo.scenario import Episode
from isochrone_client.formats import milliseconds, number


class Timeline:
    """The events so far, oldest first, each with the second in which it was noticed. `seconds` is the length of the
    demo, `None` without an end; only what happens within it is announced.
    """

    def __init__(self, episode: Episode, *, seconds: float | None) -> None:
        self._episode = episode
        self._seconds = seconds
        self._scripted = dict(_script(episode))
        self._changed: list[Place] = []
        self.events: list[str] = []

    def coming(self, elapsed: float) -> str:
        """The announcement of the slowdown; empty if it has begun, or if the demo ends before it."""
        episode, left = self._episode, self._episode.after_seconds - elapsed
        if left <= 0 or (self._seconds is not None and self._seconds <= episode.after_seconds):
            return ""
        end = episode.after_seconds + episode.lasting_seconds
        is_cut_short = self._seconds is not None and self._seconds < end
        until = "until the end" if is_cut_short else f"for {episode.lasting_seconds} s"
        return f"in {left:.0f} s {_slower(episode)}, {until}"

    def note(self, elapsed: float, board: Board, switches: Iterable[str]) -> list[str]:
        """Add what is new at `elapsed` seconds, and return it."""
        due = [second for second in self._scripted if second <= elapsed]
        new = [f"{second} s: {self._scripted.pop(second)}" for second in due]
        new += [f"{elapsed:.0f} s: {sentence}" for sentence in (*self._measured(board), *switches)]
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


def _script(episode: Episode) -> Iterator[tuple[int, str]]:
    yield episode.after_seconds, f"{_slower(episode)}, for {episode.lasting_seconds} s"
    back = f"{episode.provider} is as fast as before from {episode.region}"
    yield episode.after_seconds + episode.lasting_seconds, back


def _slower(episode: Episode) -> str:
    return f"{episode.provider} gets {episode.added_ms} ms slower from {episode.region}"


def _change(place: Place, cell: Cell) -> str:
    target, region = place
    change = milliseconds(cell.changed_us) or 0.0
    by = f"{number(abs(change))} ms {'longer' if change > 0 else 'less'}"
    return f"{target} takes {by} from {region} than at the start"
