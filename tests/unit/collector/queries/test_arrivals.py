"""Arrivals: every batch is found once, whenever it is committed."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isochrone_collector.queries.samples import OVERLAP_US, STEP_US, ArrivalCursor, grouped
from isochrone_collector.store.samples import Arrival
from isochrone_wire.model import SECOND_US

# Other tests and processes share these cores.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
START_AT = 1_795_000_000_000_000


def arrival(seq: int, received_at: int, stored: int = 1) -> Arrival:
    return Arrival(
        vantage_id=1,
        epoch=1,
        seq=seq,
        stored=stored,
        received_at=received_at,
        oldest_round_at=received_at,
        newest_round_at=received_at,
    )


def look(arrivals: ArrivalCursor, ledger: list[tuple[int, Arrival]], now_at: int) -> list[int]:
    """What is new at an instant, of a ledger of (committed, batch)."""
    window = arrivals.next_window(now_at)
    there = [
        row
        for committed_at, row in ledger
        if committed_at <= now_at and window.from_at <= row.received_at < window.until_at
    ]
    return [row.seq for row in arrivals.advance(there, window)]


@unhurried
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 50)), max_size=40), st.data())
def test_late_commits_are_found_once(batches: list[tuple[int, int]], data: st.DataObject) -> None:
    """Whatever the order of commits and the rhythm of the looks, a batch that takes under a minute is told once."""
    ledger = [
        (START_AT + (received + took) * SECOND_US, arrival(seq, START_AT + received * SECOND_US))
        for seq, (received, took) in enumerate(batches)
    ]
    arrivals, now_at, told = ArrivalCursor(START_AT), START_AT, list[int]()
    while now_at < START_AT + 400 * SECOND_US:
        told += look(arrivals, ledger, now_at)
        now_at += data.draw(st.integers(1, 9)) * SECOND_US
    assert sorted(told) == list(range(len(batches)))


@unhurried
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 50)), max_size=40), st.integers(0, 350))
def test_somebody_else_can_go_on(batches: list[tuple[int, int]], broken: int) -> None:
    """What was told before a break, and what is told to whoever resumes from there, leave nothing out."""
    ledger = [
        (START_AT + (received + took) * SECOND_US, arrival(seq, START_AT + received * SECOND_US))
        for seq, (received, took) in enumerate(batches)
    ]
    first, told = ArrivalCursor(START_AT), set[int]()
    for second in range(0, broken, 7):
        told |= set(look(first, ledger, START_AT + second * SECOND_US))
    second_at = START_AT + 400 * SECOND_US
    again = ArrivalCursor(first.resume_at)
    told |= set(look(again, ledger, second_at))
    assert told == set(range(len(batches)))


def test_the_past_comes_in_pieces() -> None:
    """After a long pause no look spans more than a step and the overlap, and looks catch up."""
    arrivals, now_at, looks = ArrivalCursor(START_AT), START_AT + 10 * STEP_US, 0
    while (window := arrivals.next_window(now_at)).until_at < now_at:
        assert window.until_at - window.from_at <= STEP_US + OVERLAP_US
        arrivals.advance([], window)
        looks += 1
    assert looks == 9


def test_nothing_is_asked_of_before_the_start() -> None:
    """Following begins where it was asked to, not an overlap earlier."""
    arrivals = ArrivalCursor(START_AT)
    assert arrivals.resume_at == arrivals.next_window(START_AT).from_at == START_AT


def test_memory_is_bounded_by_the_overlap() -> None:
    """Batches that no look can find again are forgotten."""
    arrivals = ArrivalCursor(START_AT)
    for second in range(300):
        now_at = START_AT + second * SECOND_US
        arrivals.advance([arrival(second, now_at)], arrivals.next_window(now_at))
    assert len(arrivals._seen) <= OVERLAP_US // SECOND_US + 1


def test_groups_are_of_about_a_size() -> None:
    """Batches are read together up to a number of samples; a larger one is read alone."""
    batches = [arrival(seq, START_AT, stored) for seq, stored in enumerate((10, 10, 10, 50, 5))]
    assert [[row.seq for row in group] for group in grouped(batches, samples=20)] == [[0, 1], [2], [3], [4]]
    assert list(grouped([], samples=20)) == []
