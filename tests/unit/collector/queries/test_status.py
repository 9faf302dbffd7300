"""Status: one word per target and region, and nothing that is not for the public."""

from dataclasses import replace
from typing import Any

import pytest

from isochrone_collector.queries.status import status_of
from isochrone_wire.answers import Proportion, Quantile, Window
from isochrone_wire.insights import AlertKind, FailedProbe, Incident, Standing
from isochrone_wire.json_format import to_json_value
from isochrone_wire.model import DAY_US, MINUTE_US, Target
from isochrone_wire.queries.status import OpenIncident, StatusList, TargetStatus

NOW_AT = 1_795_219_200_000_000
WINDOW = Window(from_at=NOW_AT - DAY_US, until_at=NOW_AT)
TARGET = Target(id=1, name="alpha/m", provider="alpha", model="m", base_url="http://secret.internal/v1")
DAY = Standing(
    region="us",
    rank=1,
    target="alpha/m",
    provider="alpha",
    model="m",
    n=1000,
    failed=0,
    ttft_p50_us=Quantile(value=400_000, low=390_000, high=410_000),
    success=Proportion(value=0.995, low=0.99, high=0.999, n=1000),
    newest_at=NOW_AT - MINUTE_US,
)
HOUR = replace(DAY, n=60)
FAILING = Incident(
    id=1,
    kind=AlertKind.TARGET_FAILING,
    subject="alpha/m",
    first_failed_at=NOW_AT - 5 * MINUTE_US,
    last_failed_at=NOW_AT,
    opened_at=NOW_AT,
    scope="one",
    failing=("us",),
    regions=("us", "sg"),
    example="the key sk-123 of 10.0.0.7 is not valid",
    samples=(FailedProbe(vantage="us-1", region="us", round_at=NOW_AT, outcome="http_error"),),
)


def status(day: Standing | None = DAY, hour: Standing | None = HOUR, *opened: Incident, **target: Any) -> StatusList:
    """The status of one target from a region where another one is measured, too."""
    other = replace(DAY, target="other")
    days, hours = ([one for one in given if one is not None] for given in ((day, other), (hour,)))
    return status_of([replace(TARGET, **target)], days, hours, opened, window=WINDOW)


def row(*given: Any, **target: Any) -> TargetStatus:
    (found,) = status(*given, **target).rows
    return found


@pytest.mark.parametrize(
    ("day", "hour", "opened", "every", "state"),
    [
        ({}, {}, [], MINUTE_US, "ok"),
        ({}, {}, [FAILING], MINUTE_US, "failing"),
        ({}, {}, [replace(FAILING, kind=AlertKind.TARGET_THROTTLED)], MINUTE_US, "failing"),
        ({}, {}, [replace(FAILING, failing=("sg",))], MINUTE_US, "ok"),
        ({}, {}, [replace(FAILING, subject="beta/m")], MINUTE_US, "ok"),
        ({}, {}, [replace(FAILING, kind=AlertKind.SLO_BREACHED)], MINUTE_US, "ok"),
        ({}, {"ttft_p50_us": Quantile(value=601_000)}, [], MINUTE_US, "slow"),
        ({}, {"ttft_p50_us": Quantile(value=600_000)}, [], MINUTE_US, "ok"),
        ({}, {"ttft_p50_us": Quantile(value=601_000), "n": 4}, [], MINUTE_US, "ok"),
        ({}, {"ttft_p50_us": None, "n": 0}, [], MINUTE_US, "ok"),
        ({}, {"ttft_p50_us": Quantile(value=601_000)}, [FAILING], MINUTE_US, "failing"),
        ({"newest_at": NOW_AT - 16 * MINUTE_US}, {}, [FAILING], MINUTE_US, "stale"),
        ({"newest_at": NOW_AT - 16 * MINUTE_US}, {}, [], 10 * MINUTE_US, "ok"),
        ({"newest_at": NOW_AT - 31 * MINUTE_US}, {}, [], 10 * MINUTE_US, "stale"),
        ({"success": None}, None, [], MINUTE_US, "stale"),
        ({}, {"success": None}, [], MINUTE_US, "stale"),
        ({"success": None}, {"success": None, "throttled": 9}, [], MINUTE_US, "stale"),
        ({"success": None, "throttled": 9}, {"success": None, "throttled": 9}, [], MINUTE_US, "ok"),
        (None, None, [], MINUTE_US, "stale"),
    ],
)
def test_states(
    day: dict[str, Any] | None, hour: dict[str, Any] | None, opened: list[Incident], every: int, state: str
) -> None:
    """The first law that applies counts: stale, failing, slow, ok."""
    known = [None if change is None else replace(one, **change) for one, change in ((DAY, day), (HOUR, hour))]
    assert row(*known, *opened, every_us=every).state == state


def test_a_paused_target_is_not_shown() -> None:
    """Its rounds send no requests."""
    assert status(paused=True).rows == ()


def test_a_target_without_samples_is_stale() -> None:
    """A target without samples has a row without numbers; a median of too few samples is early."""
    found = row(None, None)
    assert (found.region, found.state, found.success, found.ttft_p50_us) == ("us", "stale", None, None)
    early = row(replace(DAY, ttft_p50_us=Quantile(value=400_000)))
    assert [(one.ttft_p50_us, one.is_early) for one in (row(), early)] == [(400_000, False), (400_000, True)]


def test_nothing_else_is_public() -> None:
    """An incident has its target, its kind, its regions and its beginning: no error, no vantage, no address."""
    found = status(DAY, HOUR, FAILING)
    assert found.incidents == (
        OpenIncident(target="alpha/m", kind="failing", regions=("us",), since_at=NOW_AT - 5 * MINUTE_US),
    )
    text = str(to_json_value(found))
    assert [word for word in ("sk-123", "10.0.0.7", "us-1", "secret.internal", "http") if word in text] == []
