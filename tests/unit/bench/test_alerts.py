"""The account of `make bench-alerts`: what counts as spurious, as missed and as met."""

from dataclasses import replace

import pytest

from bench.alerts.accounting import Account, Expected, account
from bench.alerts.faults import FAULTS, VANTAGES, region_of
from isochrone_wire.insights import Alert, AlertKind, Incident
from isochrone_wire.model import MINUTE_US, Outcome

FAILING, RECOVERED = AlertKind.TARGET_FAILING, AlertKind.TARGET_RECOVERED
EXPECTED = Expected(
    fault="a fault",
    kind=FAILING,
    target="p/m",
    regions=frozenset({"sg", "us"}),
    from_at=0,
    until_at=45 * MINUTE_US,
)
FOUND = Incident(
    id=1,
    kind=FAILING,
    subject="p/m",
    first_failed_at=0,
    last_failed_at=10 * MINUTE_US,
    opened_at=2 * MINUTE_US,
    scope="several",
    regions=("sg", "us"),
    recovered_at=14 * MINUTE_US,
)
ALERTS = (
    Alert(id=1, kind=FAILING, subject="p/m", sentence="fails", raised_at=2 * MINUTE_US),
    Alert(id=2, kind=RECOVERED, subject="p/m", sentence="is answered again", raised_at=14 * MINUTE_US),
)


def accounted(*incidents: Incident, alerts: tuple[Alert, ...] = ALERTS) -> Account:
    return account([EXPECTED], incidents, alerts, every_us=MINUTE_US)


def test_an_incident_that_was_raised_reported_and_ended_is_met() -> None:
    """Nothing is spurious or missed, and the first alert came after two rounds."""
    found = accounted(FOUND)
    assert (found.expected, found.raised, found.spurious, found.missed) == (1, 1, (), ())
    assert found.first_alert_rounds == (2.0,)


@pytest.mark.parametrize(
    ("incident", "sentence"),
    [
        (replace(FOUND, recovered_at=None), "not ended"),
        (replace(FOUND, regions=("sg",)), "not from ['sg', 'us']"),
        (replace(FOUND, opened_at=13 * MINUTE_US), "opened 13.0 rounds after the beginning"),
    ],
)
def test_an_incomplete_incident_is_missed(incident: Incident, sentence: str) -> None:
    """An incident that is late, does not end, or lacks a region does not count as found."""
    [missed] = accounted(incident).missed
    assert sentence in missed


def test_an_alert_that_is_missing_is_missed() -> None:
    """Each incident has an alert for its beginning and one for its end."""
    for alerts in (ALERTS[:1], ALERTS[1:]):
        assert accounted(FOUND, alerts=alerts).missed == ("a fault: p/m target_failing: an alert is missing",)


@pytest.mark.parametrize(
    "incident",
    [
        replace(FOUND, id=2, subject="q/m"),
        replace(FOUND, id=2, kind=AlertKind.TARGET_THROTTLED),
        replace(FOUND, id=2, regions=("fra", "sg", "us")),
        replace(FOUND, id=2, opened_at=60 * MINUTE_US),
    ],
)
def test_another_incident_is_spurious(incident: Incident) -> None:
    """An incident of another target, kind, region or time is explained by no fault, and meets none."""
    assert (len(accounted(FOUND, incident).spurious), accounted(FOUND, incident).missed) == (1, ())
    assert accounted(incident).missed == ("a fault: p/m target_failing: no incident",)


def test_the_faults_are_of_many_kinds() -> None:
    """There are twenty, of one region, several and all, with and without an incident, throttled, late and partial."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 20
    every = {region_of(vantage) for vantage in VANTAGES}
    assert {len(fault.regions) for fault in FAULTS if fault.accused} == {1, 2, len(every)}
    assert sum(not fault.accused for fault in FAULTS) >= 5
    assert len({fault.outcome for fault in FAULTS}) >= 5
    assert any(fault.share < 1 for fault in FAULTS)


def test_a_fault_affects_what_it_names() -> None:
    """A fault that spreads, one that is partial, and one whose agents wait."""
    by_name = {fault.name: fault for fault in FAULTS}
    spreading = by_name["HTTP 500 from one region, then from all"]
    outcomes = [spreading.outcome_of("gamma/c", "us-1", number, draw=0.5) for number in (4, 5, 11, 12)]
    assert outcomes == [None, Outcome.HTTP_ERROR, Outcome.HTTP_ERROR, None]
    partial = by_name["85 % of the requests fail from one region"]
    assert [partial.outcome_of("delta/d", "sg-1", 0, draw=draw) for draw in (0.84, 0.85)] == [Outcome.HTTP_ERROR, None]
    waiting = by_name["throttled everywhere, and the agents wait"]
    assert [waiting.outcome_of("epsilon/e", "us-1", number, draw=0.0) for number in range(3)] == [
        Outcome.THROTTLED,
        Outcome.SKIPPED_THROTTLED,
        Outcome.SKIPPED_THROTTLED,
    ]
