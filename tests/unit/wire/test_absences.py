"""A region without samples has a reason that fits the state of its vantages."""

import pytest

from isochrone_wire.answers import Absence, Window
from isochrone_wire.fleet import Liveness, VantageStatus, absences, absences_besides
from isochrone_wire.model import MINUTE_US

NOW_AT = 1_763_800_000_000_000
WINDOW = Window(from_at=NOW_AT - 60 * MINUTE_US, until_at=NOW_AT)
LATE = VantageStatus(
    name="us-1", region="us-east-2", liveness=Liveness.LATE, reason="last heartbeat 2 h ago", last_seen_at=NOW_AT
)
ONLINE = VantageStatus(
    name="sg-1",
    region="ap-southeast-1",
    liveness=Liveness.ONLINE,
    reason="samples arrive",
    last_seen_at=NOW_AT,
    newest_sample_at=NOW_AT - MINUTE_US,
)


@pytest.mark.parametrize(
    ("region", "sentence"),
    [
        ("eu-west-1", "no samples from eu-west-1: start an agent there"),
        ("us-east-2", "no samples from us-east-2 (vantage us-1: last heartbeat 2 h ago)"),
        (
            "ap-southeast-1",
            "no samples from ap-southeast-1 in this selection, but sg-1 there has delivered others",
        ),
    ],
)
def test_each_region_has_its_reason(region: str, sentence: str) -> None:
    """A region without a vantage needs an agent; a vantage that delivers nothing, or something else, is named."""
    assert absences([region], [LATE, ONLINE], WINDOW) == (Absence(region=region, sentence=sentence),)


def test_the_newest_vantage_of_a_region_is_named() -> None:
    """Of several vantages the one with the newest sample is named: the others are worse."""
    fresh = VantageStatus(
        name="us-2",
        region="us-east-2",
        liveness=Liveness.SILENT,
        reason="its newest sample is 3 h old",
        last_seen_at=NOW_AT,
        newest_sample_at=NOW_AT - 180 * MINUTE_US,
    )
    [found] = absences(["us-east-2"], [LATE, fresh], WINDOW)
    assert found.sentence.startswith("no samples from us-east-2 (vantage us-2: ")


def test_a_second_region_is_missing() -> None:
    """With a single region in the fleet any other one is missing; otherwise the baseline and the others are named."""
    assert absences_besides("us-east-2", [LATE], WINDOW, baseline="us-east-2") == (
        Absence(region="", sentence="no samples from a second region: start an agent there"),
    )
    found = absences_besides("us-east-2", [LATE, ONLINE], WINDOW, baseline="eu-west-1")
    assert [one.region for one in found] == ["eu-west-1", "ap-southeast-1"]
