"""The leaky bucket: a burst at once, then a rate."""

from isochrone_collector.auth.rate_limit import LeakyBucket


def test_a_bucket_lets_a_burst_through_and_then_a_rate() -> None:
    """`burst` events at once, then `per_second` of them; a clock that goes back drains nothing."""
    bucket = LeakyBucket(per_second=2.0, burst=3.0)
    assert [bucket.take(10) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(0)
    assert [bucket.take(500_010) for _ in range(2)] == [True, False]
    assert [bucket.take(9_000_000) for _ in range(4)] == [True, True, True, False]
