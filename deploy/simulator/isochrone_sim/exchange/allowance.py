"""How much a client may still ask of a model: two buckets, requests and tokens, that refill evenly over a minute."""

from dataclasses import dataclass, replace

MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What a bucket says after a request: its limit per minute, what is left, and when it will be full again.

    `wait_us` is how long the request has to wait when it was more than there was, else 0.
    """

    limit: int
    remaining: int
    reset_us: int
    wait_us: int = 0


class Bucket:
    """`limit` per minute, full at first. Instants are microseconds and handed in."""

    __slots__ = ("_at", "_left", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = float(limit)
        self._at = 0

    def take(self, amount: int, *, at: int) -> Level:
        """Take `amount` if there is so much; else take nothing and say how long to wait."""
        self._refill(at)
        wait_us = 0
        if amount <= self._left:
            self._left -= amount
        else:
            wait_us = self._time_us(min(amount, self._limit) - self._left)
        return Level(
            limit=self._limit,
            remaining=int(self._left),
            reset_us=self._time_us(self._limit - self._left),
            wait_us=wait_us,
        )

    def _refill(self, at: int) -> None:
        # A wall clock may step back; then nothing is refilled, and nothing is lost.
        gained = max(0, at - self._at) * self._limit / MINUTE_US
        self._left = min(float(self._limit), self._left + gained)
        self._at = at

    def _time_us(self, amount: float) -> int:
        return max(1, round(amount / self._limit * MINUTE_US)) if amount > 0 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Both levels after one request."""

    requests: Level
    tokens: Level

    def spent(self, wait_us: int) -> "Allowance":
        """The same with no request left for `wait_us` microseconds."""
        return replace(self, requests=replace(self.requests, remaining=0, reset_us=wait_us))


class Allowances:
    """The buckets of every model, made when first used."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[Bucket, Bucket]] = {}

    def take(self, name: str, *, tokens: int, at: int, limits: tuple[int, int]) -> Allowance:
        """Count one request of so many `tokens` to the model `name`; `limits` are requests and tokens per minute."""
        requests_bucket, tokens_bucket = self._buckets.setdefault(name, (Bucket(limits[0]), Bucket(limits[1])))
        requests = requests_bucket.take(1, at=at)
        return Allowance(requests=requests, tokens=tokens_bucket.take(0 if requests.wait_us else tokens, at=at))


def format_duration(us: int) -> str:
    """As OpenAI's headers have it: `12ms`, `1.5s`, `1m30s`."""
    if us < 1_000_000:  # noqa: PLR2004  # a second
        return f"{-(-us // 1000)}ms"
    minutes, rest = divmod(us, MINUTE_US)
    seconds = f"{rest / 1e6:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
