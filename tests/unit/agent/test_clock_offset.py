"""The estimate of the collector's clock never says more than the exchanges do."""

from hypothesis import given
from hypothesis import strategies as st

from isochrone_agent.clock_offset import Offset, OffsetEstimator, TimestampExchange

roads = st.integers(min_value=0, max_value=2_000_000)
NOON = 1_795_000_000_000_000


def exchange(true_offset_us: int, *, there_us: int, back_us: int, held_us: int = 0) -> TimestampExchange:
    received_at = NOON + there_us + true_offset_us
    return TimestampExchange(
        sent_at=NOON,
        received_at=received_at,
        server_at=received_at + held_us,
        returned_at=NOON + there_us + held_us + back_us,
    )


@given(st.integers(min_value=-(10**13), max_value=10**13), roads, roads, roads)
def test_the_truth_is_within_the_uncertainty(true_offset_us: int, there_us: int, back_us: int, held_us: int) -> None:
    """However unequal the ways: the collector's clock minus ours is the offset, give or take half of the road."""
    said = exchange(true_offset_us, there_us=there_us, back_us=back_us, held_us=held_us).offset
    assert said is not None
    assert abs(said.offset_us - true_offset_us) <= said.uncertainty_us + 1
    assert said.uncertainty_us == (there_us + back_us + 1) // 2


def test_a_collector_ahead_is_a_positive_offset() -> None:
    """The sign: add the offset to an instant of ours to have the collector's."""
    assert exchange(5000, there_us=100, back_us=100).offset == Offset(offset_us=5000, uncertainty_us=100)


def test_the_best_of_the_last_eight_counts() -> None:
    """The fastest exchange is believed until it is eight exchanges old."""
    estimator = OffsetEstimator()
    estimator.add(exchange(7, there_us=10, back_us=10), lead_us=0)
    for _ in range(7):
        estimator.add(exchange(9, there_us=500, back_us=500), lead_us=0)
    assert estimator.estimate(lead_us=0) == Offset(offset_us=7, uncertainty_us=10)
    estimator.add(exchange(9, there_us=500, back_us=500), lead_us=0)
    assert estimator.estimate(lead_us=0) == Offset(offset_us=9, uncertainty_us=500)


def test_a_stepped_wall_clock_forgets() -> None:
    """After a step of ours nothing is known until the next exchange, and nothing of before it counts again."""
    estimator = OffsetEstimator()
    estimator.add(exchange(7, there_us=10, back_us=10), lead_us=0)
    assert estimator.estimate(lead_us=900) is not None
    assert estimator.estimate(lead_us=3_600_000_000) is None
    estimator.add(exchange(-3_600_000_000, there_us=50, back_us=50), lead_us=3_600_000_000)
    assert estimator.estimate(lead_us=3_600_000_000) == Offset(offset_us=-3_600_000_000, uncertainty_us=50)


def test_what_says_nothing_is_not_believed() -> None:
    """Without the collector's instants, or with time running backwards, there is no estimate."""
    silent = TimestampExchange(sent_at=NOON, received_at=0, server_at=NOON, returned_at=NOON + 9)
    backwards = TimestampExchange(sent_at=NOON, received_at=NOON + 5, server_at=NOON + 4, returned_at=NOON + 9)
    impossible = TimestampExchange(sent_at=NOON, received_at=NOON, server_at=NOON + 50, returned_at=NOON + 9)
    estimator = OffsetEstimator()
    for one in (silent, backwards, impossible):
        estimator.add(one, lead_us=0)
    assert estimator.estimate(lead_us=0) is None
