"""Deduplication: what is told twice by a collector is told once by us."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fix_observatory import NOW_AT, stored
from isochrone_client.deduplication import Deduplication
from isochrone_wire.answers import StoredSample

# Other tests and processes share these cores.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROWS = [stored(place % 7, received_at=NOW_AT + place % 5, ttft_us=1000 + place % 11) for place in range(60)]


def recall() -> Deduplication:
    return Deduplication(lambda row: row.received_at)


@unhurried
@given(st.lists(st.sampled_from(ROWS)), st.lists(st.sampled_from(ROWS)))
def test_only_what_was_told_is_left_out(before: list[StoredSample], new: list[StoredSample]) -> None:
    """When a stream begins again with all it told, in any order, only what is new comes through, equal twins too."""
    memory = recall()
    assert list(memory.untold(before)) == before
    memory.expect_again()
    again = sorted([*before, *new], key=lambda row: row.sample.ttft_us or 0)
    assert sorted(memory.untold(again), key=hash) == sorted(new, key=hash)


def test_a_stream_that_goes_on_is_not_doubted() -> None:
    """Without a break, samples that look alike are different samples."""
    memory = recall()
    assert len(memory.untold([ROWS[0], ROWS[0]])) == 2


def test_what_cannot_come_again_is_forgotten() -> None:
    """Memory reaches back to the instant of resuming and no further."""
    memory = recall()
    memory.note(stored(0, received_at=NOW_AT + place) for place in range(10))
    memory.forget_before(NOW_AT + 8)
    assert len(memory._told) == 2
