"""Rules for switching the first choice, and for keeping it although another looks better at the moment.

The rules, in this order:

* *Hard*: the first choice fails: three failures in a row from two vantages, or success certainly below the minimum.
* *Fast*: over the short window it takes at least a quarter longer than the challenger, or it certainly misses the
  objective while the challenger certainly meets it. This skips the dwell, but not the extension by the penalty.
* *Soft*: over the middle window it is worse by at least the margin, the interval excludes zero, this holds for three
  epochs in a row, and the last switch is half an hour ago, or longer while the penalty of earlier switches lasts.

The penalty is that of route flap damping (RFC 2439): each switch adds to it, and it halves in half an hour. Unlike in
the RFC, it excludes no member, but only extends the dwell (RFC 7196 explains why exclusion was a mistake).

A first choice is made as soon as one member can be ranked. If another member gets enough rounds later, a fast or soft
switch to it only corrects that choice: neither member changed its speed. So a switch to a member that was not in the
ranking before the rounds that decide is of the kind `first` and adds no penalty.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from isochrone_collector.analysis.stats.shifts import Shift
from isochrone_collector.routing.inputs import Inputs, Rules
from isochrone_collector.routing.objective import (
    US_PER_MS,
    cost_of,
    eligible,
    group_of,
    is_ahead,
    is_behind,
    is_failing,
    is_level,
    no_worse_group,
    objective_advantage,
)
from isochrone_collector.routing.parallel_requests import Gains, Tails, extended, known_gains
from isochrone_wire.durations import DAY_US
from isochrone_wire.insights import Eligible
from isochrone_wire.routes import ChangeKind

# The maximum dwell, as a multiple of the normal one.
_MAX_DWELLS = 8.0
# Epochs further apart than this do not count as consecutive.
_RUNNING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state between two decisions. `streaks` counts the epochs in which a member was better by the soft rule,
    `ties` those in which it was level with the first choice; both as of `epoch`, which began with `epoch_weights`.
    `since_at` is the instant of the last switch, `newest_at` the newest sample a decision was based on. `ranked_since`
    is the instant at which each member was ranked first; 0, or no value, if that is long ago or it was measured long
    before. `tails` are the joint rounds until `tails_until_at`; `gains` are the pairs whose hedge is known to shorten
    the p99.
    """

    incumbent: str | None = None
    since_at: int = 0
    epoch: int = 0
    streaks: Mapping[str, int] = field(default_factory=dict)
    ties: Mapping[str, int] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    ranked_since: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    epoch_weights: Mapping[str, float] = field(default_factory=dict)
    switches: tuple[int, ...] = ()
    penalty: float = 0.0
    penalty_at: int = 0
    frozen_at: int | None = None
    newest_at: int = 0
    plan_version: int = 0
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


def penalty_at(state: State, at: int, rules: Rules) -> float:
    """Return the penalty, decayed until `at`."""
    return float(state.penalty * 2.0 ** (-max(at - state.penalty_at, 0) / rules.half_life_us))


def dwell_us(state: State, at: int, rules: Rules) -> int:
    """Return the dwell after a switch, in microseconds: extended by recent switches, up to a maximum."""
    return round(rules.dwell_us * min(max(1.0, penalty_at(state, at, rules) / rules.penalty), _MAX_DWELLS))


def dwell_left_us(state: State, at: int, rules: Rules) -> int:
    """Return the rest of the dwell, in microseconds; the very first choice has none and may be corrected at once."""
    return max(state.switches[-1] + dwell_us(state, at, rules) - at, 0) if state.switches else 0


def damped_us(state: State, at: int, rules: Rules) -> int:
    """Return how long a fast switch waits, in microseconds: the rest of the penalty's extension of the dwell."""
    return max(state.switches[-1] + dwell_us(state, at, rules) - rules.dwell_us - at, 0) if state.switches else 0


def ranked_members(inputs: Inputs, members: list[str]) -> list[str]:
    """Sort members from best to worst: not failing, then most certain to meet the objective, then cheapest."""
    wished = inputs.route.static_order

    def key(target: str) -> tuple[bool, int, bool, float, int, str]:
        cost = cost_of(inputs, target)
        place = wished.index(target) if target in wished else len(wished)
        total = cost.total if cost else 0.0
        return (is_failing(inputs, target), group_of(inputs, target), cost is None, total, place, target)

    return sorted(members, key=key)


