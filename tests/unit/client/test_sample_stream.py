"""Deduplication in streams of samples: a sample that the collector sends twice is returned once."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.fake_collector import NOW_AT, stored
from isochrone_client.sample_stream import Deduplication
from isochrone_wire.fleet import StoredSample

# Other tests and processes share these cores.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROWS = [stored(place % 7, received_at=NOW_AT + place % 5, ttft_us=1000 + place % 11) for place in range(60)]


def deduplication() -> Deduplication:
    return Deduplication(lambda row: row.received_at)


@unhurried
@given(st.lists(st.sampled_from(ROWS)), st.lists(st.sampled_from(ROWS)))
def test_only_repeats_are_dropped(before: list[StoredSample], new: list[StoredSample]) -> None:
    """Only new samples of a resumed stream pass, in any order, including equal twins."""
    seen = deduplication()
    assert list(seen.drop_repeats(before)) == before
    seen.expect_repeats()
    again = sorted([*before, *new], key=lambda row: row.sample.ttft_us or 0)
    assert sorted(seen.drop_repeats(again), key=hash) == sorted(new, key=hash)


def test_without_a_break_nothing_is_dropped() -> None:
    """Without a break, equal samples are different samples."""
    seen = deduplication()
    assert len(seen.drop_repeats([ROWS[0], ROWS[0]])) == 2


def test_samples_that_cannot_repeat_are_forgotten() -> None:
    """Samples from before the instant of resumption are forgotten."""
    seen = deduplication()
    seen.record(stored(0, received_at=NOW_AT + place) for place in range(10))
    seen.forget_before(NOW_AT + 8)
    assert len(seen._received) == 2
