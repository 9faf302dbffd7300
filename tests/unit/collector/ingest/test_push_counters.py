"""The tally of pushes: every push in one class of duration, every sample in one count."""

import pytest

from isochrone_collector.ingest.push_counters import BOUNDS_US, PushCounters


@pytest.mark.parametrize(("took_us", "first"), [(0, 0), (1_000, 0), (1_001, 1), (10_000_000, 11), (10_000_001, 12)])
def test_a_duration_falls_into_one_class(took_us: int, first: int) -> None:
    """Bounds are inclusive, and what is longer than the last counts in the one without a bound."""
    tally = PushCounters()
    tally.answered("OK", took_us=took_us)
    bounds = [*BOUNDS_US, None]
    assert list(tally.cumulative()) == [(bound, int(place >= first)) for place, bound in enumerate(bounds)]
    assert (tally.duration_us, tally.pushes) == (took_us, {"OK": 1})


@pytest.mark.parametrize(
    ("stored", "duplicate", "reasons", "claimed", "repeated"),
    [
        (3, 0, [], 1, 0),
        (0, 3, [], 0, 1),
        (0, 0, ["unknown_target: 7"], 1, 0),
        (0, 2, ["unknown_target: 7"], 0, 1),
        (0, 0, [], 0, 0),
    ],
)
def test_a_batch_is_new_or_known(stored: int, duplicate: int, reasons: list[str], claimed: int, repeated: int) -> None:
    """A batch of duplicates was known to the ledger, another one was new, and a heartbeat is no batch."""
    tally = PushCounters()
    tally.receipt("us-1", stored=stored, duplicate=duplicate, reasons=reasons, at=9)
    assert (tally.claimed, tally.repeated) == (claimed, repeated)
    assert (tally.stored, tally.duplicate, tally.heard_at) == (stored, duplicate, {"us-1": 9})


def test_reasons_are_counted_by_name() -> None:
    """Figures in a reason do not make a series of their own."""
    tally = PushCounters()
    reasons = ["out_of_bounds: ttft_us = -5 (0 to 9)", "out_of_bounds: e2e_us = -7 (0 to 9)", "unknown_target: 3"]
    tally.receipt("us-1", stored=0, duplicate=0, reasons=reasons, at=9)
    assert tally.rejected == {"out_of_bounds": 2, "unknown_target": 1}
