"""Budgets: no round starts that could exceed a limit, and none is refused that fits."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_agent.plan import budget
from isochrone_agent.plan.budget import BudgetTracker, Cost, budget_of, exceeded_limit, max_round_cost, spend_of
from isochrone_wire.model import (
    DAY_US,
    Budget,
    Outcome,
    Price,
    Quality,
    Sample,
    Spend,
    Target,
    TokenSource,
    Workload,
    day_of,
)

# 8 prompt tokens and 192 of the answer: 200 tokens, and 0.001 USD at most.
WORKLOAD = Workload(prompt="x" * 32, max_output_tokens=192)
PRICE = Price(usd_per_m_input=5.0, usd_per_m_output=5.0)
TARGET = Target(id=7, name="p/m", provider="p", model="m", base_url="http://x", workload=WORKLOAD, price=PRICE)
NOON = 20_000 * DAY_US + DAY_US // 2
OK = Sample(
    target_id=7, round_at=NOON, dispatched_at=NOON, outcome=Outcome.OK, prompt_tokens=8, output_tokens=50, cost_usd=0.1
)

UNCOUNTED = replace(OK, cost_usd=None, prompt_tokens=None, output_tokens=None)
MOST = {"usd": 0.001, "tokens": 200, "requests": 1}
CONNECT_US = WORKLOAD.timeouts.connect_us


def make_tracker(*budgets: Budget, spent: Spend | None = None) -> BudgetTracker:
    made = BudgetTracker("sg-1")
    made.budgets = budgets
    made.record([spent] if spent else [])
    return made


@pytest.mark.parametrize(
    ("target", "most"),
    [
        (TARGET, Cost(usd=0.001, tokens=200, requests=1)),
        (replace(TARGET, price=None), Cost(usd=0.0, tokens=200, requests=1)),
        (replace(TARGET, workload=replace(WORKLOAD, concurrency=8)), Cost(usd=0.008, tokens=1600, requests=8)),
        (replace(TARGET, workload=replace(WORKLOAD, prompt="语" * 32)), Cost(usd=0.00108, tokens=216, requests=1)),
        (
            replace(TARGET, dialect="anthropic", workload=replace(WORKLOAD, reasoning_effort="high")),
            Cost(usd=0.08292, tokens=16_584, requests=1),
        ),
    ],
)
def test_the_most_that_a_round_costs(target: Target, most: Cost) -> None:
    """Every stream may use its whole answer and its effort; three bytes of UTF-8 per character count as more tokens."""
    found = max_round_cost(target)
    assert (found.tokens, found.requests) == (most.tokens, most.requests)
    assert found.usd == pytest.approx(most.usd)


@pytest.mark.parametrize(
    ("limits", "used", "named"),
    [
        ({"usd_per_day": 1.0}, Cost(usd=0.999), None),
        ({"usd_per_day": 1.0}, Cost(usd=0.9991), "usd_per_day of p is 1:"),
        ({"usd_per_day": 0.0}, Cost(), "usd_per_day"),
        ({"tokens_per_day": 1000}, Cost(tokens=800), None),
        ({"tokens_per_day": 1000}, Cost(tokens=801), "tokens_per_day of p is 1000: 801 used, this round may use 200"),
        ({"requests_per_day": 3}, Cost(requests=2), None),
        ({"requests_per_day": 3}, Cost(requests=3), "requests_per_day of p is 3: 3 used, this round may use 1"),
        ({"requests_per_day": 3, "usd_per_day": 9.0}, Cost(requests=3, usd=1.0), "requests_per_day"),
        ({"requests_per_day": 3, "usd_per_day": 9.0}, Cost(requests=1, usd=9.0), "usd_per_day"),
    ],
)
def test_a_limit_is_reached_and_not_passed(limits: dict[str, float], used: Cost, named: str | None) -> None:
    """A round that would exceed a limit is refused with the name of the limit; one that reaches it exactly is not."""
    budget = Budget(provider="p", **limits)  # type: ignore[arg-type]  # a table of limits
    said = exceeded_limit(max_round_cost(TARGET), used=used, budget=budget)
    assert said == named if named is None else (said or "").startswith(named)


def test_ten_dimes_are_a_dollar() -> None:
    """Rounding errors of floats refuse no round that fits."""
    spent = sum([0.1] * 9)
    assert exceeded_limit(Cost(usd=0.1), used=Cost(usd=spent), budget=Budget(provider="p", usd_per_day=1.0)) is None
    assert (
        exceeded_limit(Cost(usd=0.1), used=Cost(usd=0.3 - 0.1 + 1e-15), budget=Budget(provider="p", usd_per_day=0.3))
        is None
    )


@pytest.mark.parametrize(("vantage", "limit"), [("sg-1", 1), ("us-1", 5), ("", 5)])
def test_a_vantages_own_budget_goes_first(vantage: str, limit: int) -> None:
    """A vantage's own budget replaces the one for all vantages; other vantages do not have it."""
    budgets = (
        Budget(provider="q", requests_per_day=0),
        Budget(provider="p", requests_per_day=5),
        Budget(provider="p", vantage="sg-1", requests_per_day=1),
    )
    found = budget_of(budgets, provider="p", vantage=vantage)
    assert found is not None
    assert found.requests_per_day == limit
    assert budget_of(budgets, provider="r", vantage=vantage) is None


