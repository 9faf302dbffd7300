"""Rate limiting with a leaky bucket. Pure."""

from collections import OrderedDict
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


class BucketPerKey:
    """A `LeakyBucket` per key, for the `keys` most recent ones."""

    def __init__(self, *, per_second: float, burst: float, keys: int = 10_000) -> None:
        self._per_second = per_second
        self._burst = burst
        self._keys = keys
        self._buckets: OrderedDict[str, LeakyBucket] = OrderedDict()

    def take(self, key: str, now_at: int) -> bool:
        """Return whether one more event of that key is allowed at that instant (microseconds), and count it if so."""
        bucket = self._buckets.pop(key, None) or LeakyBucket(per_second=self._per_second, burst=self._burst)
        self._buckets[key] = bucket
        if len(self._buckets) > self._keys:
            self._buckets.popitem(last=False)
        return bucket.take(now_at)
