"""Alerts for vantages that are absent or back, each raised once. Pure; instants are the collector's clock.

The laws:

1. A vantage is absent if it has missed three of its announced heartbeats, and is at least two minutes late.
2. Lateness counts only from `since_at`, when the collector began to watch: before that no heartbeat could arrive.
3. An absence is raised once, and a return only after a raised absence.
4. A vantage that was last seen a day ago or earlier is not reported as absent.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from isochrone_collector.alerts.message import AlertMessage, of_absence, of_return
from isochrone_collector.fleet_state import LATE_GRACE_US
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, MINUTE_US

ABSENCE_KINDS = (AlertKind.VANTAGE_ABSENT, AlertKind.VANTAGE_BACK)
"""The kinds of the alerts on a vantage's absence and return."""

MIN_TOLERANCE_US = 2 * MINUTE_US
MISSED_HEARTBEATS = 3

_DEFAULT_HEARTBEAT_US = MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageHeartbeat:
    """A vantage's last heartbeat, and the next one it announced."""

    name: str
    region: str
    last_seen_at: int
    next_heartbeat_at: int | None = None

    @property
    def due_at(self) -> int:
        """The instant at which the next heartbeat is due."""
        return self.next_heartbeat_at or self.last_seen_at + _DEFAULT_HEARTBEAT_US

    @property
    def tolerance_us(self) -> int:
        """The lateness, in microseconds, from which on the vantage is absent."""
        return max(MISSED_HEARTBEATS * max(0, self.due_at - self.last_seen_at), MIN_TOLERANCE_US)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAlert:
    """The last alert on a vantage's absence or return."""

    kind: AlertKind
    alert_id: int
    raised_at: int


def absence_alerts(
    vantages: Iterable[VantageHeartbeat], last_alerts: Mapping[str, LastAlert], *, now_at: int, since_at: int
) -> Iterator[AlertMessage]:
    """Yield the alerts to raise now. `last_alerts` are by vantage name; `since_at` is when watching began."""
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
    """Return whether an alert is of this absence: it was raised after the vantage was last seen."""
    return last_alerts is not None and last_alerts.raised_at >= vantage.last_seen_at
