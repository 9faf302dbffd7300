"""Rate limiting with a leaky bucket. Pure."""

from dataclasses import dataclass

_SECOND_US = 1_000_000


@dataclass(slots=True, kw_only=True)
class LeakyBucket:
    """A rate limit: `burst` events at once, and `per_second` in the long run.

    Time may go backwards; that drains nothing.
    """

    per_second: float
    burst: float
    level: float = 0.0
    seen_at: int = 0

    def take(self, now_at: int) -> bool:
        """Return whether one more event is allowed at that instant (microseconds), and count it if so."""
        self.level = max(0.0, self.level - max(0, now_at - self.seen_at) * self.per_second / _SECOND_US)
        self.seen_at = now_at
        if self.level + 1 > self.burst:
            return False
        self.level += 1
        return True
