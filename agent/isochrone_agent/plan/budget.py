"""Budgets: what one vantage may spend with one provider in one day (UTC), and whether a round still fits. Pure.

The laws:

1. A round is begun only if what was spent today, the most that rounds in flight may cost and the most that it may cost
   itself stay within every limit. Reaching a limit is within it.
2. Before it is sent a request is taken to cost its most, as `isochrone_wire.request_estimate` has it: all of
   `max_output_tokens`, the room to think that the effort adds to them, and a prompt token for every four bytes.
   Afterwards it has cost what the provider counted; a count that nobody knows stays at its most, unless nothing was
   sent or the provider refused (4xx).
3. A vantage's own budget with a provider takes the place of the one for every vantage.
4. A request belongs to the day in which it was dispatched. A new day begins with nothing spent.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from isochrone_wire.model import DAY_US, Budget, Outcome, Quality, Sample, Spend, Target, TokenSource, day_of
from isochrone_wire.request_estimate import estimate_request

_REFUSED = range(400, 500)
# Sums of floats are not exact; a millionth of a cent is.
_ROUNDING_USD = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """An amount of everything that a budget limits."""

    usd: float = 0.0
    tokens: int = 0
    requests: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(
            usd=self.usd + other.usd, tokens=self.tokens + other.tokens, requests=self.requests + other.requests
        )

    def __sub__(self, other: "Cost") -> "Cost":
        """What is left of this without the other."""
        return Cost(
            usd=self.usd - other.usd, tokens=self.tokens - other.tokens, requests=self.requests - other.requests
        )


ZERO_COST = Cost()


def max_round_cost(target: Target) -> Cost:
    """The most that one round of `target` costs, all its streams together. Without a price the money counts as none."""
    streams = target.workload.concurrency
    most = estimate_request(target)
    usd = most.cost_usd(target.price) if target.price else 0.0
    return Cost(usd=usd * streams, tokens=most.tokens * streams, requests=streams)


def spend_of(sample: Sample, target: Target) -> Spend:
    """What a request of `target` is charged, by its sample; nothing where nothing was sent."""
    day_at = day_of(sample.dispatched_at)
    if sample.outcome.skipped:
        return Spend(provider=target.provider, day_at=day_at)
    prompt_tokens, output_tokens = _charged_tokens(sample, target)
    known = sample.cost_usd is not None and (prompt_tokens, output_tokens) == (
        sample.prompt_tokens,
        sample.output_tokens,
    )
    usd = sample.cost_usd if known else _price_usd(target, prompt_tokens, output_tokens)
    return Spend(
        provider=target.provider, day_at=day_at, usd=usd or 0.0, tokens=prompt_tokens + output_tokens, requests=1
    )


def settle(samples: Sequence[Sample], *, target: Target, reserved: Spend | None) -> list[tuple[Spend, ...]]:
    """For each sample of a round what to add to the account when it is recorded: what it is charged, and the share of
    what was `reserved` for the round, taken back.
    """
    charges = [spend_of(sample, target) for sample in samples]
    if reserved is None:
        return [(charge,) for charge in charges]
    return [(charge, _released_share(reserved, n, len(charges))) for n, charge in enumerate(charges)]


def _released_share(reserved: Spend, number: int, count: int) -> Spend:
    """The share of one of `count` samples, by its number from 0; the first has what does not divide."""
    tokens, requests = (
        whole // count + (0 if number else whole % count) for whole in (reserved.tokens, reserved.requests)
    )
    return replace(reserved, usd=-reserved.usd / count, tokens=-tokens, requests=-requests)


def _price_usd(target: Target, prompt_tokens: int, output_tokens: int) -> float:
    return target.price.cost_usd(prompt_tokens=prompt_tokens, output_tokens=output_tokens) if target.price else 0.0


def _charged_tokens(sample: Sample, target: Target) -> tuple[int, int]:
    prompt_tokens, output_tokens = sample.prompt_tokens, sample.output_tokens
    if _cannot_be_billed_more(sample, target):
        return prompt_tokens or 0, output_tokens or 0
    most = estimate_request(target)
    if output_tokens is None or sample.token_source is TokenSource.ESTIMATED:
        # What we saw is an estimate, and reasoning may be hidden behind it.
        output_tokens = max(output_tokens or 0, most.output_tokens)
    return most.prompt_tokens if prompt_tokens is None else prompt_tokens, output_tokens


def _cannot_be_billed_more(sample: Sample, target: Target) -> bool:
    """Whether a provider cannot have worked for this request, or has said that it will not."""
    if sample.http_status is not None:
        return sample.http_status in _REFUSED
    # A limit that was hit while connecting; on a connection that was kept there is nothing to connect.
    unconnected = sample.tcp_us is None and Quality.REUSED not in sample.quality
    late = sample.outcome is Outcome.TIMED_OUT and sample.timeout_us == target.workload.timeouts.connect_us
    return sample.outcome is Outcome.CONNECT_FAILED or (late and unconnected)


def budget_of(budgets: Iterable[Budget], *, provider: str, vantage: str) -> Budget | None:
    """The budget that holds for a vantage at a provider: its own, else the one for every vantage, else none."""
    found = {budget.vantage: budget for budget in budgets if budget.provider == provider}
    return found.get(vantage) or found.get(None)


def exceeded_limit(most: Cost, *, used: Cost, budget: Budget | None) -> str | None:
    """Why a round that costs `most` does not fit beside what is `used`, spent or in flight; `None` when it does."""
    if budget is None:
        return None
    limits = (
        ("usd_per_day", used.usd, most.usd, budget.usd_per_day, _ROUNDING_USD),
        ("tokens_per_day", used.tokens, most.tokens, budget.tokens_per_day, 0),
        ("requests_per_day", used.requests, most.requests, budget.requests_per_day, 0),
    )
    for name, so_far, more, limit, tolerance in limits:
        if limit is not None and so_far + more > limit + tolerance:
            return f"{name} of {budget.provider} is {limit:.10g}: {so_far:.10g} used, this round may take {more:.10g}"
    return None


class BudgetTracker:
    """What one vantage has spent, per provider and day, and what its rounds in flight may cost."""

    def __init__(self, vantage: str) -> None:
        self.budgets: Sequence[Budget] = ()
        self._vantage = vantage
        self._spent: dict[tuple[str, int], Cost] = {}
        self._in_flight: dict[str, Cost] = {}

    def record(self, spends: Iterable[Spend]) -> None:
        """Count what was spent. Days long past are forgotten."""
        for spend in spends:
            key = (spend.provider, spend.day_at)
            more = Cost(usd=spend.usd, tokens=spend.tokens, requests=spend.requests)
            self._spent[key] = self._spent.get(key, ZERO_COST) + more
            # A clock that is set back an hour may come back to yesterday.
            self._spent = {known: cost for known, cost in self._spent.items() if known[1] >= spend.day_at - DAY_US}

    def restore(self, spends: Iterable[Spend]) -> None:
        """Take up an account that was kept elsewhere, which may have what is known here already."""
        for spend in spends:
            known = self._spent.get((spend.provider, spend.day_at), ZERO_COST)
            self.record(
                [
                    replace(
                        spend,
                        usd=max(spend.usd - known.usd, 0.0),
                        tokens=max(spend.tokens - known.tokens, 0),
                        requests=max(spend.requests - known.requests, 0),
                    )
                ]
            )

    def has_budget(self, target: Target) -> bool:
        """Whether any budget holds for `target`."""
        return self._budget(target) is not None

    def refusal(self, target: Target, now_at: int) -> str | None:
        """Why a round of `target` may not be begun at `now_at`, naming the limit; `None` when it may."""
        return exceeded_limit(
            max_round_cost(target), used=self._used(target.provider, now_at), budget=self._budget(target)
        )

    def reservation(self, target: Target, now_at: int) -> Spend | None:
        """What to write down before a round of `target` is sent at `now_at`; `None` where no budget holds."""
        if not self.has_budget(target):
            return None
        most = max_round_cost(target)
        return Spend(
            provider=target.provider, day_at=day_of(now_at), usd=most.usd, tokens=most.tokens, requests=most.requests
        )

    def begin(self, target: Target) -> None:
        """A round of `target` is in flight."""
        self._in_flight[target.provider] = self._in_flight.get(target.provider, ZERO_COST) + max_round_cost(target)

    def end(self, target: Target, samples: Iterable[Sample]) -> None:
        """It has ended, in these samples."""
        self._in_flight[target.provider] -= max_round_cost(target)
        self.record(spend_of(sample, target) for sample in samples)

    def _budget(self, target: Target) -> Budget | None:
        return budget_of(self.budgets, provider=target.provider, vantage=self._vantage)

    def _used(self, provider: str, now_at: int) -> Cost:
        in_flight = self._in_flight.get(provider, ZERO_COST)
        return self._spent.get((provider, day_of(now_at)), ZERO_COST) + in_flight
