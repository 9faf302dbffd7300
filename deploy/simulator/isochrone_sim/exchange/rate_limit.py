"""Rate limits of a model: two token buckets, for requests and tokens, that refill evenly within a minute."""

from dataclasses import dataclass, replace

MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketStatus:
    """The state of a bucket after a request: limit per minute, remaining amount, and time until it is full again.

    `wait_us` is the time that a refused request has to wait, 0 if it was accepted.
    """

    limit: int
    remaining: int
    reset_us: int
    wait_us: int = 0


class Bucket:
    """A bucket of `limit` per minute, full at first. Instants are microseconds and passed in."""

    __slots__ = ("_at", "_left", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = float(limit)
        self._at = 0

    def take(self, amount: int, *, at: int) -> BucketStatus:
        """Take `amount` if available; otherwise take nothing and return the time to wait."""
        self._refill(at)
        wait_us = 0
        if amount <= self._left:
            self._left -= amount
        else:
            wait_us = self._time_us(min(amount, self._limit) - self._left)
        return BucketStatus(
            limit=self._limit,
            remaining=int(self._left),
            reset_us=self._time_us(self._limit - self._left),
            wait_us=wait_us,
        )

    def _refill(self, at: int) -> None:
        # If the wall clock steps back, nothing is refilled and nothing is lost.
        gained = max(0, at - self._at) * self._limit / MINUTE_US
        self._left = min(float(self._limit), self._left + gained)
        self._at = at

    def _time_us(self, amount: float) -> int:
        return max(1, round(amount / self._limit * MINUTE_US)) if amount > 0 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitStatus:
    """The state of both buckets after one request."""

    requests: BucketStatus
    tokens: BucketStatus

    def spent(self, wait_us: int) -> "RateLimitStatus":
        """Return the same status with no request left for `wait_us` microseconds."""
        return replace(self, requests=replace(self.requests, remaining=0, reset_us=wait_us))


class RateLimits:
    """The buckets of all models, created on first use."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[Bucket, Bucket]] = {}

    def take(self, name: str, *, tokens: int, at: int, limits: tuple[int, int]) -> RateLimitStatus:
        """Count one request of `tokens` tokens to the model `name`; `limits` are requests and tokens per minute."""
        requests_bucket, tokens_bucket = self._buckets.setdefault(name, (Bucket(limits[0]), Bucket(limits[1])))
        requests = requests_bucket.take(1, at=at)
        return RateLimitStatus(requests=requests, tokens=tokens_bucket.take(0 if requests.wait_us else tokens, at=at))


def format_duration(us: int) -> str:
    """Format a duration as in OpenAI's headers: `12ms`, `1.5s`, `1m30s`."""
    if us < 1_000_000:  # noqa: PLR2004  # a second
        return f"{-(-us // 1000)}ms"
    minutes, rest = divmod(us, MINUTE_US)
    seconds = f"{rest / 1e6:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
