"""How a chore that reads much leaves most of the time to others. Pure.

It asks for little at a time, so that nobody waits for long, and rests after each portion for several times as long as
that took: the busier the database is with other things, the longer both are. It rests only so long in all, for a chore
that always rests would never come to its end where there is more to do than time.
"""

from isochrone_wire.model import SECOND_US

_LITTLE_US, _MUCH_US = SECOND_US // 20, SECOND_US // 5


class Pace:
    """The pace of one run of a chore: `at_once` is the size of the next portion, 1 at least, and `rests` how many times
    as long as a portion the rest after it is.
    """

    def __init__(self, *, at_once: int, rests: float, at_most_us: int) -> None:
        self.at_once = at_once
        self._rests = rests
        self._left_us = at_most_us

    def rest_us(self, took_us: int) -> int:
        """How long to rest after a portion that took so long, in microseconds. Portions that take long get smaller."""
        if took_us > _MUCH_US:
            self.at_once = max(1, self.at_once // 2)
        elif took_us < _LITTLE_US:
            self.at_once *= 2
        # A clock that was set back is no reason to rest.
        rest_us = min(int(self._rests * max(0, took_us)), self._left_us)
        self._left_us -= rest_us
        return rest_us
