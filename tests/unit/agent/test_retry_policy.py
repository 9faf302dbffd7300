"""The agent's reactions to the result of a push."""

import pytest

from isochrone_agent.push_client import Backoff, RetryAction, action_for, spread_delay_us


@pytest.mark.parametrize(
    ("status", "details", "reaction"),
    [
        ("OK", "", RetryAction.STORED),
        ("UNAVAILABLE", "", RetryAction.RETRY),
        ("DEADLINE_EXCEEDED", "", RetryAction.RETRY),
        ("INTERNAL", "", RetryAction.RETRY),
        ("ABORTED", "", RetryAction.RETRY),
        ("UNKNOWN", "", RetryAction.RETRY),
        ("RESOURCE_EXHAUSTED", "too many at once", RetryAction.SLOW_DOWN),
        ("RESOURCE_EXHAUSTED", "CLIENT: Sent message larger than max (9 vs. 8)", RetryAction.SPLIT),
        ("RESOURCE_EXHAUSTED", "SERVER: Received message larger than max (9 vs. 8)", RetryAction.SPLIT),
        ("RESOURCE_EXHAUSTED", "SERVER: Decompressed message larger than max (9 vs. 8)", RetryAction.SPLIT),
        ("INVALID_ARGUMENT", "", RetryAction.SPLIT),
        ("OUT_OF_RANGE", "", RetryAction.SPLIT),
        ("ALREADY_EXISTS", "", RetryAction.RENUMBER),
        ("UNAUTHENTICATED", "", RetryAction.STOP),
        ("PERMISSION_DENIED", "", RetryAction.STOP),
        ("FAILED_PRECONDITION", "", RetryAction.STOP),
        ("UNIMPLEMENTED", "", RetryAction.STOP),
    ],
)
def test_the_verdict_table(status: str, details: str, reaction: RetryAction) -> None:
    """Each status has its reaction; an unknown status is retried, because waiting loses nothing."""
    assert action_for(status, details) is reaction


def test_waits_double_to_ten_seconds_with_full_jitter() -> None:
    """The ceiling is 1, 2, 4, 8, 10 s, the wait is between 0 and the ceiling, and a success resets it to 1 s."""
    backoff = Backoff()
    ceilings = [backoff.next_wait_us((), 1.0) // 1_000_000 for _ in range(6)]
    assert ceilings == [1, 2, 4, 8, 10, 10]
    assert backoff.next_wait_us((), 0.0) == 0
    backoff.reset()
    assert backoff.next_wait_us((), 1.0) == 1_000_000


@pytest.mark.parametrize(
    ("metadata", "waits_us"),
    [
        ((), (0, 500_000)),
        ((("other", "1"), ("grpc-retry-pushback-ms", "250")), (250_000, 375_000)),
        ((("grpc-retry-pushback-ms", "-1"),), (0, 500_000)),
        ((("grpc-retry-pushback-ms", "soon"),), (0, 500_000)),
        ((("grpc-retry-pushback-ms", "99999999"),), (300_000_000, 450_000_000)),
    ],
)
def test_a_stated_delay_is_spread_and_limited(metadata: tuple[tuple[str, str], ...], waits_us: tuple[int, int]) -> None:
    """A delay in milliseconds is used, from once to twice, and ten minutes at most."""
    assert tuple(Backoff().next_wait_us(metadata, chance) for chance in (0.0, 0.5)) == waits_us
    assert spread_delay_us(-1, 0.5) == 0
