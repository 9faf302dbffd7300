"""When the first choice changes, and when it stays although another looks better for the moment.

The rules, in this order:

* *Hard*: the first choice fails: three failures in a row from two vantages, or success under the floor for certain.
* *Fast*: over the short window it takes at least a quarter longer than the challenger, or it breaks the objective for
  certain while the challenger keeps it for certain. This skips the dwell, but not what the penalty adds to it.
* *Soft*: over the middle window it is worse by the margin at least, the interval is off zero, this was so for three
  epochs running, and the last switch is half an hour ago, or longer while the penalty of earlier switches lasts.

The penalty is that of route flap damping (RFC 2439): each switch adds to it, and it halves in half an hour. Unlike
there it removes nobody; it only makes the dwell longer (RFC 7196 tells why removing was a mistake).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from isochrone_collector.routing.comparison import (
    group_of,
    is_ahead,
    is_behind,
    is_level,
    no_worse_group,
    objective_advantage,
)
from isochrone_collector.routing.eligibility import US_PER_MS, cost_of, eligible, is_failing
from isochrone_collector.routing.inputs import Inputs, Rules
from isochrone_wire.insights import Eligible
from isochrone_wire.model import DAY_US
from isochrone_wire.routes import ChangeKind

# A route that keeps changing is looked at with this much patience and no more.
_MAX_DWELLS = 8.0
# Epochs further apart than this are not running.
_RUNNING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What one decision leaves to the next. `streaks` counts the epochs in which a member was better by the soft rule,
    `ties` those in which it was no worse than the first choice; both as of `epoch`, which began with `epoch_weights`.
    `since_at` is when the first choice became it, `newest_at` the newest sample that anything was decided from.
    """

    incumbent: str | None = None
    since_at: int = 0
    epoch: int = 0
    streaks: Mapping[str, int] = field(default_factory=dict)
    ties: Mapping[str, int] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    epoch_weights: Mapping[str, float] = field(default_factory=dict)
    switches: tuple[int, ...] = ()
    penalty: float = 0.0
    penalty_at: int = 0
    frozen_at: int | None = None
    newest_at: int = 0
    plan_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A new first choice, and why."""

    to: str
    kind: ChangeKind
    sentence: str


def epoch_of(at: int, rules: Rules) -> int:
    """The number of the epoch an instant lies in."""
    return at // rules.epoch_us


def penalty_at(state: State, at: int, rules: Rules) -> float:
    """What is left of the penalty."""
    return float(state.penalty * 2.0 ** (-max(at - state.penalty_at, 0) / rules.half_life_us))


def dwell_us(state: State, at: int, rules: Rules) -> int:
    """How long after a switch the next soft one waits: longer the more there were lately, and never for ever."""
    return round(rules.dwell_us * min(max(1.0, penalty_at(state, at, rules) / rules.penalty), _MAX_DWELLS))


def dwell_left_us(state: State, at: int, rules: Rules) -> int:
    """How much of the dwell is left. The first of all choices was no switch, and may be put right at once."""
    return max(state.switches[-1] + dwell_us(state, at, rules) - at, 0) if state.switches else 0


def damped_us(state: State, at: int, rules: Rules) -> int:
    """For how long a fast switch still waits: until what the penalty adds to the dwell is over."""
    return max(state.switches[-1] + dwell_us(state, at, rules) - rules.dwell_us - at, 0) if state.switches else 0


def ranked_members(inputs: Inputs, members: list[str]) -> list[str]:
    """Members from best to worst: who does not fail, keeps the objective, and costs least."""
    wished = inputs.route.static_order

    def key(target: str) -> tuple[bool, int, bool, float, int, str]:
        cost = cost_of(inputs, target)
        place = wished.index(target) if target in wished else len(wished)
        total = cost.total if cost else 0.0
        return (is_failing(inputs, target), group_of(inputs, target), cost is None, total, place, target)

    return sorted(members, key=key)


def find_switch(state: State, inputs: Inputs, members: list[str]) -> Switch | None:
    """The switch that the rules ask for, if any. `members` are in order, and the first choice is among them."""
    incumbent = state.incumbent
    challengers = [target for target in members if target != incumbent and not is_failing(inputs, target)]
    if incumbent is None or not challengers:
        return None
    if is_failing(inputs, incumbent):
        return Switch(
            to=challengers[0], kind=ChangeKind.HARD, sentence=f"{incumbent} fails; {challengers[0]} takes over"
        )
    switches = (rule(state, inputs, incumbent, target) for rule in (_fast, _soft) for target in challengers)
    return next(filter(None, switches), None)


def _fast(state: State, inputs: Inputs, incumbent: str, target: str) -> Switch | None:
    if damped_us(state, inputs.at, inputs.rules):
        return None
    mine, theirs = (eligible(inputs.of(one), inputs.route.slo) for one in (incumbent, target))
    if mine is Eligible.NO and theirs is Eligible.YES:
        sentence = f"{incumbent} breaks the objective and {target} keeps it"
        return Switch(to=target, kind=ChangeKind.FAST, sentence=sentence)
    low_us = slowdown_us(inputs, incumbent, target)
    if low_us is None or not no_worse_group(inputs, incumbent, target) or low_us <= fast_limit_us(inputs, target):
        return None
    sentence = f"{incumbent} has just become slower than {target} by at least {low_us / US_PER_MS:.0f} ms"
    return Switch(to=target, kind=ChangeKind.FAST, sentence=sentence)


def slowdown_us(inputs: Inputs, incumbent: str, target: str) -> float | None:
    """By how much at least the first choice has become slower; what is no news, such as its price, may only excuse it.

    `None` when the short window is too short to say.
    """
    shift = inputs.against(incumbent, target).short
    found = objective_advantage(inputs, incumbent, target, shift)
    if found is None or shift is None or shift.low is None:
        return None
    return min(shift.low, found.low_us)


def fast_limit_us(inputs: Inputs, target: str) -> float:
    """What the fast rule takes against a challenger, in microseconds."""
    median = inputs.of(target).ttft_p50_us
    return inputs.rules.fast_share * median.value if median else float("inf")


def _soft(state: State, inputs: Inputs, incumbent: str, target: str) -> Switch | None:
    epochs = state.streaks.get(target, 0)
    if epochs < inputs.rules.soft_epochs or dwell_left_us(state, inputs.at, inputs.rules):
        return None
    sentence = f"{target} was better than {incumbent} for {epochs} epochs running"
    return Switch(to=target, kind=ChangeKind.SOFT, sentence=sentence)


def is_better(inputs: Inputs, incumbent: str, target: str) -> bool:
    """Whether the soft rule speaks for `target` in this epoch."""
    return no_worse_group(inputs, incumbent, target) and is_ahead(inputs, incumbent, target)


def count_epoch(state: State, inputs: Inputs, members: list[str]) -> State:
    """The state with this epoch's challenges and ties counted, once per epoch."""
    epoch, incumbent = epoch_of(inputs.at, inputs.rules), state.incumbent
    if epoch == state.epoch or incumbent is None:
        return state
    running = 0 < epoch - state.epoch <= _RUNNING
    challengers = [target for target in members if target != incumbent]
    before = state.streaks if running else {}
    better = {target: before.get(target, 0) + 1 for target in challengers if is_better(inputs, incumbent, target)}
    ties = {target: count for target in challengers if (count := _tie_count(state, inputs, incumbent, target))}
    return replace(state, epoch=epoch, epoch_weights=state.weights, streaks=better, ties=ties)


