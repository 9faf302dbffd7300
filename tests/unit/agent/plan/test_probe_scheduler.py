"""The decision whether a round is sent: the first check that applies gives the outcome."""

from dataclasses import replace

import pytest

from isochrone_agent.plan.probe_scheduler import Readiness, skip_of
from isochrone_wire.model import Outcome, Overlap, Target

TARGET = Target(id=1, name="p/m", provider="p", model="m", base_url="https://api.example.com")
PAUSED, OVERLAPPING = replace(TARGET, paused=True), replace(TARGET, overlap=Overlap.ALLOW)


@pytest.mark.parametrize(
    ("ready", "outcome", "reason"),
    [
        (
            Readiness(target=PAUSED, refusal="r", is_in_flight=True),
            Outcome.SKIPPED_PAUSED,
            "the plan pauses this target",
        ),
        (
            Readiness(target=TARGET, refusal="no", is_in_flight=True, over_budget="b"),
            Outcome.SKIPPED_NOT_READY,
            "refused by the agent's policy: no",
        ),
        (
            Readiness(target=TARGET, is_in_flight=True, is_throttled=True),
            Outcome.SKIPPED_OVERLAP,
            "the previous probe is still in flight",
        ),
        (
            Readiness(target=TARGET, is_throttled=True, over_budget="b"),
            Outcome.SKIPPED_THROTTLED,
            "the provider asked to wait",
        ),
        (Readiness(target=OVERLAPPING, is_in_flight=True, over_budget="b"), Outcome.SKIPPED_BUDGET, "b"),
    ],
)
def test_the_first_check_decides(ready: Readiness, outcome: Outcome, reason: str) -> None:
    """Pause, policy, overlap, throttling and budget are checked in this order."""
    assert skip_of(ready) == (outcome, reason)


@pytest.mark.parametrize("ready", [Readiness(target=TARGET), Readiness(target=OVERLAPPING, is_in_flight=True)])
def test_a_round_without_an_obstacle_is_sent(ready: Readiness) -> None:
    """A probe in flight is no obstacle if the plan allows overlap."""
    assert skip_of(ready) is None
