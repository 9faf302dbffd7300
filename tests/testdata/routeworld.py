"""A world with known truth and a clock of its own, in which routes are decided epoch by epoch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from isochrone_collector.analysis.probes import Kind, Reals
from isochrone_collector.routing.decision import Decision, decide
from isochrone_collector.routing.evidence import ProbeTable
from isochrone_collector.routing.inputs import Inputs
from isochrone_collector.routing.inputs_builder import build_inputs, rules_of
from isochrone_collector.routing.switch import State
from isochrone_wire.model import SECOND_US, Plan, Route, Slo, Target
from isochrone_wire.routes import ChangeKind

START_AT = 1_800_000_000 * SECOND_US
SWITCHES = (ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD)
# The notes' setting is twelve probes an epoch: two vantages, six rounds.
EVERY_US = 50 * SECOND_US

Fails = Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class Moment:
    """One decision: what it was made from, and what came out."""

    inputs: Inputs
    before: State
    decision: Decision

    @property
    def switched(self) -> bool:
        """Whether the first choice changed."""
        return self.decision.change in SWITCHES

    @property
    def first(self) -> str | None:
        """The first choice."""
        return self.decision.state.incumbent

    @property
    def weights(self) -> dict[str, float]:
        """The weights as published."""
        return {entry.target: entry.weight for entry in self.decision.entries}


def nobody(member: int, vantage: int) -> bool:
    """Nothing fails."""
    del member, vantage
    return False


def target(place: int, *, every_us: int = EVERY_US) -> Target:
    """The member at a place, each of a provider of its own."""
    return Target(
        id=place + 1,
        name=f"p{place}/m",
        provider=f"p{place}",
        model="m",
        base_url=f"http://p{place}",
        every_us=every_us,
    )


def plan_of(
    *targets: Target, slo: Slo | None = None, route: Route | None = None, version: int = 1, control: str = ""
) -> Plan:
    """A plan with a route over all its targets."""
    route = route or Route(name="r", members=tuple(one.name for one in targets), slo=slo or Slo())
    return Plan(version=version, baseline="r0", targets=targets, control=control, routes=(route,))


@dataclass(slots=True, kw_only=True)
class World:
    """Log-normal TTFT of deviation `sigma`, by default 0.45, in which each round is correlated by `likeness` with the
    one before. Vantage v stands in region `v // per_region`.
    """

    seed: int
    plan: Plan = field(default_factory=lambda: plan_of(target(0), target(1)))
    regions: int = 3
    per_region: int = 2
    sigma: float = 0.45
    likeness: float = 0.0
    state: State = field(default_factory=State)
    at: int = 0
    _rows: list[Reals] = field(default_factory=list)
    _noise: Reals | None = None

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        epoch_us = rules_of(self.plan.routes[0], self.plan).epoch_us
        self.at = START_AT // epoch_us * epoch_us

    _random: np.random.Generator = field(init=False)

    def play(
        self,
        epochs: int,
        *medians_ms: float,
        fails: Fails = nobody,
        silent: bool = False,
        looks: int = 1,
        here: int = 0,
    ) -> list[Moment]:
        """Let so many epochs pass, and decide for region `here` `looks` times in each. `silent` sends nothing."""
        return list(self._moments(epochs, medians_ms, fails, silent=silent, looks=looks, here=here))

    def _moments(
        self, epochs: int, medians_ms: Sequence[float], fails: Fails, *, silent: bool, looks: int, here: int
    ) -> Iterator[Moment]:
        rules = rules_of(self.plan.routes[0], self.plan)
        until_at = self.at + epochs * rules.epoch_us
        if not silent:
            self._rows += [
                self._probed(place, medians_ms[place], fails, until_at) for place in range(len(self.plan.targets))
            ]
        rows = np.concatenate(self._rows, axis=1)
        self._rows = [rows[:, np.argsort(rows[3], kind="stable")]]
        for _ in range(epochs * looks):
            self.at += rules.epoch_us // looks
            from_place, to_place = np.searchsorted(self._rows[0][3], [self.at - rules.window_us, self.at])
            yield self.look(self._rows[0][:, from_place:to_place], here)

    def look(self, rows: Reals, here: int = 0) -> Moment:
        """Decide from some rows now."""
        (inputs,) = build_inputs(self.plan.routes[0], self.plan, self._seen(rows), regions=[f"r{here}"], at=self.at)
        moment = Moment(inputs, self.state, decide(inputs, self.state))
        self.state = moment.decision.state
        return moment

    def _probed(self, place: int, median_ms: float, fails: Fails, until_at: int) -> Reals:
        every_us = self.plan.targets[place].every_us
        rounds_at = np.arange(-(-self.at // every_us), -(-until_at // every_us)) * every_us
        vantages = self.regions * self.per_region
        noise = np.stack([self._course(len(rounds_at)) for _ in range(vantages)])
        values = median_ms * 1000 * np.exp(self.sigma * noise)
        failed = np.array([[fails(place, vantage)] for vantage in range(vantages)]) & np.ones(len(rounds_at), bool)
        vantage = np.repeat(np.arange(vantages), len(rounds_at))
        return np.stack(
            [
                np.full(vantage.shape, place, np.float64),
                vantage // self.per_region,
                vantage,
                np.tile(rounds_at, vantages),
                np.where(failed, int(Kind.FAILED), int(Kind.OK)).ravel(),
                np.where(failed, np.nan, values).ravel(),
            ]
        )

    def _course(self, rounds: int) -> Reals:
        """Normal noise in which each value resembles the one before."""
        noise = self._random.standard_normal(rounds)
        for place in range(1, rounds if self.likeness else 0):
            noise[place] = self.likeness * noise[place - 1] + np.sqrt(1 - self.likeness**2) * noise[place]
        return noise

    def _seen(self, rows: Reals) -> ProbeTable:
        return ProbeTable(
            members=tuple(one.name for one in self.plan.targets),
            regions=tuple(f"r{place}" for place in range(self.regions)),
            member=rows[0].astype(np.int64),
            region=rows[1].astype(np.int64),
            vantage_id=rows[2].astype(np.int64) + 100,
            round_at=rows[3].astype(np.int64),
            kind=rows[4].astype(np.int8),
            ttft_us=rows[5],
            censored=np.zeros(rows.shape[1], np.bool_),
            rtt_us=np.full(rows.shape[1], np.nan),
            tokens_per_second=np.full(rows.shape[1], np.nan),
        )

    def replan(self, plan: Plan) -> None:
        """A new plan is in force."""
        self.plan = replace(plan, version=self.plan.version + 1)
