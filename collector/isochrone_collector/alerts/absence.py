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
from isochrone_collector.analysis.liveness import LATE_GRACE_US
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, MINUTE_US

MIN_TOLERANCE_US = 2 * MINUTE_US
MISSED_HEARTBEATS = 3

_DEFAULT_HEARTBEAT_US = MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageHeartbeat:
    """A vantage: when it was last heard of, and when it promised to be heard of again."""

    name: str
    region: str
    last_seen_at: int
    next_heartbeat_at: int | None = None

    @property
    def due_at(self) -> int:
        """When it is to be heard of at the latest."""
        return self.next_heartbeat_at or self.last_seen_at + _DEFAULT_HEARTBEAT_US

    @property
    def tolerance_us(self) -> int:
        """How late it may be, in microseconds, before it is missed."""
        return max(MISSED_HEARTBEATS * max(0, self.due_at - self.last_seen_at), MIN_TOLERANCE_US)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAlert:
    """What was last said of a vantage's absence: by which alert, and when."""

    kind: AlertKind
    alert_id: int
    raised_at: int


def absence_alerts(
    vantages: Iterable[VantageHeartbeat], last_alerts: Mapping[str, LastAlert], *, now_at: int, since_at: int
) -> Iterator[AlertMessage]:
    """What is to be said now of who is missing or back. `said` is by name; `since_at` is when watching began."""
    for vantage in vantages:
        last = last_alerts.get(vantage.name)
        was_absent = last is not None and last.kind is AlertKind.VANTAGE_ABSENT
        if _is_absent(vantage, now_at=now_at, since_at=since_at):
            if now_at - vantage.last_seen_at < DAY_US and not (was_absent and _is_of(last, vantage)):
                yield of_absence(vantage.name, vantage.region, last_seen_at=vantage.last_seen_at, raised_at=now_at)
        elif last and was_absent and now_at <= vantage.due_at + LATE_GRACE_US:
            yield of_return(
                vantage.name,
                vantage.region,
                absence=last.alert_id,
                absent_at=last.raised_at,
                raised_at=now_at,
            )


def _is_absent(vantage: VantageHeartbeat, *, now_at: int, since_at: int) -> bool:
    return now_at - max(vantage.due_at, since_at) > vantage.tolerance_us


def _is_of(last_alerts: LastAlert | None, vantage: VantageHeartbeat) -> bool:
    """Whether what was said is of this absence: it was said after the vantage was last heard of."""
    return last_alerts is not None and last_alerts.raised_at >= vantage.last_seen_at
