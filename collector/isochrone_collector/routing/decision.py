"""The routing decision: inputs and the previous state give a table and the next state. Deterministic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from isochrone_collector.analysis.stats.shifts import Shift
from isochrone_collector.routing.inputs import Inputs
from isochrone_collector.routing.objective import (
    cost_of,
    eligible,
    exclusion_reason,
    is_failing,
    lead,
    plan_exclusion,
    well,
)
from isochrone_collector.routing.parallel_requests import hedge
from isochrone_collector.routing.present_levels import Present, followed
from isochrone_collector.routing.switch import (
    State,
    Switch,
    apply_switch,
    begin_epoch,
    epoch_of,
    find_switch,
    present_best,
    ranked_members,
    remember_tails,
    share_among,
)
from isochrone_collector.routing.weights import (
    UNASSIGNED,
    caps,
    normalize,
    ramp,
    surrendered,
    transfer,
    wanted_weights,
    within_caps,
    within_plan,
)
from isochrone_wire.durations import DAY_US
from isochrone_wire.insights import Eligible
from isochrone_wire.routes import Advantage, ChangeKind, Excluded, Hedge, Hold, RouteEntry, RouteState

_QUIET = (ChangeKind.EVIDENCE, ChangeKind.RAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The contents of a table except generation, digests and program version, and the state for the next decision."""

    route_state: RouteState
    change: ChangeKind
    sentence: str
    entries: tuple[RouteEntry, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    state: State

    @property
    def newest_at(self) -> int:
        """The instant of the newest sample the decision is based on; 0 without any."""
        return self.state.newest_at


def decide(inputs: Inputs, before: State) -> Decision:
    """Decide. Pure."""
    # The state may have been stored while a clock was ahead.
    sampled_at = [one.newest_at for one in inputs.evidence if one.newest_at is not None]
    newest_at = min(max([before.newest_at, *sampled_at]), inputs.at)
    levels, present = followed(before.levels, inputs)
    state_before = replace(before, newest_at=newest_at, plan_version=inputs.plan_version, levels=levels)
    names = [target.name for target in inputs.targets]
    reasons = {name: exclusion_reason(inputs, name, has_traffic=before.weights.get(name, 0.0) > 0) for name in names}
    suspicion = freeze_reason(inputs)
    if suspicion:
        decision = _frozen(inputs, state_before, reasons, suspicion)
    elif all(reasons.values()):
        decision = _unknown(
            inputs, state_before, reasons, "too little is known of every member: the static order holds"
        )
    else:
        decision = _ranked(inputs, present, state_before, reasons)
    if before.plan_version in (0, inputs.plan_version) or decision.change not in _QUIET:
        return decision
    return replace(
        decision, change=ChangeKind.PLAN, sentence=f"plan {inputs.plan_version} is in force; {decision.sentence}"
    )


def freeze_reason(inputs: Inputs) -> str:
    """Return why the table is frozen, empty if it is not: so many vantages fail that the fault is probably ours."""
    if 0 < inputs.vantages_here <= inputs.suspects_here:
        return f"all vantages of {inputs.client_region} fail whatever they probe"
    enough = inputs.vantages >= inputs.rules.failing_vantages
    if enough and inputs.suspects >= inputs.rules.suspicious_share * inputs.vantages:
        return f"{inputs.suspects} of {inputs.vantages} vantages fail whatever they probe"
    return ""


def is_aging(inputs: Inputs, state: State) -> bool:
    """Return whether the newest sample is too old for a switch."""
    return inputs.at - state.newest_at > inputs.rules.fresh_us


def _frozen(inputs: Inputs, before: State, reasons: Mapping[str, str], suspicion: str) -> Decision:
    """Keep the previous ranking and weights, of the members that the plan still permits."""
    permitted = [target for target in reasons if not plan_exclusion(inputs, target)]
    order = [target for target in before.order if target in permitted]
    # The best one gets all traffic if none of them had any.
    kept = normalize({target: before.weights.get(target, 0.0) for target in order}) or dict.fromkeys(order[:1], 1.0)
    weights = within_plan(inputs, kept, order) if kept else kept
    others = {target: reason or suspicion for target, reason in reasons.items() if target not in order}
    if not weights:
        return _unknown(inputs, before, others, f"{suspicion}, and nothing was known before: the static order holds")
    begun = before.frozen_at is None
    # After the thaw, weights that were removed here return in steps.
    epoch_weights = before.epoch_weights if weights == before.weights else weights
    frozen_at = inputs.at if begun else before.frozen_at
    state = replace(before, weights=weights, epoch_weights=epoch_weights, frozen_at=frozen_at)
    sharing = _sharing(state, order)
    return Decision(
        route_state=RouteState.FROZEN,
        change=ChangeKind.FREEZE if begun else ChangeKind.EVIDENCE,
        sentence=f"{suspicion}: nothing is changed",
        entries=entries_of(inputs, state, order, sharing=len(sharing), hedging=False),
        excluded=_excluded(others),
        state=state,
    )


def _unknown(inputs: Inputs, before: State, reasons: Mapping[str, str], sentence: str) -> Decision:
    state = State(
        epoch=epoch_of(inputs.at, inputs.rules),
        switches=before.switches,
        failed_at=before.failed_at,
        newest_at=before.newest_at,
        plan_version=before.plan_version,
        levels=before.levels,
        tails=before.tails,
        tails_until_at=before.tails_until_at,
        gains=before.gains,
    )
    return Decision(
        route_state=RouteState.INSUFFICIENT_DATA,
        change=ChangeKind.EVIDENCE,
        sentence=sentence,
        excluded=_excluded(reasons),
        state=state,
    )


def _excluded(reasons: Mapping[str, str]) -> tuple[Excluded, ...]:
    return tuple(Excluded(target=target, reason=reason) for target, reason in sorted(reasons.items()) if reason)


def _ranked(inputs: Inputs, present: Present, before: State, reasons: Mapping[str, str]) -> Decision:
    ranked = ranked_members(inputs, [target for target, reason in reasons.items() if not reason])
    chosen, change, sentence = _chosen(inputs, present, replace(before, frozen_at=None), ranked, reasons)
    chosen = share_among(chosen, inputs, present, ranked)
    sharing, shown = _ranking(inputs, chosen, ranked)
    remembering = remember_tails(replace(chosen, order=tuple(shown)), inputs, shown)
    state, moved = _weighted(inputs, present, remembering, sharing)
    if change is ChangeKind.EVIDENCE and state.weights != before.weights:
        change, sentence = ChangeKind.RAMP, moved
    if before.frozen_at is not None and change in _QUIET:
        change, sentence = ChangeKind.THAW, "enough vantages are well again"
    verdicts = {eligible(inputs.of(target), inputs.route.slo) for target in shown if not is_failing(inputs, target)}
    return Decision(
        route_state=RouteState.OK if verdicts - {Eligible.NO} else RouteState.DEGRADED,
        change=change,
        sentence=sentence,
        entries=entries_of(inputs, state, shown, sharing=len(sharing), hedging=True),
        excluded=_excluded(reasons),
        state=state,
    )


def _ranking(inputs: Inputs, state: State, ranked: list[str]) -> tuple[list[str], list[str]]:
    """Return the members with the first rank, the first choice first, and the whole ranking."""
    first_rank = sorted(_sharing(state, ranked), key=lambda target: target != state.incumbent)
    failing = _failing(inputs, ranked)
    sharing = [target for target in first_rank if target == state.incumbent or target not in failing]
    return sharing, [*sharing, *(target for target in ranked if target not in sharing)]


def _sharing(state: State, members: Sequence[str]) -> list[str]:
    """Return the members with the first rank."""
    return [target for target in members if target == state.incumbent or target in state.sharing]


def _chosen(
    inputs: Inputs, present: Present, before: State, ranked: list[str], reasons: Mapping[str, str]
) -> tuple[State, ChangeKind, str]:
    """Return the state with its first choice, the kind of change, and the reason."""
    incumbent = before.incumbent
    if incumbent is None:
        best = present_best(inputs, present, well(inputs, ranked) or ranked[:1])
        state = replace(before, incumbent=best, since_at=inputs.at, epoch=epoch_of(inputs.at, inputs.rules))
        return state, ChangeKind.FIRST, f"{best} is the first choice"
    if incumbent not in ranked:
        kind = ChangeKind.HARD if incumbent in reasons else ChangeKind.PLAN
        best = present_best(inputs, present, well(inputs, ranked) or ranked[:1])
        why = f"is left out, {reasons[incumbent]}" if incumbent in reasons else "is no member any more"
        gone = Switch(to=best, kind=kind, sentence=f"{incumbent} {why}; {best} takes over")
        return apply_switch(before, gone, inputs), kind, gone.sentence
    if is_aging(inputs, before):
        return before, ChangeKind.EVIDENCE, f"{incumbent} stays; the newest sample is too old for a switch"
    state = begin_epoch(before, inputs)
    switch = find_switch(state, inputs, present, ranked)
    if switch is None:
        return state, ChangeKind.EVIDENCE, f"{incumbent} stays"
    return apply_switch(state, switch, inputs), switch.kind, switch.sentence


def _weighted(inputs: Inputs, present: Present, state: State, sharing: Sequence[str]) -> tuple[State, str]:
    """Return the state with this epoch's weights, and why they moved.

    A member over which the lead of the first choice is enough gives up a share of its weight, as large as that lead is
    probable. The rest moves one step.
    """
    failing = _failing(inputs, state.order)
    others = [target for target in state.order if target not in failing and target not in sharing]
    wanted = wanted_weights(inputs, sharing, others)
    held = [target for target in sorted(state.epoch_weights) if target != UNASSIGNED]
    stranded = [target for target in held if target not in state.order or target in failing]
    begun = transfer(state.epoch_weights, stranded, sharing[0]) if stranded else state.epoch_weights
    begun = within_caps(inputs, begun, [*sharing, *others]) if begun else begun
    led = surrendered(begun, wanted, _led(inputs, present, sharing[0], others))
    weights = within_plan(inputs, ramp(led, wanted, step=inputs.rules.ramp), [*sharing, *others])
    moved = f"{', '.join(stranded)} cannot take its share" if stranded else f"weights move towards {', '.join(sharing)}"
    if unassigned := weights.get(UNASSIGNED, 0.0):
        moved += f"; {unassigned:.0%} of the traffic is beyond all shares of the plan"
    return replace(state, weights=weights, epoch_weights=begun or wanted), moved


def _led(inputs: Inputs, present: Present, first: str, others: Sequence[str]) -> dict[str, float]:
    """Return the members of `others` over which the lead of `first` is enough, with its probability."""
    leads = {target: lead(inputs, present, first, target) for target in others}
    return {target: one.probability for target, one in leads.items() if one and one.is_enough}


def _failing(inputs: Inputs, members: Sequence[str]) -> set[str]:
    """Return the failing members; none if all fail, because then no member is better."""
    failing = {target for target in members if is_failing(inputs, target)}
    return failing if len(failing) < len(members) else set()


def entries_of(
    inputs: Inputs, state: State, order: Sequence[str], *, sharing: int, hedging: bool
) -> tuple[RouteEntry, ...]:
    """Return the entries of `order`, the first `sharing` of first rank; with `hedging` the first states its hedge."""
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
    claimed = evidence.claimed
    price = described.price
    shift = Shift(estimate=0.0, low=0.0, high=0.0) if target == best else inputs.against(target, best).window
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
        success=claimed.success,
        outcomes=dict(sorted(evidence.outcomes.items())),
        n=evidence.n,
        n_eff=evidence.n_eff,
        vantages=evidence.vantages,
        newest_at=evidence.newest_at,
        usd_per_m_input=price.usd_per_m_input if price else None,
        usd_per_m_output=price.usd_per_m_output if price else None,
        slo_eligible=eligible(claimed, inputs.route.slo),
        slo_in_window=eligible(evidence, inputs.route.slo),
        cost=round(cost.total, 6) if cost else None,
        vs_best=Advantage(shift_us=shift.estimate, low_us=shift.low, high_us=shift.high) if shift else None,
        hedge=hedge,
        hold=Hold(
            state="active" if target == state.incumbent else "waiting",
            since_at=state.since_at,
            switches_24h=sum(1 for at in state.switches if inputs.at - at < DAY_US),
        ),
        goodput=claimed.goodput,
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
