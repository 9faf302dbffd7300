"""How much of a thing is taken per second, and how much at once. Pure."""

from dataclasses import dataclass

_SECOND_US = 1_000_000


@dataclass(slots=True, kw_only=True)
class Bucket:
    """Lets `burst` things through at once and `per_second` in the long run. Instants may go back; nothing is given
    back then.
    """

    per_second: float
    burst: float
    level: float = 0.0
    seen_at: int = 0

    def take(self, now_at: int) -> bool:
        """Whether one more may pass at that instant (microseconds)."""
        self.level = max(0.0, self.level - max(0, now_at - self.seen_at) * self.per_second / _SECOND_US)
        self.seen_at = now_at
        if self.level + 1 > self.burst:
            return False
        self.level += 1
        return True
