"""Members to which nothing is sent for a while, because their last response was a 429 or a failure. Pure.

After a 429 a member rests until its `retry-after`; without one, and after a failure, for a second, doubled with each
further one up to a minute, plus a random half. The first success ends it.
"""

from dataclasses import dataclass, field

_FIRST_S = 1.0
_MAX_S = 60.0
_MAX_RETRY_AFTER_S = 600.0


@dataclass(frozen=True, slots=True)
class _Rest:
    until_s: float
    count: int
    is_throttled: bool


@dataclass(slots=True)
class Cooldowns:
    """The resting members; all instants are seconds of one monotonic clock, `draw` random numbers from 0 to 1."""

    _rests: dict[str, _Rest] = field(default_factory=dict)

    def throttle(self, target: str, *, retry_after_s: float | None, now_s: float, draw: float) -> None:
        """Note a 429, with its `retry-after` in seconds."""
        count = self._count(target)
        if retry_after_s is None:
            retry_after_s = _growing(count) * (1 + draw / 2)
        self._rests[target] = _Rest(now_s + min(retry_after_s, _MAX_RETRY_AFTER_S), count, is_throttled=True)

    def fail(self, target: str, *, now_s: float, draw: float) -> None:
        """Note a failed connection or a 5xx."""
        count = self._count(target)
        self._rests[target] = _Rest(now_s + _growing(count) * (1 + draw / 2), count, is_throttled=False)

    def succeed(self, target: str) -> None:
        """Note a response."""
        self._rests.pop(target, None)

    def throttled(self, now_s: float) -> dict[str, float]:
        """The members that asked to wait, with the seconds left."""
        return {
            name: one.until_s - now_s for name, one in self._rests.items() if one.is_throttled and now_s < one.until_s
        }

    def failing(self, now_s: float) -> frozenset[str]:
        """The members that failed a short time ago."""
        return frozenset(name for name, one in self._rests.items() if not one.is_throttled and now_s < one.until_s)

    def _count(self, target: str) -> int:
        rest = self._rests.get(target)
        return rest.count + 1 if rest else 1


def _growing(count: int) -> float:
    return float(min(_MAX_S, _FIRST_S * 2 ** min(count - 1, 10)))
