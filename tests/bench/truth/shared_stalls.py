"""Stalls that the members of a route share: the p99 of a race, and hedges, against the truth.

Every request that starts within a stall takes five seconds longer. The instants of the probes are those of the agent's
schedule, and the figures those of the collector's own functions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from isochrone_agent.plan.schedule import timings
from isochrone_collector.analysis.probes import Kind
from isochrone_collector.analysis.simulation import SentProbes, find_shared_rounds, policy, policy_inputs
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_collector.routing.decision import decide
from isochrone_collector.routing.evidence import ProbeTable
from isochrone_collector.routing.inputs_builder import build_inputs, rules_of
from isochrone_collector.routing.switch import State
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Plan, Route, Target, target_id
from isochrone_wire.routes import Hedge

START_AT = 1_800_000_000 * SECOND_US
EVERY_US = MINUTE_US
MEDIANS_US = (350e3, 380e3)
SIGMA = 0.45
STALL_US = 5 * SECOND_US
STALL_SHARE = 0.02
DAYS = 4
TABLES = 150
_TRUTH_DRAWS = 400_000


@dataclass(frozen=True, slots=True)
class Sent:
    """The probes of one vantage, a column per member: rounds, starts and TTFTs in microseconds."""

    round_at: Integers
    begins_at: Integers
    ttft_us: Reals


class World:
    """Two members, and the stalls of each; these are the same if they are `common`."""

    def __init__(self, seed: int, *, common: bool = True) -> None:
        self.random = np.random.default_rng(seed)
        stalls = [self._stalls() for _ in MEDIANS_US]
        self._stalls_of = [stalls[0], stalls[0 if common else 1]]

    def _stalls(self) -> Reals:
        """The starts of stalls, which take the share of the time, at random."""
        count = round((DAYS + 1) * DAY_US * STALL_SHARE / STALL_US)
        return np.sort(START_AT + self.random.uniform(0, (DAYS + 1) * DAY_US, count))

    def ttft_us(self, member: int, at: Integers) -> Reals:
        """Draw the TTFT of a member for requests at these instants."""
        starts = self._stalls_of[member]
        last = starts[np.maximum(np.searchsorted(starts, at, side="right") - 1, 0)]
        stalled = (at >= last) & (at < last + STALL_US)
        alone = MEDIANS_US[member] * np.exp(SIGMA * self.random.standard_normal(len(at)))
        return np.asarray(alone + STALL_US * stalled)

    def sent(self, plan: Plan, rounds: int) -> Sent:
        columns = []
        for timing in timings(plan.targets, vantage="v", routes=plan.routes):
            first_at = timing.latest(START_AT + EVERY_US).round_at
            columns.append([timing.round(first_at + nth * EVERY_US) for nth in range(rounds)])
        begins_at = np.array([[due.begins_at for due in column] for column in columns]).T
        return Sent(
            np.array([[due.round_at for due in column] for column in columns]).T,
            begins_at,
            np.column_stack([self.ttft_us(member, begins_at[:, member]) for member in range(len(columns))]),
        )

    def true_race_p99_us(self) -> float:
        """The p99 of the sooner of two requests at any instant."""
        at = START_AT + self.random.integers(0, DAYS * DAY_US, _TRUTH_DRAWS)
        return float(np.quantile(np.minimum(self.ttft_us(0, at), self.ttft_us(1, at)), 0.99))


def plan_of(*, routed: bool = True) -> Plan:
    """A plan of two targets, members of one route unless `routed` is false."""
    targets = tuple(_target(f"p{place}/m") for place in range(len(MEDIANS_US)))
    route = Route(name="r", members=tuple(target.name for target in targets))
    return Plan(version=1, baseline="here", targets=targets, routes=(route,) if routed else ())


def _target(name: str) -> Target:
    target = Target(id=0, name=name, provider=name[:2], model="m", base_url=f"http://{name[:2]}", every_us=EVERY_US)
    identity = target_id(
        provider=target.provider, model="m", base_url=target.base_url, dialect=target.dialect, workload=target.workload
    )
    return replace(target, id=identity)


def reported_race_p99_us(plan: Plan, sent: Sent) -> float | None:
    """Return the p99 of `race:2` replayed on the joint rounds; `None` if there are too few."""
    ids = np.array([target.id for target in plan.targets])
    count = len(sent.round_at)
    probes = SentProbes(
        target_id=np.tile(ids, count),
        vantage_id=np.ones(sent.round_at.size, np.int64),
        round_at=sent.round_at.ravel(),
        dispatched_at=sent.begins_at.ravel(),
        throttled=np.zeros(sent.round_at.size, np.bool_),
        ttft_us=sent.ttft_us.ravel(),
        limit_us=np.zeros(sent.round_at.size),
        cost_usd=np.zeros(sent.round_at.size),
    )
    (found,) = find_shared_rounds(probes, ids.tolist(), {1: "here"})
    if len(found.recorded) <= found.recorded.learning:
        return None
    (given,) = policy_inputs([found.recorded])
    replay = policy("race:2", [target.name for target in plan.targets]).play(given)
    p99 = replay.ttft.quantile(0.99)
    return p99.value if p99 else None


def hedges(plan: Plan, sent: Sent, *, tables: int) -> Iterator[Hedge]:
    """Yield the hedge of each table of `plan`'s route, one table per epoch."""
    route, state = plan.routes[0], State()
    rules = rules_of(route, plan)
    probes = _probe_table(plan, sent)
    first_at = int(sent.round_at.min()) // rules.epoch_us * rules.epoch_us + rules.epoch_us
    for at in range(first_at, first_at + tables * rules.epoch_us, rules.epoch_us):
        recent = probes.where((probes.round_at >= at - rules.window_us) & (probes.round_at < at))
        (inputs,) = build_inputs(route, plan, recent, regions=["here"], at=at)
        decision = decide(inputs, state)
        state = decision.state
        yield from (entry.hedge for entry in decision.entries if entry.hedge)


