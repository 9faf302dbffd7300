"""Daily budgets (UTC) of one vantage per provider, and the check that a round still fits. Pure.

A plan sets budgets per provider; the agent's own policy sets further accounts, per destination, which a plan can
neither raise nor avoid.

The laws:

1. A round starts only if today's spend, the maximum cost of the rounds in flight and its own maximum cost together stay
   within every limit. Reaching a limit exactly is allowed.
2. Before it is sent, a request counts at its maximum cost (`isochrone_wire.workloads`): all of
   `max_output_tokens`, the thinking tokens that the effort adds, and one prompt token for every four bytes. Afterwards
   it counts at what the provider reported; an unreported count stays at its maximum, unless nothing was sent or the
   provider refused the request (4xx).
3. A vantage's own budget for a provider replaces the budget for all vantages.
4. A request belongs to the day on which it was dispatched. Each day starts with nothing spent.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from isochrone_wire.model import Budget, Outcome, Price, Sample, Spend, Target, TokenSource, day_of
from isochrone_wire.workloads import estimate_request

_REFUSED = range(400, 500)
# A millionth of a cent, because sums of floats are not exact.
_ROUNDING_USD = 1e-8
# Of providers and days.
_MAX_TOTALS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """An amount of each quantity that a budget limits."""

    usd: float = 0.0
    tokens: int = 0
    requests: int = 0

    def plus(self, other: "Cost", sign: int = 1) -> "Cost":
        """Return the sum of both; the difference for `sign` -1."""
        tokens, requests = self.tokens + sign * other.tokens, self.requests + sign * other.requests
        return Cost(usd=self.usd + sign * other.usd, tokens=tokens, requests=requests)


ZERO_COST = Cost()
FREE = Price()


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Limits per day besides the plan's. Dollars count at `price`, or at the plan's price if that is higher."""

    limits: Budget
    price: Price = FREE

    def charge(self, target: Target) -> Target:
        """Return `target` as this account counts it."""
        return replace(target, provider=self.limits.provider, price=highest_price(target.price or FREE, self.price))


def highest_price(*prices: Price) -> Price:
    """Return the highest price per input token and the highest per output token."""
    return Price(
        usd_per_m_input=max(price.usd_per_m_input for price in prices),
        usd_per_m_output=max(price.usd_per_m_output for price in prices),
    )


def max_round_cost(target: Target) -> Cost:
    """Return the maximum cost of one round of `target`, over all its streams. Without a price, `usd` is 0."""
    streams = target.workload.concurrency
    most = estimate_request(target)
    usd = most.cost_usd(target.price) if target.price else 0.0
    return Cost(usd=usd * streams, tokens=most.tokens * streams, requests=streams)


