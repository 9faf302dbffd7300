"""From inputs and the state before to a table and the state after. The same inputs give the same table, always."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from isochrone_collector.routing.eligibility import eligible, is_failing, why_excluded, why_forbidden
from isochrone_collector.routing.entries import entries_of
from isochrone_collector.routing.inputs import Inputs
from isochrone_collector.routing.switch import State, Switch, challenged, counted, epoch_of, in_order, shares, switched
from isochrone_collector.routing.weights import ramped, split, whole, without
from isochrone_wire.insights import Eligible
from isochrone_wire.routes import ChangeKind, Excluded, RouteEntry, RouteState

_QUIET = (ChangeKind.EVIDENCE, ChangeKind.RAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided: everything of a table but its number, its digests and the program's version. `state` is what
    the next decision starts from. `newest_at` is the newest sample that anything was decided from, 0 for none.
    """

    route_state: RouteState
    change: ChangeKind
    sentence: str
    entries: tuple[RouteEntry, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    state: State

    @property
    def newest_at(self) -> int:
        """The newest sample that anything was decided from; 0 for none."""
        return self.state.newest_at


def decide(inputs: Inputs, before: State) -> Decision:
    """The decision. Pure."""
    # A state may have been stored when a clock was ahead.
    newest_at = min(max(before.newest_at, _newest_at(inputs)), inputs.at)
    known = replace(before, newest_at=newest_at, plan_version=inputs.plan_version)
    names = [target.name for target in inputs.targets]
    reasons = {name: why_excluded(inputs, name, carries=before.weights.get(name, 0.0) > 0) for name in names}
    suspicion = why_frozen(inputs)
    if suspicion:
        decision = _frozen(inputs, known, reasons, suspicion)
    elif all(reasons.values()):
        decision = _unknown(inputs, known, reasons, "too little is known of every member: the static order holds")
    else:
        decision = _ranked(inputs, known, reasons)
    if before.plan_version in (0, inputs.plan_version) or decision.change not in _QUIET:
        return decision
    return replace(
        decision, change=ChangeKind.PLAN, sentence=f"plan {inputs.plan_version} is in force; {decision.sentence}"
    )


def _newest_at(inputs: Inputs) -> int:
    return max((one.newest_at for one in inputs.evidence if one.newest_at is not None), default=0)


def why_frozen(inputs: Inputs) -> str:
    """Why nothing may be changed, or nothing: so many vantages fail at once, or all that there are here, that it is
    more likely our doing than everybody else's.
    """
    if 0 < inputs.vantages_here <= inputs.suspects_here:
        return f"all vantages of {inputs.client_region} fail whatever they probe"
    enough = inputs.vantages >= inputs.rules.failing_vantages
    if enough and inputs.suspects >= inputs.rules.suspicious_share * inputs.vantages:
        return f"{inputs.suspects} of {inputs.vantages} vantages fail whatever they probe"
    return ""


def is_aging(inputs: Inputs, state: State) -> bool:
    """Whether the newest sample is too old for a new switch."""
    return inputs.at - state.newest_at > inputs.rules.fresh_us


def _frozen(inputs: Inputs, before: State, reasons: Mapping[str, str], suspicion: str) -> Decision:
    """The ranking and the weights as they were, of those who are still members and permitted."""
    order, weights = _kept(before, [target for target in reasons if not why_forbidden(inputs, target)])
    others = {target: reason or suspicion for target, reason in reasons.items() if target not in order}
    if not weights:
        return _unknown(inputs, before, others, f"{suspicion}, and nothing was known before: the static order holds")
    begun = before.frozen_at is None
    # After a thaw nobody jumps back to what was taken away here.
    epoch_weights = before.epoch_weights if weights == before.weights else weights
    frozen_at = inputs.at if begun else before.frozen_at
    state = replace(before, weights=weights, epoch_weights=epoch_weights, frozen_at=frozen_at)
    sharing = _sharing(inputs, state, order)
    return Decision(
        route_state=RouteState.FROZEN,
        change=ChangeKind.FREEZE if begun else ChangeKind.EVIDENCE,
        sentence=f"{suspicion}: nothing is changed",
        entries=entries_of(inputs, state, order, sharing=len(sharing), hedging=False),
        excluded=_excluded(others),
        state=state,
    )


def _kept(before: State, members: Collection[str]) -> tuple[list[str], dict[str, float]]:
    """What is left of the ranking and its weights without who is not among `members`; the best of them gets all when
    nobody of them carried anything.
    """
    order = [target for target in before.order if target in members]
    weights = whole({target: before.weights.get(target, 0.0) for target in order})
    return order, weights or dict.fromkeys(order[:1], 1.0)


def _unknown(inputs: Inputs, before: State, reasons: Mapping[str, str], sentence: str) -> Decision:
    state = State(
        epoch=epoch_of(inputs.at, inputs.rules),
        switches=before.switches,
        penalty=before.penalty,
        penalty_at=before.penalty_at,
        newest_at=before.newest_at,
        plan_version=before.plan_version,
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


def _ranked(inputs: Inputs, before: State, reasons: Mapping[str, str]) -> Decision:
    ranked = in_order(inputs, [target for target, reason in reasons.items() if not reason])
    chosen, change, sentence = _chosen(inputs, replace(before, frozen_at=None), ranked, reasons)
    sharing, shown = _standing(inputs, chosen, ranked)
    state, moved = _weighted(inputs, replace(chosen, order=tuple(shown)), sharing)
    if change is ChangeKind.EVIDENCE and state.weights != before.weights:
        change, sentence = ChangeKind.RAMP, moved
    if before.frozen_at is not None and change in _QUIET:
        change, sentence = ChangeKind.THAW, "enough vantages are well again"
    return Decision(
        route_state=_state_of(inputs, shown),
        change=change,
        sentence=sentence,
        entries=entries_of(inputs, state, shown, sharing=len(sharing), hedging=True),
        excluded=_excluded(reasons),
        state=state,
    )


def _standing(inputs: Inputs, state: State, ranked: list[str]) -> tuple[list[str], list[str]]:
    """Who has the first rank, the first choice before all others, and the whole ranking."""
    sound = sorted(_sharing(inputs, state, ranked), key=lambda target: target != state.incumbent)
    useless = _useless(inputs, ranked)
    sharing = [target for target in sound if target == state.incumbent or target not in useless]
    return sharing, [*sharing, *(target for target in ranked if target not in sharing)]


def _sharing(inputs: Inputs, state: State, members: Sequence[str]) -> list[str]:
    """Who has the first rank."""
    return [target for target in members if target == state.incumbent or shares(state, inputs, target)]


def _chosen(
    inputs: Inputs, before: State, ranked: list[str], reasons: Mapping[str, str]
) -> tuple[State, ChangeKind, str]:
    """The state with its first choice, and why it is that."""
    incumbent = before.incumbent
    if incumbent is None:
        state = replace(before, incumbent=ranked[0], since_at=inputs.at, epoch=epoch_of(inputs.at, inputs.rules))
        return state, ChangeKind.FIRST, f"{ranked[0]} is the first choice"
    if incumbent not in ranked:
        kind = ChangeKind.HARD if incumbent in reasons else ChangeKind.PLAN
        why = f"is left out, {reasons[incumbent]}" if incumbent in reasons else "is no member any more"
        gone = Switch(to=ranked[0], kind=kind, sentence=f"{incumbent} {why}; {ranked[0]} takes over")
        return switched(before, gone, inputs), kind, gone.sentence
    if is_aging(inputs, before):
        return before, ChangeKind.EVIDENCE, f"{incumbent} stays; the newest sample is too old for a switch"
    state = counted(before, inputs, ranked)
    switch = challenged(state, inputs, ranked)
    if switch is None:
        return state, ChangeKind.EVIDENCE, f"{incumbent} stays"
    return switched(state, switch, inputs), switch.kind, switch.sentence


def _weighted(inputs: Inputs, state: State, sharing: Sequence[str]) -> tuple[State, str]:
    """The state with the weights of this epoch, and why they moved: a step from those it began with, and all that
    somebody carried who fails or is gone.
    """
    wanted = split(sharing)
    lost = _lost(inputs, state)
    begun = without(state.epoch_weights, lost, sharing[0]) if lost else state.epoch_weights
    weights = ramped(begun, wanted, step=inputs.rules.ramp)
    sentence = f"{', '.join(lost)} cannot take its share" if lost else f"weights move towards {', '.join(sharing)}"
    return replace(state, weights=weights, epoch_weights=begun or wanted), sentence


def _lost(inputs: Inputs, state: State) -> list[str]:
    """Who has weight that it cannot carry."""
    useless = _useless(inputs, state.order)
    return [target for target in sorted(state.epoch_weights) if target not in state.order or target in useless]


def _useless(inputs: Inputs, members: Sequence[str]) -> set[str]:
    """Who fails; when everybody does, nobody is better off elsewhere."""
    failing = {target for target in members if is_failing(inputs, target)}
    return failing if len(failing) < len(members) else set()


def _state_of(inputs: Inputs, shown: Sequence[str]) -> RouteState:
    verdicts = {eligible(inputs.of(target), inputs.route.slo) for target in shown if not is_failing(inputs, target)}
    return RouteState.OK if verdicts - {Eligible.NO} else RouteState.DEGRADED