def _probe_table(plan: Plan, sent: Sent) -> ProbeTable:
    count = sent.round_at.size
    return ProbeTable(
        members=tuple(target.name for target in plan.targets),
        regions=("here",),
        member=np.tile(np.arange(len(plan.targets)), len(sent.round_at)),
        region=np.zeros(count, np.int64),
        vantage_id=np.ones(count, np.int64),
        round_at=sent.round_at.ravel(),
        kind=np.full(count, Kind.OK, np.int8),
        ttft_us=sent.ttft_us.ravel(),
        censored=np.zeros(count, np.bool_),
        rtt_us=np.full(count, np.nan),
        tokens_per_second=np.full(count, np.nan),
        comparable=np.ones(count, np.bool_),
        answer_from_us=np.full(count, np.nan),
        first_chunk_tokens=np.full(count, np.nan),
    )


def race_p99_error_pct(seed: int) -> float:
    """Return by how much the reported p99 of a race differs from the true one, in percent; infinite without any."""
    world, plan = World(seed), plan_of()
    reported = reported_race_p99_us(plan, world.sent(plan, DAYS * DAY_US // EVERY_US))
    return 100 * abs(reported / world.true_race_p99_us() - 1) if reported else float("inf")


def hedged(seed: int, *, common: bool, tables: int = TABLES) -> tuple[int, int]:
    """Return the number of tables that recommend a hedge, and of all that could."""
    world, plan = World(seed, common=common), plan_of()
    rules = rules_of(plan.routes[0], plan)
    found = list(hedges(plan, world.sent(plan, (tables + 1) * rules.epoch_us // EVERY_US), tables=tables))
    return sum(hedge.delay_us is not None for hedge in found), len(found)


def figures(seed: int = 1, *, worlds: int = 2) -> dict[str, float]:
    """Return the worst error of a race's p99 in percent (goal: at most 10), the tables that recommend a hedge under
    common stalls (goal: 0) of those that could, and their share in percent under stalls that are not common.
    """
    seeds = range(seed, seed + worlds)
    common = [hedged(one, common=True) for one in seeds]
    apart = [hedged(one, common=False) for one in seeds]
    return {
        "race_p99_error_pct": max(race_p99_error_pct(one) for one in seeds),
        "hedged_common_stalls": sum(count for count, _ in common),
        "hedge_tables": sum(count for _, count in common),
        "hedged_own_stalls_pct": 100 * sum(count for count, _ in apart) / sum(count for _, count in apart),
    }
