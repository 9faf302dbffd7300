"""Alerts for absent and returned vantages."""

import pytest

from isochrone_collector.alerts.conditions import LastAlert, VantageHeartbeat, absence_alerts
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

SEEN_AT = 1_795_000_000_000_000


def heard(promise_s: int | None = 15, *, seen_at: int = SEEN_AT) -> VantageHeartbeat:
    promised = None if promise_s is None else seen_at + promise_s * SECOND_US
    return VantageHeartbeat(name="ohio-1", region="us-east-2", last_seen_at=seen_at, next_heartbeat_at=promised)


def kinds(
    vantage: VantageHeartbeat, after_us: int, last_alerts: LastAlert | None = None, *, since_at: int = 0
) -> list[AlertKind]:
    known = {vantage.name: last_alerts} if last_alerts else {}
    notices = absence_alerts([vantage], known, now_at=vantage.last_seen_at + after_us, since_at=since_at)
    return [notice.kind for notice in notices]


@pytest.mark.parametrize(
    ("promise_s", "patience_s"), [(15, 15 + 120), (None, 60 + 180), (300, 300 + 900), (0, 60 + 180), (1, 1 + 120)]
)
def test_patience_is_three_promises_and_two_minutes_at_least(promise_s: int | None, patience_s: int) -> None:
    """A vantage is absent after three missed heartbeats and at least two minutes."""
    promise = promise_s or None
    assert kinds(heard(promise), patience_s * SECOND_US) == []
    assert kinds(heard(promise), patience_s * SECOND_US + 1) == [AlertKind.VANTAGE_ABSENT]


def test_an_absence_is_told_once() -> None:
    """An absence is raised once; a new absence is raised with its own id."""
    [first] = absence_alerts([heard()], {}, now_at=SEEN_AT + 5 * MINUTE_US, since_at=0)
    last_alerts = LastAlert(kind=AlertKind.VANTAGE_ABSENT, alert_id=first.id, raised_at=first.raised_at)
    assert kinds(heard(), 9 * MINUTE_US, last_alerts) == []
    later = heard(seen_at=SEEN_AT + 20 * MINUTE_US)
    [second] = absence_alerts([later], {"ohio-1": last_alerts}, now_at=later.last_seen_at + 5 * MINUTE_US, since_at=0)
    assert second.id != first.id


def test_the_same_absence_has_the_same_id() -> None:
    """Two collectors that detect an absence at different instants raise one alert."""
    ids = {
        next(absence_alerts([heard()], {}, now_at=SEEN_AT + minutes * MINUTE_US, since_at=0)).id
        for minutes in (4, 5, 60)
    }
    assert len(ids) == 1


def test_who_is_back_was_missed() -> None:
    """A return is raised after a raised absence, and not after a return."""
    absent = LastAlert(kind=AlertKind.VANTAGE_ABSENT, alert_id=7, raised_at=SEEN_AT - MINUTE_US)
    assert kinds(heard(), SECOND_US, absent) == [AlertKind.VANTAGE_BACK]
    assert kinds(heard(), SECOND_US, LastAlert(kind=AlertKind.VANTAGE_BACK, alert_id=8, raised_at=SEEN_AT)) == []
    assert kinds(heard(), SECOND_US) == []


def test_who_is_late_is_neither_missing_nor_back() -> None:
    """Between the due heartbeat and the end of the tolerance nothing is raised."""
    absent = LastAlert(kind=AlertKind.VANTAGE_ABSENT, alert_id=7, raised_at=SEEN_AT - MINUTE_US)
    assert kinds(heard(), 60 * SECOND_US, absent) == []


def test_nobody_is_missed_while_nobody_listened() -> None:
    """After a collector's downtime every vantage gets the full tolerance."""
    away_until_at = SEEN_AT + 60 * MINUTE_US
    assert kinds(heard(), 61 * MINUTE_US, since_at=away_until_at) == []
    assert kinds(heard(), 63 * MINUTE_US, since_at=away_until_at) == [AlertKind.VANTAGE_ABSENT]


def test_who_left_long_ago_is_not_missed() -> None:
    """A new collector raises nothing for vantages that were gone long before."""
    assert kinds(heard(), DAY_US + MINUTE_US) == []
