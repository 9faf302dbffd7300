"""The leaky bucket: a burst at once, then a rate."""

from isochrone_collector.auth.limits import BucketPerKey, LeakyBucket


def test_a_bucket_lets_a_burst_through_and_then_a_rate() -> None:
    """`burst` events at once, then `per_second` of them; a clock that goes back drains nothing."""
    bucket = LeakyBucket(per_second=2.0, burst=3.0)
    assert [bucket.take(10) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(0)
    assert [bucket.take(500_010) for _ in range(2)] == [True, False]
    assert [bucket.take(9_000_000) for _ in range(4)] == [True, True, True, False]


def test_each_key_has_a_bucket() -> None:
    """One key does not use up the allowance of another; of many keys only the most recent are remembered."""
    buckets = BucketPerKey(per_second=1.0, burst=1.0, keys=2)
    assert [buckets.take(key, 0) for key in ("a", "a", "b")] == [True, False, True]
    assert buckets.take("c", 0)
    assert len(buckets._buckets) == 2
