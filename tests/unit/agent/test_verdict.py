"""What the agent does after a push."""

import pytest

from isochrone_agent.verdict import Backoff, Reaction, react


@pytest.mark.parametrize(
    ("status", "reaction"),
    [
        ("OK", Reaction.STORED),
        ("UNAVAILABLE", Reaction.RETRY),
        ("DEADLINE_EXCEEDED", Reaction.RETRY),
        ("RESOURCE_EXHAUSTED", Reaction.RETRY),
        ("INTERNAL", Reaction.RETRY),
        ("INVALID_ARGUMENT", Reaction.SET_ASIDE),
        ("UNAUTHENTICATED", Reaction.STOP),
        ("UNIMPLEMENTED", Reaction.STOP),
    ],
)
def test_the_verdict_table(status: str, reaction: Reaction) -> None:
    """Each status has its reaction; what is unknown is retried, because waiting loses nothing."""
    assert react(status) is reaction


def test_waits_double_to_a_minute_with_full_jitter() -> None:
    """The ceiling goes 1, 2, 4 … 60 s, the wait is anywhere below it, and a healthy push starts over."""
    backoff = Backoff()
    ceilings = [backoff.next_wait_us(1.0) // 1_000_000 for _ in range(8)]
    assert ceilings == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff.next_wait_us(0.0) == 0
    backoff.reset()
    assert backoff.next_wait_us(1.0) == 1_000_000
