"""Who is missing, and who is back: what to say of it, each once. Pure; instants are the collector's clock.

The laws:

1. A vantage is absent when it is late by three of the heartbeats it promised, and by two minutes at least.
2. Nobody is absent while nobody could have been heard: what counts is how long they were waited for since `since_at`.
3. One absence is told once, however often it is seen, and a return only after an absence that was told.
4. Whoever was gone for a day before anybody watched is not missed any more.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from isochrone_collector.alerts.message import AlertMessage, of_absence, of_return
from isochrone_collector.analysis.liveness import GRACE_US
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, MINUTE_US

LEAST_US = 2 * MINUTE_US
BROKEN_PROMISES = 3

_UNSAID_PROMISE_US = MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A vantage: when it was last heard of, and when it promised to be heard of again."""

    name: str
    region: str
    last_seen_at: int
    next_heartbeat_at: int | None = None

    @property
    def promised_at(self) -> int:
        """When it is to be heard of at the latest."""
        return self.next_heartbeat_at or self.last_seen_at + _UNSAID_PROMISE_US

    @property
    def patience_us(self) -> int:
        """How late it may be, in microseconds, before it is missed."""
        return max(BROKEN_PROMISES * max(0, self.promised_at - self.last_seen_at), LEAST_US)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What was last said of a vantage's absence: by which alert, and when."""

    kind: AlertKind
    alert_id: int
    raised_at: int


def roll_call(
    vantages: Iterable[Heard], said: Mapping[str, Said], *, now_at: int, since_at: int
) -> Iterator[AlertMessage]:
    """What is to be said now of who is missing or back. `said` is by name; `since_at` is when watching began."""
    for vantage in vantages:
        newest = said.get(vantage.name)
        missed = newest is not None and newest.kind is AlertKind.VANTAGE_ABSENT
        if _is_absent(vantage, now_at=now_at, since_at=since_at):
            if now_at - vantage.last_seen_at < DAY_US and not (missed and _is_of(newest, vantage)):
                yield of_absence(vantage.name, vantage.region, last_seen_at=vantage.last_seen_at, raised_at=now_at)
        elif newest and missed and now_at <= vantage.promised_at + GRACE_US:
            yield of_return(
                vantage.name,
                vantage.region,
                absence=newest.alert_id,
                absent_at=newest.raised_at,
                raised_at=now_at,
            )


def _is_absent(vantage: Heard, *, now_at: int, since_at: int) -> bool:
    return now_at - max(vantage.promised_at, since_at) > vantage.patience_us


def _is_of(said: Said | None, vantage: Heard) -> bool:
    """Whether what was said is of this absence: it was said after the vantage was last heard of."""
    return said is not None and said.raised_at >= vantage.last_seen_at
