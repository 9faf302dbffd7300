"""Bernoulli CUSUM of failed rounds: finds partial failures, whose rounds seldom fail in a row. Pure.

The laws (Page 1954; Reynolds & Stoumbos 1999):

1. A trial is a round of a vantage that follows one without a failure: a run of failures counts once, so that bursts
   are left to the rule of failures in a row. Of the failures of several vantages in one round one counts, and the
   others are no trials: what vantages share is one event.
2. The value is the log likelihood ratio of a share of failures of `FAILING` to the usual one, since the trial at which
   it was greatest; it is never negative.
3. The usual share is learned from the trials of about a week of one-minute rounds, within `_LEAST` and `_MOST`. Trials
   are learned when the value is back at zero, so a partial failure is not learned while it lasts.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from isochrone_wire.model import DAY_US

FAILING = 0.2
"""The share of failed rounds that is to be found as early as possible."""

_LEAST, _MOST = 0.01, 0.05
_KEEP = 1 - 1 / 10080
_PRIOR_FAILURES, _PRIOR_TRIALS = 1.0, 100.0
# A greater value would only delay the end.
_MOST_VALUE = 18.0
_YEAR_US = 365 * DAY_US
# By how much the value exceeds a limit that it crosses; with it, chance raises .3 to .45 alarms a year per target.
_OVERSHOOT = 1.5
# Failures of one round may be delivered by vantages some rounds apart.
_LATE_FAILURES = 8


def alarm_limit(*, every_us: int, vantages: int) -> float:
    """Return the value at which to raise an alarm: chance reaches it at most once a year per target.

    A CUSUM of log likelihood ratios raises a false alarm after exp(limit) trials or more on average (Lorden 1971).
    The trials of a year count twice: a target has one CUSUM of all vantages, and one of each.
    """
    return min(math.log(2 * max(vantages, 1) * _YEAR_US / every_us) - _OVERSHOOT, _MOST_VALUE)


@dataclass(slots=True, kw_only=True)
class FailureCusum:
    """The CUSUM of some vantages' rounds of a target, with the first and the newest failure that `value` includes."""

    value: float = 0.0
    since_at: int = 0
    until_at: int = 0
    _failed_at: deque[int] = field(default_factory=lambda: deque(maxlen=_LATE_FAILURES))
    _trials: float = 0.0
    _failures: float = 0.0
    _new_trials: int = 0
    _new_failures: int = 0

    @property
    def usual(self) -> float:
        """The usual share of failed trials, and one standard error more: a short history excludes little."""
        failures = self._failures + _PRIOR_FAILURES
        return min(max((failures + math.sqrt(failures)) / (self._trials + _PRIOR_TRIALS), _LEAST), _MOST)

    def add(self, at: int, *, failed: bool) -> None:
        """Add a round that is no continuation of a run of failures."""
        if failed:
            self._fail(at)
            return
        self._new_trials += 1
        if self.value:
            self.value = max(self.value + math.log((1 - FAILING) / (1 - self.usual)), 0.0)
        if not self.value:
            keep = _KEEP**self._new_trials
            self._trials = self._trials * keep + self._new_trials
            self._failures = self._failures * keep + self._new_failures
            self._new_trials = self._new_failures = 0

    def _fail(self, at: int) -> None:
        if at in self._failed_at:
            return
        self._failed_at.append(at)
        self._new_trials += 1
        self._new_failures += 1
        if not self.value:
            self.since_at = at
        self.until_at = max(self.until_at, at)
        self.value = min(self.value + math.log(FAILING / self.usual), _MOST_VALUE)
