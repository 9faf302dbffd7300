"""A new plan against what the vantages have recorded lately."""

from dataclasses import replace

import pytest

from isochrone_collector.plans.fleet_check import Fleet, related, unfit
from isochrone_wire.model import Outcome, Plan, Target

A = Target(id=1, name="p/a", provider="p", model="a", base_url="http://h/v1", credential="p")
B = replace(A, id=2, name="p/b", model="b", base_url="http://other/v1", credential=None)
OLD = Plan(version=1, baseline="us", targets=(A, B))
NEW_A, NEW_B = replace(A, id=3, name="p/c"), replace(B, id=4, name="p/d")
KEYLESS, UNREACHABLE = {Outcome.SKIPPED_NOT_READY}, {Outcome.CONNECT_FAILED}


def sentences(fleet: Fleet, *targets: Target, baseline: str = "us", old: Plan | None = OLD) -> list[str]:
    return list(unfit(old, Plan(version=2, baseline=baseline, targets=targets or OLD.targets), fleet))


@pytest.mark.parametrize(
    ("regions", "baseline", "old", "count"),
    [
        ({"eu"}, "us", None, 1),
        ({"eu"}, "ap", OLD, 1),
        ({"eu", "us"}, "us", None, 0),
        ({"eu"}, "us", OLD, 0),
        ((), "us", None, 0),
        ({"eu"}, "", None, 0),
    ],
)
def test_a_new_baseline_has_a_vantage(regions: set[str], baseline: str, old: Plan | None, count: int) -> None:
    """A new baseline needs a vantage that is there; one in force is not judged again, and nothing without a vantage."""
    found = sentences(Fleet(regions=regions), baseline=baseline, old=old)
    assert len(found) == count
    assert all(f"baseline {baseline} has no vantage" in sentence for sentence in found)


@pytest.mark.parametrize(
    ("outcomes", "target", "beginning"),
    [
        (KEYLESS, NEW_A, "no vantage can use credential p"),
        (UNREACHABLE, NEW_A, "no vantage can reach h"),
        (UNREACHABLE | {Outcome.OK}, NEW_A, ""),
        (KEYLESS | {Outcome.TIMED_OUT}, NEW_A, ""),
        (set(), NEW_A, ""),
        (UNREACHABLE, NEW_B, ""),
        (UNREACHABLE, A, ""),
        (UNREACHABLE, replace(NEW_A, paused=True), ""),
    ],
)
def test_a_new_target_can_be_measured(outcomes: set[Outcome], target: Target, beginning: str) -> None:
    """What a target in force shows of its host and credential is true of a new one; that one itself is not judged."""
    found = sentences(Fleet(regions={"us"}, outcomes={A.id: outcomes}), target)
    assert [sentence.partition(",")[0].partition(":")[0] for sentence in found] == [beginning] * bool(beginning)


def test_only_related_targets_are_read() -> None:
    """The outcomes that matter are those of the targets in force with the host or the credential of a new one."""
    assert related(OLD, replace(OLD, targets=(A, B, NEW_A))) == (A.id,)
    assert related(OLD, replace(OLD, targets=(A, B, NEW_B))) == (B.id,)
    assert related(OLD, OLD) == related(None, OLD) == ()
