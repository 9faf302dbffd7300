"""RateLimits: a minute's worth at once, refilled evenly, and a wait that is long enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_sim.requests import MINUTE_US, Bucket, RateLimits, format_duration

AT = 1_779_235_200_000_000


def test_a_bucket_empties_and_says_how_long_to_wait() -> None:
    """The limit may be used at once; then there is nothing, until the wait is over."""
    bucket = Bucket(60)
    assert [bucket.take(1, at=AT).remaining for _ in range(60)][-1] == 0
    refused = bucket.take(1, at=AT)
    assert (refused.wait_us, refused.remaining, refused.reset_us) == (1_000_000, 0, MINUTE_US)
    assert bucket.take(1, at=AT + refused.wait_us).wait_us == 0


@given(st.integers(1, 10_000), st.lists(st.tuples(st.integers(0, 1000), st.integers(-1000, MINUTE_US)), max_size=30))
def test_levels_are_possible(limit: int, takes: list[tuple[int, int]]) -> None:
    """Whatever is taken, and however the clock steps, what is left lies between nothing and the limit."""
    bucket, at = Bucket(limit), AT
    for amount, passed_us in takes:
        at += passed_us
        level = bucket.take(amount, at=at)
        assert 0 <= level.remaining <= limit
        assert 0 <= level.reset_us <= MINUTE_US


def test_a_throttled_request_takes_no_tokens() -> None:
    """What is refused for the one bucket is not charged to the other."""
    rate_limits = RateLimits()
    taken = [rate_limits.take("m", tokens=100, at=AT, limits=(1, 1000)) for _ in range(3)]
    assert [rate_limit.requests.wait_us > 0 for rate_limit in taken] == [False, True, True]
    assert [rate_limit.tokens.remaining for rate_limit in taken] == [900, 900, 900]


def test_models_have_their_own() -> None:
    """Using up one model's rate_limit leaves another's alone."""
    rate_limits = RateLimits()
    rate_limits.take("a", tokens=1, at=AT, limits=(1, 10))
    assert rate_limits.take("b", tokens=1, at=AT, limits=(1, 10)).requests.wait_us == 0


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0ms"), (1, "1ms"), (12_000, "12ms"), (1_500_000, "1.5s"), (60_000_000, "1m0s"), (90_000_000, "1m30s")],
)
def test_durations_as_openai_writes_them(us: int, text: str) -> None:
    """Milliseconds, seconds, minutes and seconds."""
    assert format_duration(us) == text
