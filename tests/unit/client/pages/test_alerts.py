"""Pages of alerts and incidents."""

from dataclasses import replace

import pytest

from isochrone_client.errors import ClientError
from isochrone_client.pages import alerts
from isochrone_wire.operations import INCIDENT_PREFIX, incident_name
from testdata.insights import INCIDENTS


def test_an_empty_answer_has_a_reason() -> None:
    """Without incidents the message states how many targets are watched, or that none is measured."""
    empty = replace(INCIDENTS, incidents=())
    assert alerts.no_incidents(empty, past=False) == (
        "no open incidents: 9 targets are watched; --past shows those that ended"
    )
    assert alerts.no_incidents(replace(empty, watched=1), past=True).endswith("08:00 UTC: 1 target is watched")
    assert alerts.no_incidents(replace(empty, watched=0), past=False) == (
        "no incidents: no target is measured, so none can fail"
    )


def test_ids_are_read_as_they_are_shown() -> None:
    """An id of an alert, or of the table, names the incident; another text is an error with a hint."""
    for row in INCIDENTS.incidents:
        name = incident_name(row.id)
        assert alerts.parse_incident_id(name) == alerts.parse_incident_id(name.removeprefix(INCIDENT_PREFIX)) == row.id
    for text in ("alert_1f", "moonshot/kimi-k2.5", "", "-1", "1" * 17):
        with pytest.raises(ClientError, match="not the id of an incident"):
            alerts.parse_incident_id(text)