def test_what_is_in_flight_counts() -> None:
    """Concurrent rounds cannot together exceed a limit that each alone would keep."""
    tracker = make_tracker(Budget(provider="p", tokens_per_day=500))
    for _ in range(2):
        assert tracker.refusal(TARGET, NOON) is None
        tracker.begin(TARGET)
    assert "400 used" in (tracker.refusal(TARGET, NOON) or "")
    tracker.end(TARGET, [OK])
    assert tracker.refusal(TARGET, NOON) is None
    tracker.end(TARGET, [replace(OK, outcome=Outcome.SKIPPED_NOT_READY)])
    assert tracker.refusal(TARGET, NOON) is None


def test_a_restart_remembers_and_a_new_day_does_not() -> None:
    """Spend counts until midnight UTC, over restarts, steps back across it, and rounds dated days ahead."""
    spent = Spend(provider="p", day_at=day_of(NOON), requests=3)
    tracker = make_tracker(Budget(provider="p", requests_per_day=3), spent=spent)
    midnight = day_of(NOON) + DAY_US
    assert tracker.refusal(TARGET, NOON)
    assert tracker.refusal(TARGET, midnight - 1)
    assert tracker.refusal(TARGET, midnight) is None
    tracker = make_tracker(
        Budget(provider="p", requests_per_day=3), spent=Spend(provider="p", day_at=day_of(NOON), requests=3)
    )
    tracker.record([Spend(provider="p", day_at=day_of(NOON) + DAY_US, requests=1)])
    assert tracker.refusal(TARGET, NOON)
    today = Spend(provider="p", day_at=day_of(NOON), requests=3)
    tracker = make_tracker(Budget(provider="p", requests_per_day=3), spent=today)
    tracker.record([Spend(provider="p", day_at=day_of(NOON) + 3 * DAY_US, requests=1)])
    assert tracker.refusal(TARGET, NOON)


