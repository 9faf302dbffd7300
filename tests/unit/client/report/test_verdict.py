"""The verdict: what is slower where and by how much, what is happening now, or what is missing."""

from dataclasses import replace

import pytest

from fixtures.fake_collector import COVERAGE, DIFFERENTIALS, NOW_AT, TARGETS, VANTAGES, WINDOW
from isochrone_client.report.incidents import Incident
from isochrone_client.report.verdict import comparison, missing, present
from isochrone_wire.answers import Absence, Decision, DifferentialList
from isochrone_wire.fleet import CoverageList, TargetList, VantageList
from isochrone_wire.model import MINUTE_US, SECOND_US

SLOW = Incident(
    target="openai/gpt-5-mini",
    regions=("us-east-2",),
    from_at=NOW_AT - 7 * MINUTE_US,
    sentence="is slower by 80 ms: ttft 240 → 320 ms",
)
NONE = "No samples between 2026-11-20 08:00 and 2026-11-21 08:00 UTC"
ONLINE = replace(VANTAGES, vantages=VANTAGES.vantages[:1])


def test_each_region_is_compared() -> None:
    """With few regions, each has its counts and its largest differences with their intervals."""
    assert comparison(DIFFERENTIALS) == (
        "Compared with us-east-2: from ap-southeast-1, 1 of 3 targets is slower (openai/gpt-5-mini by 191 ms, 180 … "
        "204) and 1 is faster (deepseek/deepseek-v4-flash by 30 ms, 25 … 35)."
    )
    undecided = tuple(replace(row, decision=Decision.UNDECIDED) for row in DIFFERENTIALS)
    assert comparison(undecided) == (
        "Compared with us-east-2: from ap-southeast-1, no difference of 3 targets is certain."
    )


def test_many_regions_are_counted_together() -> None:
    """With many regions, the sentence has the total counts and the place of the largest differences."""
    rows = [replace(row, region=f"{row.region}-{n}") for n in range(10) for row in DIFFERENTIALS]
    assert comparison(rows) == (
        "Compared with us-east-2: 10 of 30 pairs of a target and one of 10 regions are slower (most: openai/gpt-5-mini "
        "from ap-southeast-1-0 by 191 ms, 180 … 204) and 10 are faster (most: deepseek/deepseek-v4-flash from "
        "ap-southeast-1-0 by 30 ms, 25 … 35)."
    )


def test_nothing_compared_is_no_sentence() -> None:
    """Without differentials there is nothing to compare."""
    assert comparison(()) == ""


def test_what_happens_now() -> None:
    """Incidents that last are what happens now; after the last one has ended, its end is stated."""
    assert present([SLOW], ONLINE, newest_at=NOW_AT, now_at=NOW_AT) == (
        "Now: openai/gpt-5-mini from us-east-2 is slower by 80 ms: ttft 240 → 320 ms, since 07:53:00."
    )
    ended = replace(SLOW, until_at=NOW_AT - MINUTE_US)
    assert present([ended], ONLINE, newest_at=NOW_AT, now_at=NOW_AT) == (
        "Now: no ongoing incident; the last one ended at 07:59:00 UTC."
    )
    assert present([], ONLINE, newest_at=NOW_AT, now_at=NOW_AT) == "Now: no ongoing incident."
    many = [SLOW] * 5
    assert present(many, ONLINE, newest_at=NOW_AT, now_at=NOW_AT).endswith("; and 2 more below.")


def test_old_samples_are_not_about_now() -> None:
    """If the newest sample is old, the sentence has its instant, and the state of the vantages does not matter."""
    sentence = present([SLOW], VANTAGES, newest_at=NOW_AT - 10 * MINUTE_US, now_at=NOW_AT)
    assert sentence.startswith("At 07:50:00 UTC, the newest sample: openai/gpt-5-mini from us-east-2 is slower")
    now = present([], VANTAGES, newest_at=NOW_AT - SECOND_US, now_at=NOW_AT)
    assert now.startswith("Now: ohio-2 in us-east-2: last heartbeat 9 min ago")


@pytest.mark.parametrize(
    ("plan", "vantages", "recorded", "absent", "sentences"),
    [
        (TargetList(plan_version=0, baseline=""), VantageList(plan_version=0, answered_at=NOW_AT), (), (), (0, 1, 2)),
        (TARGETS, VantageList(plan_version=3, answered_at=NOW_AT), (), ("us-east-2",), (1, 2, 4)),
        (TARGETS, ONLINE, (), (), (3,)),
        (TARGETS, ONLINE, ("ap-southeast-1",), ("us-east-2",), (4,)),
        (TARGETS, ONLINE, ("us-east-2", "ap-southeast-1"), (), (5,)),
    ],
)
def test_what_is_missing(
    plan: TargetList,
    vantages: VantageList,
    recorded: tuple[str, ...],
    absent: tuple[str, ...],
    sentences: tuple[int, ...],
) -> None:
    """Each reason for an empty comparison has a sentence with a remedy; those of regions are the collector's."""
    coverage = CoverageList(window=WINDOW, coverage=tuple(replace(COVERAGE[0], region=one) for one in recorded))
    answer = DifferentialList(
        window=WINDOW,
        differentials=DIFFERENTIALS[2:],
        missing=tuple(Absence(region=one, sentence=f"no samples from {one}: start an agent there") for one in absent),
    )
    known = (
        "No plan is applied: isochrone-collector apply plan.yaml.",
        "No agent has reported yet: start one in each region with isochrone-agent run.",
        f"{NONE}.",
        f"{NONE}; the newest sample is 3 s old: use a longer --window.",
        "No samples from us-east-2: start an agent there.",
        "Too few rounds for a comparison of ap-southeast-1, us-east-2: 6 rounds of each target are needed.",
    )
    found = tuple(missing(plan, coverage, vantages, answer, baseline="us-east-2", window=WINDOW, now_at=NOW_AT))
    assert found == tuple(known[place] for place in sentences)


def test_a_missing_baseline_is_named() -> None:
    """Samples without a baseline cannot be compared."""
    coverage = CoverageList(window=WINDOW, coverage=COVERAGE)
    found = tuple(missing(TARGETS, coverage, ONLINE, None, baseline="", window=WINDOW, now_at=NOW_AT))
    assert found == ("There is no baseline region to compare with: choose one with --baseline.",)


def test_nothing_is_missing_with_a_comparison() -> None:
    """One difference is enough for a verdict."""
    answer = DifferentialList(window=WINDOW, differentials=DIFFERENTIALS)
    found = tuple(missing(TARGETS, None, None, answer, baseline="us-east-2", window=WINDOW, now_at=NOW_AT))
    assert found == ()
