"""Budgets: what one vantage may spend with one provider in one day (UTC), and whether a round still fits. Pure.

The laws:

1. A round is begun only if what was spent today, the most that rounds in flight may cost and the most that it may cost
   itself stay within every limit. Reaching a limit is within it.
2. Before it is sent a request is taken to cost its most: all of `max_output_tokens`, and a prompt token for every four
   bytes. Afterwards it has cost what its sample says.
3. A vantage's own budget with a provider takes the place of the one for every vantage.
4. A request belongs to the day in which it was dispatched. A new day begins with nothing spent.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isochrone_wire.model import DAY_US, Budget, Sample, Spend, Target

_BYTES_PER_TOKEN = 4
# Sums of floats are not exact; a millionth of a cent is.
_DUST_USD = 1e-8


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


NOTHING = Cost()


def day_of(at: int) -> int:
    """When the day (UTC) of an instant began, both in microseconds since the epoch."""
    return at - at % DAY_US


def most_of_round(target: Target) -> Cost:
    """The most that one round of `target` costs, all its streams together. Without a price the money counts as none."""
    workload, streams = target.workload, target.workload.concurrency
    prompt_tokens = -(-len(workload.prompt.encode()) // _BYTES_PER_TOKEN)
    output_tokens = workload.max_output_tokens
    usd = target.price.cost_usd(prompt_tokens=prompt_tokens, output_tokens=output_tokens) if target.price else 0.0
    return Cost(usd=usd * streams, tokens=(prompt_tokens + output_tokens) * streams, requests=streams)


def spend_of(sample: Sample, provider: str) -> Spend:
    """What a sample says that its request has cost; nothing where nothing was sent."""
    day_at = day_of(sample.dispatched_at)
    if sample.outcome.skipped:
        return Spend(provider=provider, day_at=day_at)
    tokens = (sample.prompt_tokens or 0) + (sample.output_tokens or 0)
    return Spend(provider=provider, day_at=day_at, usd=sample.cost_usd or 0.0, tokens=tokens, requests=1)


def budget_of(budgets: Iterable[Budget], *, provider: str, vantage: str) -> Budget | None:
    """The budget that holds for a vantage at a provider: its own, else the one for every vantage, else none."""
    found = {budget.vantage: budget for budget in budgets if budget.provider == provider}
    return found.get(vantage) or found.get(None)


def verdict(most: Cost, *, used: Cost, budget: Budget | None) -> str | None:
    """Why a round that costs `most` does not fit beside what is `used`, spent or in flight; `None` when it does."""
    if budget is None:
        return None
    limits = (
        ("usd_per_day", used.usd, most.usd, budget.usd_per_day, _DUST_USD),
        ("tokens_per_day", used.tokens, most.tokens, budget.tokens_per_day, 0),
        ("requests_per_day", used.requests, most.requests, budget.requests_per_day, 0),
    )
    for name, so_far, more, limit, dust in limits:
        if limit is not None and so_far + more > limit + dust:
            return f"{name} of {budget.provider} is {limit:.10g}: {so_far:.10g} used, this round may take {more:.10g}"
    return None


class Ledger:
    """What one vantage has spent, per provider and day, and what its rounds in flight may cost."""

    def __init__(self, vantage: str) -> None:
        self.budgets: Sequence[Budget] = ()
        self._vantage = vantage
        self._spent: dict[tuple[str, int], Cost] = {}
        self._in_flight: dict[str, Cost] = {}

    def note(self, spends: Iterable[Spend]) -> None:
        """Count what was spent. Days long past are forgotten."""
        for spend in spends:
            key = (spend.provider, spend.day_at)
            more = Cost(usd=spend.usd, tokens=spend.tokens, requests=spend.requests)
            self._spent[key] = self._spent.get(key, NOTHING) + more
            # A clock that is set back an hour may come back to yesterday.
            self._spent = {known: cost for known, cost in self._spent.items() if known[1] >= spend.day_at - DAY_US}

    def refusal(self, target: Target, now_at: int) -> str | None:
        """Why a round of `target` may not be begun at `now_at`, naming the limit; `None` when it may."""
        budget = budget_of(self.budgets, provider=target.provider, vantage=self._vantage)
        return verdict(most_of_round(target), used=self._used(target.provider, now_at), budget=budget)

    def begin(self, target: Target) -> None:
        """A round of `target` is in flight."""
        self._in_flight[target.provider] = self._in_flight.get(target.provider, NOTHING) + most_of_round(target)

    def end(self, target: Target, samples: Iterable[Sample]) -> None:
        """It has ended, in these samples."""
        self._in_flight[target.provider] -= most_of_round(target)
        self.note(spend_of(sample, target.provider) for sample in samples)

    def _used(self, provider: str, now_at: int) -> Cost:
        in_flight = self._in_flight.get(provider, NOTHING)
        return self._spent.get((provider, day_of(now_at)), NOTHING) + in_flight