def spend_of(sample: Sample, target: Target) -> Spend:
    """Return the spend of one request of `target`, derived from its sample; zero if nothing was sent."""
    day_at = day_of(sample.dispatched_at)
    if not sample.sent:
        return Spend(provider=target.provider, day_at=day_at)
    charged = prompt_tokens, output_tokens = _charged_tokens(sample, target)
    usd = sample.cost_usd
    if usd is None or charged != (sample.prompt_tokens, sample.output_tokens):
        price = target.price or FREE
        usd = price.cost_usd(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    return Spend(provider=target.provider, day_at=day_at, usd=usd, tokens=sum(charged), requests=1)


def _settle(samples: Sequence[Sample], target: Target, reserved: Spend | None) -> list[tuple[Spend, ...]]:
    charges = [spend_of(sample, target) for sample in samples]
    if reserved is None:
        return [(charge,) for charge in charges]
    # Every sample releases its share of the reservation, the first one the remainder too.
    wholes, count = (reserved.tokens, reserved.requests), len(charges)
    tokens, requests = (whole // count for whole in wholes)
    share = replace(reserved, usd=-reserved.usd / count, tokens=-tokens, requests=-requests)
    more_tokens, more_requests = (whole % count for whole in wholes)
    first = replace(share, tokens=-tokens - more_tokens, requests=-requests - more_requests)
    return [(charge, share if n else first) for n, charge in enumerate(charges)]


def _charged_tokens(sample: Sample, target: Target) -> tuple[int, int]:
    prompt_tokens, output_tokens = sample.prompt_tokens, sample.output_tokens
    is_connected = sample.http_status is not None or sample.outcome is not Outcome.CONNECT_FAILED
    if not is_connected or sample.http_status in _REFUSED:
        # The provider refused the request or cannot have processed it.
        return prompt_tokens or 0, output_tokens or 0
    most = estimate_request(target)
    if output_tokens is None or sample.token_source is TokenSource.ESTIMATED:
        # The count is an estimate from the visible text, and there may be hidden reasoning.
        output_tokens = max(output_tokens or 0, most.output_tokens)
    return most.prompt_tokens if prompt_tokens is None else prompt_tokens, output_tokens


def budget_of(budgets: Iterable[Budget], *, provider: str, vantage: str) -> Budget | None:
    """Return the budget that applies: the vantage's own for this provider, else the one for all vantages."""
    found = {budget.vantage: budget for budget in budgets if budget.provider == provider}
    return found.get(vantage) or found.get(None)


def exceeded_limit(most: Cost, *, used: Cost, budget: Budget | None) -> str | None:
    """Return the limit that a round of cost `most` would exceed on top of `used` (spent or in flight), or `None`."""
    if budget is None:
        return None
    limits = (
        ("usd_per_day", used.usd, most.usd, budget.usd_per_day, _ROUNDING_USD),
        ("tokens_per_day", used.tokens, most.tokens, budget.tokens_per_day, 0),
        ("requests_per_day", used.requests, most.requests, budget.requests_per_day, 0),
    )
    for name, so_far, more, limit, tolerance in limits:
        if limit is not None and so_far + more > limit + tolerance:
            return f"{name} of {budget.provider} is {limit:.10g}: {so_far:.10g} used, this round may use {more:.10g}"
    return None


@dataclass(slots=True)
class BudgetTracker:
    """The spend per provider and day, and the maximum cost of rounds in flight. `accounts`: the policy's."""

    vantage: str
    accounts: Callable[[Target], Sequence[Account]] = lambda _target: ()
    budgets: Sequence[Budget] = ()
    _spent: dict[tuple[str, int], Cost] = field(default_factory=dict)
    _in_flight: dict[str, Cost] = field(default_factory=dict)

    def record(self, spends: Iterable[Spend]) -> None:
        """Add spend to the totals. The day of a wrong clock ends no other day; the least recent totals are dropped."""
        for spend in spends:
            key = (spend.provider, spend.day_at)
            more = Cost(usd=spend.usd, tokens=spend.tokens, requests=spend.requests)
            self._spent[key] = self._spent.pop(key, ZERO_COST).plus(more)
            if len(self._spent) > _MAX_TOTALS:
                del self._spent[next(iter(self._spent))]

    def restore(self, spends: Iterable[Spend]) -> None:
        """Raise the totals to stored ones, which may already include spend recorded here."""
        for spend in spends:
            known = self._spent.get((spend.provider, spend.day_at), ZERO_COST)
            names = ("usd", "tokens", "requests")
            more = {name: max(getattr(spend, name) - getattr(known, name), 0) for name in names}
            self.record([replace(spend, **more)])

    def has_budget(self, target: Target) -> bool:
        """Return true if a budget applies to `target`."""
        return any(budget for _, budget in self._charged(target))

    def refusal(self, target: Target, now_at: int) -> str | None:
        """Return why a round of `target` must not start at `now_at`, naming the limit; `None` if it may."""
        day_at = day_of(now_at)
        for charged, budget in self._charged(target):
            in_flight = self._in_flight.get(charged.provider, ZERO_COST)
            used = self._spent.get((charged.provider, day_at), ZERO_COST).plus(in_flight)
            if exceeded := exceeded_limit(max_round_cost(charged), used=used, budget=budget):
                return exceeded
        return None

    def reservation(self, target: Target, now_at: int) -> tuple[Spend, ...]:
        """Return the spend to store before a round of `target` is sent at `now_at`; empty if no budget applies."""
        day_at = day_of(now_at)
        most = [(charged.provider, max_round_cost(charged)) for charged, budget in self._charged(target) if budget]
        return tuple(
            Spend(provider=name, day_at=day_at, usd=cost.usd, tokens=cost.tokens, requests=cost.requests)
            for name, cost in most
        )

    def settle(
        self, samples: Sequence[Sample], *, target: Target, reserved: Sequence[Spend]
    ) -> list[tuple[Spend, ...]]:
        """Return the entries to record with each sample: its spend, and the negative of its share of `reserved`."""
        of = {spend.provider: spend for spend in reserved}
        entries = [
            _settle(_uncosted(samples, n), charged, of.get(charged.provider))
            for n, (charged, _) in enumerate(self._charged(target))
        ]
        return [sum(parts, ()) for parts in zip(*entries, strict=True)]

    def begin(self, target: Target) -> None:
        """Add a round of `target` to those in flight."""
        for charged, _ in self._charged(target):
            in_flight = self._in_flight.get(charged.provider, ZERO_COST)
            self._in_flight[charged.provider] = in_flight.plus(max_round_cost(charged))

    def end(self, target: Target, samples: Sequence[Sample]) -> None:
        """Remove a round of `target` from those in flight, and add the spend of its samples."""
        for n, (charged, _) in enumerate(self._charged(target)):
            in_flight = self._in_flight.pop(charged.provider).plus(max_round_cost(charged), -1)
            if in_flight.requests:
                self._in_flight[charged.provider] = in_flight
            self.record(spend_of(sample, charged) for sample in _uncosted(samples, n))

    def _charged(self, target: Target) -> list[tuple[Target, Budget | None]]:
        """Return the target as each account counts it, with the limits: first its provider's."""
        planned = budget_of(self.budgets, provider=target.provider, vantage=self.vantage)
        return [(target, planned), *((account.charge(target), account.limits) for account in self.accounts(target))]


def _uncosted(samples: Sequence[Sample], account: int) -> Sequence[Sample]:
    """Return the samples for account number `account`; only for the first one, the plan's price is the right one."""
    return [replace(sample, cost_usd=None) for sample in samples] if account else samples
