"""The estimated clock offset is as certain as the exchanges allow, and not more."""

from hypothesis import given
from hypothesis import strategies as st

from isochrone_agent.clock import Offset, OffsetEstimator, offset_of

delays = st.integers(min_value=0, max_value=2_000_000)
NOON = 1_795_000_000_000_000


def exchange(true_offset_us: int, *, there_us: int, back_us: int, held_us: int = 0) -> Offset | None:
    received_at = NOON + there_us + true_offset_us
    return offset_of(
        sent_at=NOON,
        received_at=received_at,
        server_at=received_at + held_us,
        returned_at=NOON + there_us + held_us + back_us,
    )


@given(st.integers(min_value=-(10**13), max_value=10**13), delays, delays, delays)
def test_the_truth_is_within_the_uncertainty(true_offset_us: int, there_us: int, back_us: int, held_us: int) -> None:
    """The true offset is within half of the network time, however it is divided between the two directions."""
    offset = exchange(true_offset_us, there_us=there_us, back_us=back_us, held_us=held_us)
    assert offset is not None
    assert abs(offset.offset_us - true_offset_us) <= offset.uncertainty_us + 1
    assert offset.uncertainty_us == (there_us + back_us + 1) // 2


def test_a_collector_ahead_is_a_positive_offset() -> None:
    """The sign: collector time = agent time + offset."""
    assert exchange(5000, there_us=100, back_us=100) == Offset(offset_us=5000, uncertainty_us=100)


def test_the_best_of_the_last_eight_counts() -> None:
    """The fastest exchange is used until it is eight exchanges old."""
    estimator = OffsetEstimator()
    estimator.add(exchange(7, there_us=10, back_us=10), lead_us=0)
    for _ in range(7):
        estimator.add(exchange(9, there_us=500, back_us=500), lead_us=0)
    assert estimator.estimate(lead_us=0) == Offset(offset_us=7, uncertainty_us=10)
    estimator.add(exchange(9, there_us=500, back_us=500), lead_us=0)
    assert estimator.estimate(lead_us=0) == Offset(offset_us=9, uncertainty_us=500)


def test_a_stepped_wall_clock_discards_exchanges() -> None:
    """A step of the agent's clock discards all exchanges; the next one gives a new estimate."""
    estimator = OffsetEstimator()
    estimator.add(exchange(7, there_us=10, back_us=10), lead_us=0)
    assert estimator.estimate(lead_us=900) is not None
    assert estimator.estimate(lead_us=3_600_000_000) is None
    estimator.add(exchange(-3_600_000_000, there_us=50, back_us=50), lead_us=3_600_000_000)
    assert estimator.estimate(lead_us=3_600_000_000) == Offset(offset_us=-3_600_000_000, uncertainty_us=50)


def test_invalid_exchanges_are_ignored() -> None:
    """An exchange without the collector's timestamps, or with time running backwards, gives no estimate."""
    incomplete = offset_of(sent_at=NOON, received_at=0, server_at=NOON, returned_at=NOON + 9)
    backwards = offset_of(sent_at=NOON, received_at=NOON + 5, server_at=NOON + 4, returned_at=NOON + 9)
    impossible = offset_of(sent_at=NOON, received_at=NOON, server_at=NOON + 50, returned_at=NOON + 9)
    estimator = OffsetEstimator()
    for one in (incomplete, backwards, impossible):
        estimator.add(one, lead_us=0)
    assert estimator.estimate(lead_us=0) is None
