"""Rules for switching the first choice.

The rules, in this order:

* *Hard*: the first choice fails: three failures in a row from two vantages, or the last probes of all vantages of the
  region while they reach another member, or success certainly below the minimum.
* *Fast*: it certainly misses the objective while a challenger certainly meets it, or a challenger leads by at least a
  quarter of its median.
* *Soft*: a challenger leads by at least the margin.

A lead is that of the present levels (`present_levels`), by the objective. It must be probable: nine tenths in the first
rounds of a route, one half later and for a large lead. How soon these levels follow the rounds depends on what the
route has done so far: members that were equal for hours must show more than members that change twice an hour. So no
rule has to wait, except for the return of a member that failed while it was the first choice: after its k-th failure in
a day it is a challenger again after 2^k - 1 epochs, at most twelve.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from isochrone_collector.routing.inputs import Inputs, Rules
from isochrone_collector.routing.objective import (
    US_PER_MS,
    Lead,
    cost_of,
    eligible,
    group_of,
    is_failing,
    lead,
    no_worse_group,
    well,
)
from isochrone_collector.routing.parallel_requests import Gains, Tails, extended, known_gains
from isochrone_collector.routing.present_levels import Present, PresentLevels
from isochrone_wire.durations import DAY_US
from isochrone_wire.insights import Eligible
from isochrone_wire.routes import ChangeKind

_MOST_EPOCHS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state between two decisions. `sharing` are the members that are level with the first choice; `epoch` began
    with `epoch_weights`. `since_at` is the instant of the last switch, `newest_at` the newest sample a decision was
    based on. `failed_at` are the instants of the last day at which a first choice failed. `levels` is the filter of the
    present levels. `tails` are the joint rounds until `tails_until_at`; `gains` are the pairs whose hedge is known to
    shorten the p99.
    """

    incumbent: str | None = None
    since_at: int = 0
    epoch: int = 0
    sharing: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    epoch_weights: Mapping[str, float] = field(default_factory=dict)
    switches: tuple[int, ...] = ()
    frozen_at: int | None = None
    newest_at: int = 0
    plan_version: int = 0
    failed_at: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    levels: PresentLevels = field(default_factory=PresentLevels)
    tails: Tails = field(default_factory=dict)
    tails_until_at: int = 0
    gains: Gains = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A new first choice, with the reason."""

    to: str
    kind: ChangeKind
    sentence: str


def epoch_of(at: int, rules: Rules) -> int:
    """Return the number of the epoch of an instant."""
    return at // rules.epoch_us


def ranked_members(inputs: Inputs, members: list[str]) -> list[str]:
    """Sort members from best to worst: not failing, then most certain to meet the objective, then cheapest."""
    wished = inputs.route.static_order

    def key(target: str) -> tuple[bool, int, bool, float, int, str]:
        cost = cost_of(inputs, target)
        place = wished.index(target) if target in wished else len(wished)
        total = cost.total if cost else 0.0
        return (is_failing(inputs, target), group_of(inputs, target), cost is None, total, place, target)

    return sorted(members, key=key)


def present_best(inputs: Inputs, present: Present, members: Sequence[str]) -> str:
    """Return the first of `members`, or one that is no worse and is expected to lead it by what a switch needs, however
    uncertain that is: there is no first choice to stay with.
    """
    first, *others = members
    found = {one: lead(inputs, present, one, first) for one in others if no_worse_group(inputs, first, one)}
    ahead = {target: one.expected_us for target, one in found.items() if one and one.expected_us >= one.needed_us}
    return max(ahead, key=ahead.__getitem__) if ahead else first


def find_switch(state: State, inputs: Inputs, present: Present, members: list[str]) -> Switch | None:
    """Return the switch required by the rules, if any. `members` are in order and include the first choice."""
    incumbent = state.incumbent
    challengers = well(inputs, [target for target in members if target != incumbent])
    if incumbent is None or not challengers:
        return None
    waiting = [target for target in challengers if waits_us(state, inputs, target)]
    challengers = [target for target in challengers if target not in waiting]
    if is_failing(inputs, incumbent):
        best = present_best(inputs, present, challengers or waiting)
        return Switch(to=best, kind=ChangeKind.HARD, sentence=f"{incumbent} fails; {best} takes over")
    for target in challengers:
        if breaks_alone(inputs, incumbent, target):
            sentence = f"{incumbent} breaks the objective in this window, and {target} keeps it"
            return Switch(to=target, kind=ChangeKind.FAST, sentence=sentence)
    leads = _leads(inputs, present, incumbent, challengers)
    if not leads:
        return None
    target = max(leads, key=leads.__getitem__)
    found = lead(inputs, present, incumbent, target)
    kind = ChangeKind.FAST if leads[target] >= fast_limit_us(inputs, target) else ChangeKind.SOFT
    return Switch(to=target, kind=kind, sentence=f"{incumbent} is now {written(found)} {target}")


def _leads(inputs: Inputs, present: Present, incumbent: str, challengers: Sequence[str]) -> dict[str, float]:
    """Return the expected leads over `incumbent`, in microseconds, of the challengers whose lead is enough."""
    found = {
        target: lead(inputs, present, target, incumbent)
        for target in challengers
        if no_worse_group(inputs, incumbent, target)
    }
    return {target: one.expected_us for target, one in found.items() if one and one.is_enough}


def waits_us(state: State, inputs: Inputs, target: str) -> int:
    """Return how long a member that failed as the first choice still waits for its return, in microseconds."""
    failed_at = _of_a_day(state.failed_at.get(target, ()), inputs.at)
    epochs = min((1 << len(failed_at)) - 1, _MOST_EPOCHS)
    return max(max(failed_at, default=0) + epochs * inputs.rules.epoch_us - inputs.at, 0)


def breaks_alone(inputs: Inputs, incumbent: str, target: str) -> bool:
    """Return whether the first choice certainly misses the objective, and `target` certainly meets it."""
    mine, theirs = (eligible(inputs.of(one), inputs.route.slo) for one in (incumbent, target))
    return mine is Eligible.NO and theirs is Eligible.YES


def written(found: Lead | None) -> str:
    """Return a lead in words."""
    if found is None:
        return "without a median to compare with"
    is_ahead = found.expected_us > -US_PER_MS / 2
    sure = found.probability if is_ahead else 1 - found.probability
    by = f"{abs(found.expected_us) / US_PER_MS:.0f} ms as expected and {sure:.0%} sure"
    return f"{'ahead' if is_ahead else 'behind'}, by {by}, of"


def fast_limit_us(inputs: Inputs, target: str) -> float:
    """Return the lead of a challenger, in microseconds, from which on a switch to it is fast."""
    median = inputs.of(target).ttft_p50_us
    return inputs.rules.fast_share * median.value if median else float("inf")


def begin_epoch(state: State, inputs: Inputs) -> State:
    """Return the state in the epoch of the inputs, which begins with the weights of the state."""
    epoch = epoch_of(inputs.at, inputs.rules)
    return state if epoch == state.epoch else replace(state, epoch=epoch, epoch_weights=state.weights)


def share_among(state: State, inputs: Inputs, present: Present, members: Sequence[str]) -> State:
    """Return the state with the members of the first rank, which are level with the first choice.

    A share stays until it is less probable, so that it does not come and go. It begins only if the member leads all
    that the first choice leads: what was level with a member that has just become faster looks level for a while.
    """
    rules, first = inputs.rules, state.incumbent
    sharing, joining = list[str](), list[str]()
    for target in [one for one in members if one != first] if first else ():
        found, has_share = lead(inputs, present, target, first or ""), target in state.sharing
        least = rules.unlevel_share if has_share else rules.level_share
        is_level = has_share if found is None else found.level >= least
        if is_level and no_worse_group(inputs, first or "", target):
            (sharing if has_share else joining).append(target)
    others = [target for target in members if target not in {first, *sharing, *joining}] if joining else []
    led = [target for target in others if _leads(inputs, present, target, [first or ""])]
    sharing += [target for target in joining if all(_leads(inputs, present, other, [target]) for other in led)]
    return replace(state, sharing=tuple(sharing))


def remember_tails(state: State, inputs: Inputs, ranked: Sequence[str]) -> State:
    """Return the state with the joint rounds of finished epochs, and the gains that they show."""
    rules = inputs.rules
    until_at = epoch_of(inputs.at - max(rules.epoch_us, inputs.settling_us), rules) * rules.epoch_us
    if until_at <= state.tails_until_at <= inputs.at:
        return state
    since_at = min(state.tails_until_at, until_at)
    tails = extended(state.tails, inputs, ranked, since_at=since_at, until_at=until_at)
    return replace(state, tails=tails, tails_until_at=until_at, gains=known_gains(tails, rules, state.gains))


def apply_switch(state: State, switch: Switch, inputs: Inputs) -> State:
    """Return the state after a switch."""
    failed_at = {target: _of_a_day(instants, inputs.at) for target, instants in state.failed_at.items()}
    if switch.kind is ChangeKind.HARD and state.incumbent and is_failing(inputs, state.incumbent):
        failed_at[state.incumbent] = (*failed_at.get(state.incumbent, ()), inputs.at)
    return replace(
        state,
        incumbent=switch.to,
        since_at=inputs.at,
        sharing=(),
        switches=(*_of_a_day(state.switches, inputs.at), inputs.at),
        failed_at={target: instants for target, instants in failed_at.items() if instants},
    )


def _of_a_day(instants: Sequence[int], at: int) -> tuple[int, ...]:
    return tuple(instant for instant in instants if 0 <= at - instant < DAY_US)
