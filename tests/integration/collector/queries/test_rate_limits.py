"""Rate limits of pushed samples, over gRPC and HTTP."""

import time
from dataclasses import replace

import grpc
import pytest

from fixtures.collector import Collector
from isochrone_wire.answers import Selection, Window
from isochrone_wire.insights import Exhaustion
from isochrone_wire.model import SECOND_US, Batch, Outcome, RateLimit, Sample, Vantage

PLAN = """{baseline: us, every: 10s, targets: [
    {provider: p, model: m, base_url: 'http://h', credential: team-key}, {provider: p, model: other, base_url: 'http://h'}
]}"""
ROUNDS = 40


@pytest.fixture(scope="module")
def window(shared_collector: Collector) -> Window:
    """Forty rounds of a target from two vantages: requests fall by five a round at one, and tokens stay the same."""
    call = shared_collector.call
    call.apply(PLAN)
    target, other = call.targets().targets
    from_at = time.time_ns() // 1000 // (100 * SECOND_US) * (100 * SECOND_US) - 1_000 * SECOND_US
    plain = Sample(target_id=target.id, round_at=from_at, outcome=Outcome.OK, dispatched_at=from_at)
    for place, name in enumerate(("us-limits-1", "us-limits-2")):
        samples = [
            replace(
                plain,
                round_at=(at := from_at + n * 10 * SECOND_US),
                dispatched_at=at,
                ratelimit=RateLimit(
                    limit_requests=500,
                    remaining_requests=400 if place else 450 - 5 * n,
                    limit_tokens=None if place else 9_000,
                    remaining_tokens=None if place else 8_000,
                    reset_tokens_us=100_000,
                ),
            )
            for n in range(ROUNDS)
        ]
        silent = replace(plain, target_id=other.id)
        batch = Batch(vantage=Vantage(name=name, region="us-limits"), epoch=1, seq=1, samples=(*samples, silent))
        assert call.push(batch).stored == ROUNDS + 1
    return Window(from_at=from_at, until_at=from_at + ROUNDS * 10 * SECOND_US)


def test_limits_have_history_and_forecast(shared_collector: Collector, window: Window) -> None:
    """Each vantage and kind has its newest headers, its lowest levels over time and a forecast; others have none."""
    answer = shared_collector.call.rate_limits(Selection(window=window, regions=("us-limits",)), points=4)
    falling, tokens, level = answer.limits
    assert [(one.vantage, one.kind, one.credential) for one in answer.limits] == [
        ("us-limits-1", "requests", "team-key"),
        ("us-limits-1", "tokens", "team-key"),
        ("us-limits-2", "requests", "team-key"),
    ]
    assert (falling.remaining, falling.limit, falling.lowest, falling.n) == (255, 500, 255, ROUNDS)
    assert falling.newest_at == window.until_at - 10 * SECOND_US
    assert falling.exhaustion is Exhaustion.EXPECTED
    assert falling.exhausted_at == falling.newest_at + 51 * 10 * SECOND_US
    assert falling.per_minute == pytest.approx(-30)
    assert len(falling.points) <= 4
    assert falling.points[-1].remaining == 255
    assert (tokens.remaining, tokens.reset_us, tokens.exhaustion) == (8_000, 100_000, Exhaustion.NOT_EXPECTED)
    assert (level.remaining, level.exhaustion) == (400, Exhaustion.NOT_EXPECTED)


def test_a_window_without_headers_has_no_limits(shared_collector: Collector, window: Window) -> None:
    """Without such headers, or before, there are no limits; more points than a series may have are refused."""
    assert shared_collector.call.rate_limits(Selection(window=window, targets=("p/other",))).limits == ()
    before = Window(from_at=window.from_at - 2_000 * SECOND_US, until_at=window.from_at)
    assert shared_collector.call.rate_limits(Selection(window=before)).limits == ()
    with pytest.raises(grpc.RpcError) as refused:
        shared_collector.call.rate_limits(Selection(window=window), points=501)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
