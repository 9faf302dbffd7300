"""Throughput of bursts, checked against data with a known answer."""

import pytest

from isochrone_agent.cli.burst import summarise
from isochrone_wire.model import Outcome, Sample


def stream(
    *, dispatched_at: int = 0, e2e_us: int = 1_000_000, tokens: int = 100, outcome: Outcome = Outcome.OK
) -> Sample:
    return Sample(
        target_id=1,
        round_at=0,
        outcome=outcome,
        dispatched_at=dispatched_at,
        tcp_us=0,
        ttft_us=e2e_us // 10,
        e2e_us=e2e_us,
        output_tokens=tokens,
        tokens_per_second=tokens / (e2e_us / 1e6),
    )


def test_throughput_is_over_the_whole_burst() -> None:
    """Four streams of 100 tokens, the last of which ends 2 s after the first was sent, have 200 tokens/s in total."""
    burst = summarise([stream(), stream(), stream(), stream(dispatched_at=1_000_000)])
    assert (burst.streams, burst.succeeded) == (4, 4)
    assert burst.tokens_per_second == pytest.approx(200)
    assert burst.median_tokens_per_second == pytest.approx(100)


def test_failures_are_counted_and_give_no_tokens() -> None:
    """A throttled stream counts as a stream of the burst, and adds no tokens to its throughput."""
    burst = summarise([stream(), stream(outcome=Outcome.THROTTLED)])
    assert (burst.streams, burst.succeeded) == (2, 1)
    assert burst.tokens_per_second == pytest.approx(100)


def test_a_burst_without_success_has_no_figures() -> None:
    """A burst in which every stream failed has no figures."""
    burst = summarise([stream(outcome=Outcome.HTTP_ERROR)])
    assert (burst.tokens_per_second, burst.ttft_median_us, burst.ttft_max_us) == (None, None, None)