def find_switch(state: State, inputs: Inputs, members: list[str]) -> Switch | None:
    """Return the switch required by the rules, if any. `members` are in order and include the first choice."""
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
    low_us, limit_us = slowdown_us(inputs, incumbent, target), fast_limit_us(inputs, target)
    if low_us is None or not no_worse_group(inputs, incumbent, target) or low_us <= limit_us:
        return None
    by = f"by at least {low_us / US_PER_MS:.0f} ms"
    if is_new(state, inputs, target, within_us=inputs.rules.short_us):
        sentence = f"{target} now has enough rounds, and is faster than {incumbent} {by}"
        return Switch(to=target, kind=ChangeKind.FIRST, sentence=sentence)
    throughout_us = _slowdown_us(inputs, incumbent, target, inputs.against(incumbent, target).window)
    is_sudden = throughout_us is None or throughout_us <= limit_us
    sentence = f"{incumbent} {'has just become' if is_sudden else 'is'} slower than {target} {by}"
    return Switch(to=target, kind=ChangeKind.FAST, sentence=sentence)


def is_new(state: State, inputs: Inputs, target: str, *, within_us: int) -> bool:
    """Return whether a member entered the ranking within the last `within_us`: it had too few samples before."""
    return inputs.at - state.ranked_since.get(target, 0) < within_us


def slowdown_us(inputs: Inputs, incumbent: str, target: str) -> float | None:
    """Return the certain slowdown of the first choice; `None` if the short window has too few rounds."""
    return _slowdown_us(inputs, incumbent, target, inputs.against(incumbent, target).short)


def _slowdown_us(inputs: Inputs, incumbent: str, target: str, shift: Shift | None) -> float | None:
    found = objective_advantage(inputs, incumbent, target, shift)
    if found is None or shift is None or shift.low is None:
        return None
    return min(shift.low, found.low_us)


def fast_limit_us(inputs: Inputs, target: str) -> float:
    """Return the slowdown, in microseconds, from which on the fast rule switches to a challenger."""
    median = inputs.of(target).ttft_p50_us
    return inputs.rules.fast_share * median.value if median else float("inf")


def _soft(state: State, inputs: Inputs, incumbent: str, target: str) -> Switch | None:
    epochs = state.streaks.get(target, 0)
    if epochs < inputs.rules.soft_epochs or dwell_left_us(state, inputs.at, inputs.rules):
        return None
    better = f"better than {incumbent} for {epochs} epochs running"
    # The epochs of the streak, and the one in which the member entered the ranking.
    if is_new(state, inputs, target, within_us=(epochs + 1) * inputs.rules.epoch_us):
        sentence = f"{target} now has enough rounds, and was {better}"
        return Switch(to=target, kind=ChangeKind.FIRST, sentence=sentence)
    return Switch(to=target, kind=ChangeKind.SOFT, sentence=f"{target} was {better}")


def is_better(inputs: Inputs, incumbent: str, target: str) -> bool:
    """Return whether `target` is better by the soft rule in this epoch."""
    return no_worse_group(inputs, incumbent, target) and is_ahead(inputs, incumbent, target)


def count_epoch(state: State, inputs: Inputs, members: list[str]) -> State:
    """Return the state with this epoch's challenges and ties counted, once per epoch."""
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
    """Count up while level and down while worse; else keep the count, so that a share stays until data deny it."""
    count = state.ties.get(target, 0)
    if not no_worse_group(inputs, incumbent, target) or is_behind(inputs, incumbent, target):
        return max(count - 1, 0)
    return min(count + 1, inputs.rules.soft_epochs) if is_level(inputs, incumbent, target) else count


def remember_tails(state: State, inputs: Inputs, ranked: Sequence[str]) -> State:
    """Return the state with the joint rounds of finished epochs, and the gains that they show."""
    rules = inputs.rules
    # Old enough for all samples, also those of the slowest probes; half a window at most, so that it is still in it.
    timeout_us = max(target.workload.timeouts.first_token_us for target in inputs.targets)
    settled_us = max(rules.epoch_us, min(timeout_us, rules.window_us // 2))
    until_at = epoch_of(inputs.at - settled_us, rules) * rules.epoch_us
    if until_at <= state.tails_until_at:
        return state
    tails = extended(state.tails, inputs, ranked, since_at=state.tails_until_at, until_at=until_at)
    return replace(state, tails=tails, tails_until_at=until_at, gains=known_gains(tails, rules, state.gains))


def shares(state: State, inputs: Inputs, target: str) -> bool:
    """Return whether a member has the first rank, too: level for enough epochs, and for as many epochs afterwards."""
    count = state.ties.get(target, 0)
    return count >= inputs.rules.soft_epochs or (count > 0 and state.weights.get(target, 0.0) > 0)


def apply_switch(state: State, switch: Switch, inputs: Inputs) -> State:
    """Return the state after a switch. The plan's adds no penalty, a correction of the first choice is not counted."""
    at, rules = inputs.at, inputs.rules
    moved = replace(state, incumbent=switch.to, since_at=at, streaks={}, ties={})
    if switch.kind is ChangeKind.FIRST:
        return moved
    added = 0.0 if switch.kind is ChangeKind.PLAN else rules.penalty
    recent = tuple(earlier for earlier in state.switches if at - earlier < DAY_US)
    return replace(moved, switches=(*recent, at), penalty=penalty_at(state, at, rules) + added, penalty_at=at)
