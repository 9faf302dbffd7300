"""A busy vantage: its artefacts are no steps, and nothing is decided by them."""

from typing import Any

import httpx
import pytest

from fixtures.collector import Collector, StartCollector
from isochrone_client.window import now_at
from testdata.pushed_rounds import FIRST, PLAN, SG, US, Fleet, rounds_until

HOUR = 60
BUSY = {"loop_lag_us": 40_000}


def latency(target: str, region: str) -> int:
    return 200_000


def slowed(target: str, region: str) -> int:
    return 200_000 + (60_000 if region == SG else 0)


def push(collector: Collector, waited: dict[str, int]) -> None:
    """Push an hour in which Singapore is 60 ms slower, with these fields in two thirds of its rounds, and an hour in
    which it is not.
    """
    assert collector.call.apply(PLAN).problems == ()
    fleet = Fleet({target.name: target.id for target in collector.call.targets().targets})
    rounds = rounds_until(now_at(), 2 * HOUR)
    for place in range(3):
        own = waited if place else {}
        fleet.phases = {US: {}, SG: own}.__getitem__
        fleet.push_rounds(collector.call, rounds[place:HOUR:3], slowed)
    fleet.phases = {US: {}, SG: {}}.__getitem__
    fleet.push_rounds(collector.call, rounds[HOUR:], latency)


@pytest.mark.parametrize(("waited", "levels", "left_out"), [({}, 2, 0.0), (BUSY, 0, 0.5)], ids=["quiet", "busy"])
def test_an_artefact_of_a_busy_vantage_is_no_step(
    start_collector: StartCollector, waited: dict[str, int], levels: int, left_out: float
) -> None:
    """What is a step from a quiet vantage is none from a busy one: its rounds are left out, also those that waited for
    nothing, and their share is stated. The present level is that of the rounds that count.
    """
    collector = start_collector()
    push(collector, waited)
    asked = {"target": FIRST, "window": "3h"}
    answer = httpx.get(f"{collector.http}/v1/diff", params=asked, timeout=60, trust_env=False)
    (row,) = answer.raise_for_status().json()["rows"]
    assert (len(row["levels"]), row["since_at"] is not None) == (levels, levels > 0)
    assert row["region_side"]["left_out"] == pytest.approx(left_out, abs=0.05)
    assert (row["baseline"], row["baseline_side"]["left_out"]) == (US, 0)
    assert row["shift_low"] < 0 < row["shift_high"]


def test_a_busy_vantage_is_named(start_collector: StartCollector) -> None:
    """The status, the list of vantages, the leaderboard and the difference state the share that is not compared."""
    collector = start_collector()
    assert collector.call.apply(PLAN).problems == ()
    fleet = Fleet({target.name: target.id for target in collector.call.targets().targets})
    fleet.phases = {US: {}, SG: BUSY}.__getitem__
    rounds = rounds_until(now_at(), 30)
    fleet.push_rounds(collector.call, rounds[:15], slowed)
    fleet.push_rounds(collector.call, rounds[15:], latency)

    def asked(path: str) -> list[dict[str, Any]]:
        answer = httpx.get(f"{collector.http}{path}", timeout=60, trust_env=False).raise_for_status()
        return list(answer.json()["rows"])

    assert {row["name"]: row["left_out"] for row in asked("/v1/vantages")} == {
        "sg-1": 1.0,
        "sg-2": 1.0,
        "us-1": 0.0,
        "us-2": 0.0,
    }
    busy = [row for row in asked("/v1/status") if row["kind"] == "vantage_busy"]
    assert [(row["vantage"], row["severity"]) for row in busy] == [("sg-1", "warning"), ("sg-2", "warning")]
    assert {row["region"]: row["left_out"] for row in asked("/v1/leaderboard")} == {US: 0.0, SG: 1.0}
    (row,) = asked(f"/v1/diff?target={FIRST}")
    assert row["decision"] == "undecided"
    assert row["reason"] == f"{SG} was busy: 100 % of its probes are not compared"
    # There is nothing else to show, but it is no step.
    assert row["shift"] is not None
    assert row["levels"] == []