def _tie_count(state: State, inputs: Inputs, incumbent: str, target: str) -> int:
    """Counts up to the soft rule's epochs while level, and down while worse; what is neither changes nothing, so that
    who shares goes on sharing until something speaks against it.
    """
    count = state.ties.get(target, 0)
    if not no_worse_group(inputs, incumbent, target) or is_behind(inputs, incumbent, target):
        return max(count - 1, 0)
    return min(count + 1, inputs.rules.soft_epochs) if is_level(inputs, incumbent, target) else count


def shares(state: State, inputs: Inputs, target: str) -> bool:
    """Whether a member has the first rank too: it was level for long enough, and stays for as long when it is not any
    more.
    """
    count = state.ties.get(target, 0)
    return count >= inputs.rules.soft_epochs or (count > 0 and state.weights.get(target, 0.0) > 0)


def apply_switch(state: State, switch: Switch, inputs: Inputs) -> State:
    """The state after a switch; one that the plan asked for adds no penalty."""
    at, rules = inputs.at, inputs.rules
    added = 0.0 if switch.kind is ChangeKind.PLAN else rules.penalty
    recent = tuple(earlier for earlier in state.switches if at - earlier < DAY_US)
    return replace(
        state,
        incumbent=switch.to,
        since_at=at,
        streaks={},
        ties={},
        switches=(*recent, at),
        penalty=penalty_at(state, at, rules) + added,
        penalty_at=at,
    )
