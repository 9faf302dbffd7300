"""Rounds that are not complete yet: kept within a limit, settled window by window."""

import numpy as np
import pytest

from isochrone_collector.analysis.probe_records import (
    COMPARABLE,
    FIRST_TOKEN,
    MAX_BYTES,
    RECORD,
    VALID,
    Records,
    UnsettledRounds,
    joined,
    round_medians,
)
from isochrone_common.probe_metrics import OUTCOMES
from isochrone_wire.answers import Window

TARGETS = (3, 5, 8)
UNTIL_AT = 40


def some_records(rng: np.random.Generator, *, count: int = 200) -> Records:
    """Valid probes of three targets in forty rounds."""
    records = np.zeros(count, RECORD)
    records["target_id"] = rng.choice(TARGETS, count)
    records["round_at"] = rng.integers(0, UNTIL_AT, count)
    records["traits"] = VALID | COMPARABLE | FIRST_TOKEN
    records["ttft_us"] = rng.integers(1, 1_000, count)
    records["tokens_per_second"] = rng.random(count)
    return records


@pytest.mark.parametrize("step", [1, 7, 40])
def test_settled_windows_have_the_medians_of_all_probes(step: int) -> None:
    """Windows one after another give every round once, whatever parts it came in, and leave out what is late."""
    rng = np.random.default_rng(step)
    parts = [some_records(rng) for _ in range(5)]
    unsettled = UnsettledRounds()
    for part in parts:
        unsettled.add("us", part)
    found: dict[int, list[tuple[int, float, float]]] = {target: [] for target in TARGETS}
    for from_at in range(0, UNTIL_AT, step):
        for row in unsettled.settle(Window(from_at=from_at, until_at=from_at + step), TARGETS):
            found[row.target_id] += zip(row.rounds, row.ttft_us, row.tokens_per_second, strict=True)
        unsettled.add("us", parts[0][parts[0]["round_at"] < from_at])
    expected = {
        row.target_id: list(zip(row.rounds, row.ttft_us, row.tokens_per_second, strict=True))
        for row in round_medians("us", joined(parts))
    }
    assert found == expected


def test_two_minutes_of_62_000_probes_per_second_fit() -> None:
    """Beyond the limit all rounds would be read from the database, for seconds, while pushes wait."""
    unsettled = UnsettledRounds()
    unsettled.add("us", np.zeros(1_000, RECORD))
    assert unsettled.nbytes * 62 * 120 <= MAX_BYTES


def test_outcomes_keep_their_places() -> None:
    """Stored traits have the place of the outcome: new outcomes are added at the end."""
    stored = (
        "ok",
        "throttled",
        "http_error",
        "connect_failed",
        "timed_out",
        "stalled",
        "truncated",
        "garbled",
        "skipped_overlap",
        "skipped_budget",
        "skipped_throttled",
        "skipped_paused",
        "skipped_not_ready",
        "stream_error",
        "filtered",
        "empty",
    )
    assert OUTCOMES[: len(stored)] == stored
