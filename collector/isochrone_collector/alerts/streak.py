"""Failed rounds in a row, and the number of them that exceeds chance. Pure; instants are microseconds.

Two thresholds are three and two failures for a series that fails in one of a hundred rounds, independently. A series
that fails more often, or whose failures come in bursts, has shown so: then more are needed, so that chance reaches them
as seldom. With p the share of rounds that begin a run of failures, q the share of runs that get a second failure, and r
that of those that get another one, a round begins a run of k by chance with the probability p · q · r^(k-2). The three
shares are of about the last day of one-minute rounds, each with a prior of few observations.
"""

from dataclasses import dataclass

ALONE = 1e-5
"""Chance per round that a single vantage may have of reaching its threshold."""
TOGETHER = 8e-4
"""As `ALONE`, for each of two vantages at once: its square over the pairs of a dozen vantages is smaller still."""

MOST = 6
_LEAST = {ALONE: 3, TOGETHER: 2}
_KEEP = 1 - 1 / 1440
_PRIOR_RUNS, _PRIOR_ROUNDS = 1.0, 100.0
_PRIOR_NEXT, _PRIOR_LENGTHS = 0.6, 20.0


@dataclass(slots=True, kw_only=True)
class Streak:
    """The newest rounds of one series, for one kind of failure.

    `length` rounds in a row had it, from `since_at` to `until_at`, with `requests` of them sent; before or after them,
    `clear` rounds in a row did not.
    """

    length: int = 0
    requests: int = 0
    clear: int = 0
    since_at: int = 0
    until_at: int = 0
    _rounds: float = 0.0
    _runs: float = 0.0
    _seconds: float = 0.0
    _thirds: float = 0.0

    def extend(self, at: int, *, sent: bool = True) -> None:
        """Add a round with the failure; `sent` is false if no request was sent because of earlier ones."""
        if not self.length:
            self.since_at = at
        self.length += 1
        self.requests += sent
        self.until_at = at
        self.clear = 0

    def end(self) -> None:
        """Add a round without the failure."""
        # Failures that are no chance are not learned as chance.
        if 0 < self.length < self.needed(ALONE):
            self._runs += 1
            self._seconds += self.length > 1
            self._thirds += max(self.length - 2, 0)
        self.length = self.requests = 0
        self.clear += 1
        self._rounds = self._rounds * _KEEP + 1
        self._runs *= _KEEP
        self._seconds *= _KEEP
        self._thirds *= _KEEP

    def needed(self, chance: float) -> int:
        """Return the length from which on the failures are no chance: at least three or two, at most `MOST`."""
        first = (self._runs + _PRIOR_RUNS) / (self._rounds + _PRIOR_ROUNDS)
        second = (self._seconds + _PRIOR_NEXT) / (self._runs + _PRIOR_LENGTHS)
        further = (self._thirds + _PRIOR_NEXT) / (self._seconds + self._thirds + _PRIOR_LENGTHS)
        length, probability = 2, first * second
        while length < MOST and (length < _LEAST[chance] or probability > chance):
            length, probability = length + 1, probability * further
        return length
