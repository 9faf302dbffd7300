"""The forecast of a rate limit's exhaustion."""

import random

import pytest

from isochrone_collector.analysis.rate_limits import Reading, forecast, since_refill
from isochrone_wire.insights import Exhaustion
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US
from testdata.columns import present

BEGIN_AT = 1_795_248_000_000_000


def readings(
    remaining: list[int], *, every_us: int = 10 * SECOND_US, limit: int | None = 500, **resets: int
) -> list[Reading]:
    """Return readings at equal distances. With `reset_at` the reset stays the same, with `reset_us` it moves along."""

    def reset_us(at: int) -> int | None:
        return resets["reset_at"] - at if "reset_at" in resets else resets.get("reset_us")

    instants = [BEGIN_AT + place * every_us for place in range(len(remaining))]
    return [
        Reading(at=at, remaining=left, limit=limit, reset_us=reset_us(at))
        for at, left in zip(instants, remaining, strict=True)
    ]


def test_a_steady_fall_ends_when_nothing_remains() -> None:
    """Ten requests in ten seconds use 300 up in 300, unless the window of the provider ends before."""
    found = forecast(readings(list(range(400, 299, -10))))
    at = BEGIN_AT + 100 * SECOND_US + 300 * SECOND_US
    assert found.exhaustion is Exhaustion.EXPECTED
    assert (found.exhausted_low_at, found.exhausted_at, found.exhausted_high_at) == (at, at, at)
    assert found.per_minute == pytest.approx(-60)
    assert found.readings == 11
    fall = list(range(400, 299, -10))
    end_at = BEGIN_AT + 400 * SECOND_US
    assert forecast(readings(fall, reset_at=end_at - SECOND_US)).exhaustion is Exhaustion.NOT_EXPECTED
    assert forecast(readings(fall, reset_at=end_at + SECOND_US)).exhaustion is Exhaustion.EXPECTED


def test_a_reset_that_moves_along_does_not_prevent_it() -> None:
    """The time until a bucket would be full without requests is no refill: the fall goes on."""
    assert forecast(readings(list(range(400, 299, -10)), reset_us=2 * SECOND_US)).exhaustion is Exhaustion.EXPECTED


@pytest.mark.parametrize("level", [[499] * 20, [499, 498, 499, 500] * 6, list(range(300, 420, 5))])
def test_a_limit_that_refills_as_fast_is_not_expected_to_end(level: list[int]) -> None:
    """A level that stays or rises is not expected to reach zero, and has no instant or only an early one."""
    found = forecast(readings(level, reset_us=SECOND_US))
    assert found.exhaustion is Exhaustion.NOT_EXPECTED
    assert found.exhausted_high_at is None


def test_only_the_readings_since_the_refill_count() -> None:
    """A rise to the limit begins a new window, one of a few does not; nothing left is exhausted, by one reading."""
    window = [500 - 20 * place for place in range(20)]
    assert [one.remaining for one in since_refill(readings([*window, *window[:7]]))] == window[:7]
    trembling = [500 - 20 * place + (30 if place % 3 == 0 else 0) for place in range(20)]
    assert len(since_refill(readings(trembling))) == 20
    assert forecast(readings([*window, 500, 480, 460])).exhaustion is Exhaustion.UNKNOWN
    found = forecast(readings([0]))
    assert (found.exhaustion, found.exhausted_at, found.readings) == (Exhaustion.EXHAUSTED, BEGIN_AT, 1)


def test_a_noisy_fall_is_possible_and_has_no_latest_instant() -> None:
    """A fall that is not certain has no latest instant; beyond a day, or at one instant, nothing is forecast."""
    chance = random.Random(5)
    level = [60 + round(chance.gauss(0, 30)) - place for place in range(12)]
    found = forecast(readings(level))
    assert found.exhaustion is Exhaustion.POSSIBLE
    assert found.exhausted_low_at is not None
    assert found.exhausted_high_at is None
    assert present(found.per_minute_low) < 0 < present(found.per_minute_high)
    slow = forecast(readings([100_000 - place for place in range(20)], every_us=MINUTE_US, limit=None))
    assert (slow.exhaustion, slow.exhausted_at) == (Exhaustion.NOT_EXPECTED, None)
    within = forecast(readings([1_300 - place for place in range(20)], every_us=MINUTE_US, limit=None))
    assert within.exhaustion is Exhaustion.EXPECTED
    assert present(within.exhausted_at) < BEGIN_AT + 20 * MINUTE_US + DAY_US
    assert forecast(readings([9, 8, 7, 6, 5, 4], every_us=0)).exhaustion is Exhaustion.UNKNOWN


def test_the_interval_covers_the_true_rate() -> None:
    """Over 400 falls with noise the 95 % interval contains the true change per minute in 92 to 98 % of them."""
    chance = random.Random(20261123)
    covered = 0
    for _ in range(400):
        noisy = [round(10_000 - 40 * place + chance.gauss(0, 60)) for place in range(30)]
        found = forecast(readings(noisy, limit=None))
        covered += present(found.per_minute_low) <= -240 <= present(found.per_minute_high)
    assert 0.92 <= covered / 400 <= 0.98
