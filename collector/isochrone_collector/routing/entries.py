"""Entries of a table in rank order, from inputs and state."""

from collections.abc import Sequence

from isochrone_collector.routing.eligibility import cost_of, eligible, is_failing
from isochrone_collector.routing.hedge import hedge
from isochrone_collector.routing.inputs import Inputs
from isochrone_collector.routing.switch import State, penalty_at
from isochrone_collector.routing.weights import caps
from isochrone_wire.model import DAY_US
from isochrone_wire.routes import Advantage, Hedge, Hold, RouteEntry


def entries_of(
    inputs: Inputs, state: State, order: Sequence[str], *, sharing: int, hedging: bool
) -> tuple[RouteEntry, ...]:
    """Return the entries of members in `order`; the first `sharing` of them have the first rank. With `hedging`, the
    first entry states when to start the second.
    """
    second = order[1] if hedging and len(order) > 1 else None
    return tuple(
        _entry(
            inputs,
            state,
            target,
            rank=1 if place < sharing else place + 1,
            best=order[0],
            hedge=_hedge(inputs, state, target, second) if place == 0 and second else None,
        )
        for place, target in enumerate(order)
    )


def _entry(inputs: Inputs, state: State, target: str, *, rank: int, best: str, hedge: Hedge | None) -> RouteEntry:
    evidence, described, cost = inputs.of(target), inputs.described(target), cost_of(inputs, target)
    price = described.price
    return RouteEntry(
        rank=rank,
        weight=state.weights.get(target, 0.0),
        target=target,
        provider=described.provider,
        model=described.model,
        dialect=described.dialect,
        base_url=described.base_url,
        credential_ref=described.credential,
        ttft_p50_us=evidence.ttft_p50_us,
        ttft_p95_us=evidence.ttft_p95_us,
        tokens_per_second_p50=evidence.tokens_per_second_p50,
        rtt_p50_us=evidence.rtt_p50_us,
        success=evidence.success,
        outcomes=dict(sorted(evidence.outcomes.items())),
        n=evidence.n,
        n_eff=evidence.n_eff,
        vantages=evidence.vantages,
        newest_at=evidence.newest_at,
        usd_per_m_input=price.usd_per_m_input if price else None,
        usd_per_m_output=price.usd_per_m_output if price else None,
        slo_eligible=eligible(evidence, inputs.route.slo),
        cost=round(cost.total, 6) if cost else None,
        vs_best=_advantage(inputs, target, best),
        hedge=hedge,
        hold=_hold(inputs, state, target),
        goodput=evidence.goodput,
        answer_p95_us=evidence.answer_p95_us,
        throttled=round(evidence.throttled, 6),
        max_weight=round(caps(inputs)[target], 6),
    )


def _hedge(inputs: Inputs, state: State, first: str, second: str) -> Hedge | None:
    """Return the hedge; none while either member fails, because an outage must not double the load."""
    if is_failing(inputs, first) or is_failing(inputs, second):
        return None
    tails, is_known = state.tails.get(first, {}).get(second, ()), second in state.gains.get(first, ())
    return hedge(inputs, tails, first, second, is_known=is_known)


def _advantage(inputs: Inputs, target: str, best: str) -> Advantage | None:
    if target == best:
        return Advantage(shift_us=0.0, low_us=0.0, high_us=0.0)
    shift = inputs.against(target, best).window
    return Advantage(shift_us=shift.estimate, low_us=shift.low, high_us=shift.high) if shift else None


def _hold(inputs: Inputs, state: State, target: str) -> Hold:
    return Hold(
        state="active" if target == state.incumbent else "waiting",
        since_at=state.since_at,
        switches_24h=sum(1 for at in state.switches if inputs.at - at < DAY_US),
        penalty=round(penalty_at(state, inputs.at, inputs.rules), 3),
    )
