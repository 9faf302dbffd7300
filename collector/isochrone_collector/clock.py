"""The clocks of the collector, read only here; other modules get instants as arguments.

The clock guard: whether the wall clock of this collector can be trusted, and an estimate of the true instant. Pure.

The laws:

1. Vantages outvote this machine: a wall clock that the middle one of their clocks confirms is trusted, and one that it
   contradicts is not. The clock of a lone vantage counts only if it is more than a day away, because a clock of one
   machine may be wrong.
2. While no vantage is heard, a wall clock that was set, or that the database contradicts, is not trusted.
3. Only vantages restore the trust in a wall clock that was set, or that they contradicted.
4. The estimate follows the monotonic clock while the wall clock is not trusted: it never jumps with it.

All clocks are kept as leads: a clock minus the monotonic clock, in microseconds. The difference of two leads is the
difference of two clocks, and stays valid while time passes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median_high, median_low

from isochrone_wire import durations
from isochrone_wire.model import DAY_US, MINUTE_US

# Unlike CLOCK_MONOTONIC of Linux, it also runs while the machine is suspended.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_at() -> int:
    """Return the current instant of the wall clock, in microseconds since the Unix epoch, UTC."""
    return time.time_ns() // 1000


def elapsed_us() -> int:
    """Return the microseconds of a clock that is never set, from an arbitrary instant on."""
    return time.clock_gettime_ns(_ELAPSED) // 1000


AGREE_US = 5 * MINUTE_US
"""Clocks that differ by at most this many microseconds agree: an hour is summarised so long after its end."""
LONE_US = DAY_US
HEARD_US = 2 * MINUTE_US
"""The time in microseconds for which the clock of a vantage counts after its last push."""
CONFIRM_US = 2 * MINUTE_US
"""The time in microseconds that a collector waits after its start for a vantage that confirms its clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement on the wall clock, trusted without `reason`; `correction_us` leads to the estimated instant."""

    correction_us: int = 0
    reason: str = ""


def judge(*, step_us: int, database_us: int | None, vantages_us: Sequence[int]) -> Verdict:
    """Judge a wall clock by others minus it; `step_us` is what the monotonic clock kept of the last trusted one."""
    others = [step_us, *([] if database_us is None else [database_us])]
    if vantages_us:
        # The median, of two middle values the one closer to zero.
        middle = min(median_low(vantages_us), median_high(vantages_us), key=abs)
        if abs(middle) <= AGREE_US:
            return Verdict()
        agreeing = next((one for one in others if abs(one - middle) <= AGREE_US), None)
        if len(vantages_us) > 1:
            heard = f"{len(vantages_us)} vantages"
            return Verdict(correction_us=middle if agreeing is None else agreeing, reason=_reason(middle, heard))
        if abs(middle) > LONE_US:
            # Without another witness, either clock may be the wrong one.
            return Verdict(correction_us=agreeing or 0, reason=_reason(middle, "the only vantage"))
    if abs(step_us) > AGREE_US:
        return Verdict(correction_us=step_us, reason=f"the clock was set {_direction(step_us)} while running")
    if database_us is not None and abs(database_us) > AGREE_US:
        return Verdict(correction_us=database_us, reason=_reason(database_us, "the database"))
    return Verdict()


class ClockGuard:
    """The clock of a collector: `now_at` is its wall clock while that is trusted, and the estimate otherwise.

    `wall` and `elapsed` return microseconds of the wall clock and of a clock that is never set. `newest_receipt_at` is
    the instant of the newest push before the start, 0 if there was none: after a gap of more than a day, the wall clock
    is not trusted until a vantage confirms it, or for `CONFIRM_US`.
    """

    def __init__(self, *, wall: Callable[[], int], elapsed: Callable[[], int], newest_receipt_at: int = 0) -> None:
        self._wall = wall
        self._elapsed = elapsed
        started = elapsed()
        self._gap_us = wall() - newest_receipt_at if newest_receipt_at else 0
        self._confirm_until = started + CONFIRM_US if abs(self._gap_us) > DAY_US else started
        self._lead_us = self._kept_us = wall() - started
        self._database_us: int | None = None
        self._vantages: dict[int, tuple[int, int]] = {}
        self._contradicted = ""
        self.verdict = Verdict()
        self.update()

    def now_at(self) -> int:
        """Return the estimate of the current instant, in microseconds since the Unix epoch."""
        elapsed, wall = self._elapsed(), self._wall()
        if abs(wall - elapsed - self._lead_us) > AGREE_US:
            self.update()
            # The wall clock may have been set just after it was read.
            wall = elapsed + self._lead_us
        return wall + self.verdict.correction_us

    def database_at(self) -> int:
        """Return the database's clock, by which credentials expire; the wall clock until that is heard."""
        return self._wall() if self._database_us is None else self._elapsed() + self._database_us

    def shared_at(self) -> int:
        """Return the clock that all collectors on the database share, by which they work: the database's, or the
        estimate if the two disagree.
        """
        now_at, database_at = self.now_at(), self.database_at()
        return database_at if abs(database_at - now_at) <= AGREE_US else now_at

    @property
    def reason(self) -> str:
        """Return why the wall clock is not trusted; empty if it is."""
        return self.verdict.reason

    def hear_vantage(self, vantage_id: int, sent_at: int) -> None:
        """Note the wall clock of a vantage from a push that has just arrived; 0 means that it does not send it."""
        if sent_at:
            elapsed = self._elapsed()
            self._vantages[vantage_id] = (sent_at - elapsed, elapsed)

    def hear_database(self, offset_us: int) -> None:
        """Note the database's clock minus the wall clock, measured just now."""
        self._database_us = self._wall() - self._elapsed() + offset_us

    def update(self) -> Verdict:
        """Judge the wall clock by everything heard so far."""
        elapsed = self._elapsed()
        self._lead_us = lead_us = self._wall() - elapsed
        self._vantages = {key: heard for key, heard in self._vantages.items() if elapsed - heard[1] <= HEARD_US}
        found = judge(
            step_us=self._kept_us - lead_us,
            database_us=None if self._database_us is None else self._database_us - lead_us,
            vantages_us=[heard_us - lead_us for heard_us, _ in self._vantages.values()],
        )
        if self._vantages:
            self._contradicted = found.reason
            # If they fall silent, the estimate goes on from here.
            self._kept_us = lead_us + found.correction_us
        elif self._contradicted:
            found = Verdict(correction_us=self._kept_us - lead_us, reason=self._contradicted)
        elif not found.reason:
            self._kept_us = lead_us
            if elapsed < self._confirm_until:
                gap = durations.rough(abs(self._gap_us))
                found = Verdict(reason=f"no vantage has confirmed the clock, which is {gap} from the newest push")
        self.verdict = found
        return found


def _reason(other_us: int, heard: str) -> str:
    return f"the clock is {_direction(other_us)} of {heard}"


def _direction(other_us: int) -> str:
    """Describe the wall clock relative to another clock, which is `other_us` from it."""
    return f"{durations.rough(abs(other_us))} {'ahead' if other_us < 0 else 'behind'}"