def test_the_least_recent_totals_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The totals do not grow without bound."""
    monkeypatch.setattr(budget, "_MAX_TOTALS", 10)
    tracker = make_tracker()
    for day in range(100):
        tracker.record([Spend(provider="p", day_at=day * DAY_US, requests=1)])
    assert [day // DAY_US for _, day in tracker._spent] == list(range(90, 100))


@pytest.mark.parametrize(
    ("sample", "spend"),
    [
        (OK, {"usd": 0.1, "tokens": 58, "requests": 1}),
        (replace(OK, cost_usd=None, prompt_tokens=None), {"usd": 58 * 5e-6, "tokens": 58, "requests": 1}),
        (
            replace(OK, cost_usd=None, prompt_tokens=None, token_source=TokenSource.ESTIMATED),
            {"usd": 0.001, "tokens": 200, "requests": 1},
        ),
        (
            replace(OK, output_tokens=300, token_source=TokenSource.ESTIMATED),
            {"usd": 0.1, "tokens": 308, "requests": 1},
        ),
        (replace(UNCOUNTED, outcome=Outcome.TIMED_OUT), {"usd": 0.001, "tokens": 200, "requests": 1}),
        (replace(UNCOUNTED, outcome=Outcome.HTTP_ERROR, http_status=502), MOST),
        (
            replace(UNCOUNTED, outcome=Outcome.TIMED_OUT, timeout_us=CONNECT_US, quality=Quality.REUSED),
            MOST,
        ),
        (replace(UNCOUNTED, outcome=Outcome.CONNECT_FAILED, timeout_us=CONNECT_US), {"requests": 1}),
        (replace(UNCOUNTED, outcome=Outcome.CONNECT_FAILED), {"requests": 1}),
        (replace(UNCOUNTED, outcome=Outcome.SKIPPED_NOT_READY, timeout_us=CONNECT_US), MOST),
        (replace(UNCOUNTED, outcome=Outcome.THROTTLED, http_status=429), {"requests": 1}),
        *((replace(OK, outcome=skip), {}) for skip in Outcome if skip.skipped),
        (replace(OK, outcome=Outcome.TIMED_OUT, quality=Quality.BLOCKED), {}),
    ],
)
def test_what_a_sample_has_cost(sample: Sample, spend: dict[str, float]) -> None:
    """A request counts with its maximum where its tokens are unknown; a round without a request costs nothing."""
    found = spend_of(sample, TARGET)
    assert replace(found, usd=0.0) == Spend(provider="p", day_at=day_of(NOON), **(spend | {"usd": 0.0}))  # type: ignore[arg-type]  # as above
    assert found.usd == pytest.approx(spend.get("usd", 0.0))


@pytest.mark.parametrize("streams", [1, 3])
def test_a_reservation_is_taken_back_by_the_samples(streams: int) -> None:
    """The reservation is released when all samples are recorded; each charge belongs to the day of its dispatch."""
    burst = replace(TARGET, workload=replace(WORKLOAD, concurrency=streams))
    tracker = make_tracker(Budget(provider="p", requests_per_day=9))
    [reserved] = tracker.reservation(burst, NOON - DAY_US)
    assert reserved.requests == streams
    for samples in ([OK] * streams, [replace(OK, outcome=Outcome.SKIPPED_NOT_READY)]):
        settled = tracker.settle(samples, target=burst, reserved=[reserved])
        assert [charge for charge, _ in settled] == [spend_of(sample, burst) for sample in samples]
        assert {taken.day_at for _, taken in settled} == {reserved.day_at}
        assert -sum(taken.tokens for _, taken in settled) == reserved.tokens
        assert -sum(taken.requests for _, taken in settled) == reserved.requests
        assert -sum(taken.usd for _, taken in settled) == pytest.approx(reserved.usd)
    assert make_tracker().reservation(burst, NOON) == ()


def test_what_is_known_already_is_not_counted_twice() -> None:
    """Restored totals add only the spend that is not recorded yet."""
    tracker = make_tracker(
        Budget(provider="p", requests_per_day=3), spent=Spend(provider="p", day_at=day_of(NOON), requests=1)
    )
    tracker.restore([Spend(provider="p", day_at=day_of(NOON), requests=2)])
    assert tracker.refusal(TARGET, NOON) is None
    tracker.record([Spend(provider="p", day_at=day_of(NOON), requests=1)])
    assert tracker.refusal(TARGET, NOON)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 200)), max_size=60), st.integers(0, 3000))
def test_no_order_of_events_passes_a_limit(events: list[tuple[bool, int]], limit: int) -> None:
    """In any order of rounds, with answers of any length, the tokens of the day stay within the limit."""
    tracker, open_rounds, spent = make_tracker(Budget(provider="p", tokens_per_day=limit)), 0, 0
    for begins, tokens in events:
        if begins and tracker.refusal(TARGET, NOON) is None:
            tracker.begin(TARGET)
            open_rounds += 1
        elif not begins and open_rounds:
            tracker.end(TARGET, [replace(OK, prompt_tokens=0, output_tokens=tokens)])
            open_rounds -= 1
            spent += tokens
    assert spent + 200 * open_rounds <= max(limit, 0)
