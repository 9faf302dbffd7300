"""Inputs of routing decisions: written by hand, and from a simulation with known truth, decided epoch by epoch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan

import numpy as np
from numpy.typing import ArrayLike

from isochrone_collector.analysis.histogram import buckets_of
from isochrone_collector.analysis.history import NO_HISTORY, History
from isochrone_collector.analysis.probes import Kind
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.analysis.stats.shifts import Shift
from isochrone_collector.routing.decision import Decision, decide
from isochrone_collector.routing.evidence import ProbeTable
from isochrone_collector.routing.inputs import Comparison, Evidence, Inputs, JointRounds, Rules
from isochrone_collector.routing.inputs_builder import build_inputs, rules_of
from isochrone_collector.routing.switch import State
from isochrone_wire.answers import Quantile, Window
from isochrone_wire.model import SECOND_US, Plan, Price, Route, Slo, Target
from isochrone_wire.routes import ChangeKind

RULES = Rules()
AT = 1_800_000_000_000_000 // RULES.epoch_us * RULES.epoch_us


def target_named(name: str, *, usd: float | None = None, region: str | None = None, paused: bool = False) -> Target:
    price = None if usd is None else Price(usd_per_m_output=usd)
    return Target(
        id=ord(name[0]),
        name=name,
        provider=name,
        model="m",
        base_url=f"http://{name}",
        price=price,
        region=region,
        paused=paused,
    )


def evidence(
    name: str,
    p50_ms: float,
    *,
    p95_ms: tuple[float, float] | None = None,
    ok: int = 100,
    n: int = 100,
    newest_at: int = AT,
) -> Evidence:
    """Return the evidence on a member of which `ok` of `n` probes succeeded; by default its p95 is twice its p50."""
    low, high = p95_ms or (p50_ms * 2, p50_ms * 2)
    return Evidence(
        target=name,
        n=ok,
        n_eff=float(ok),
        vantages=2,
        ttft_p50_us=Quantile(value=p50_ms * 1e3),
        ttft_p95_us=Quantile(value=(low + high) / 2 * 1e3, low=low * 1e3, high=high * 1e3),
        success=wilson(ok, n),
        outcomes={"ok": ok, "failed": n - ok},
        newest_at=newest_at,
        histogram={int(buckets_of([p50_ms * 1e3])[0]): ok},
    )


def shift(low_ms: float, high_ms: float) -> Shift:
    return Shift(estimate=(low_ms + high_ms) / 2 * 1e3, low=low_ms * 1e3, high=high_ms * 1e3)


def comparison(left: str, right: str, low_ms: float, high_ms: float) -> Comparison:
    return Comparison(left=left, right=right, n=100, window=shift(low_ms, high_ms))


def joint_rounds(every_us: int = RULES.epoch_us // 6, /, **ttft_ms: Sequence[float]) -> JointRounds:
    """Return rounds until `AT`, with the TTFTs of each member in milliseconds, oldest first; NaN without one."""
    count = max(map(len, ttft_ms.values()), default=0)
    return JointRounds(
        round_at=tuple(AT - (count - 1 - place) * every_us for place in range(count)),
        ttft={
            name: tuple(None if isnan(ms) else int(buckets_of([ms * 1e3])[0]) for ms in column)
            for name, column in ttft_ms.items()
        },
    )


def inputs_for(
    *known: Evidence,
    compared: tuple[Comparison, ...] = (),
    route: Route | None = None,
    targets: Mapping[str, Target] | None = None,
    at: int = AT,
    joint: JointRounds | None = None,
) -> Inputs:
    """Return the inputs of a decision over these members."""
    names = tuple(one.target for one in known)
    return Inputs(
        at=at,
        client_region="eu",
        route=replace(route, members=names) if route else Route(name="r", members=names),
        plan_version=1,
        window=Window(from_at=at - RULES.window_us, until_at=at),
        rules=RULES,
        targets=tuple((targets or {}).get(name) or target_named(name) for name in names),
        evidence=known,
        comparisons=compared,
        vantages=4,
        suspects=0,
        vantages_here=2,
        joint=joint or JointRounds(),
    )


START_AT = 1_800_000_000 * SECOND_US
SWITCHES = (ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD)
# Twelve probes per epoch, the default of the rules: two vantages, six rounds.
EVERY_US = 50 * SECOND_US
DRIFT_CORRELATION = 0.97
DRIFT_STEP_US = 300 * SECOND_US

Fails = Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    inputs: Inputs
    before: State
    decision: Decision

    @property
    def switched(self) -> bool:
        return self.decision.change in SWITCHES

    @property
    def first(self) -> str | None:
        return self.decision.state.incumbent

    @property
    def weights(self) -> dict[str, float]:
        return {entry.target: entry.weight for entry in self.decision.entries}


def none_fail(member: int, vantage: int) -> bool:
    del member, vantage
    return False


def target(place: int, *, every_us: int = EVERY_US) -> Target:
    """Return the member with this index; each has its own provider."""
    return Target(
        id=place + 1,
        name=f"p{place}/m",
        provider=f"p{place}",
        model="m",
        base_url=f"http://p{place}",
        every_us=every_us,
    )


def probe_table(
    members: Sequence[str],
    regions: Sequence[str],
    *,
    member: ArrayLike,
    vantage_id: ArrayLike,
    round_at: ArrayLike,
    kind: ArrayLike,
    ttft_us: ArrayLike,
    region: ArrayLike = 0,
) -> ProbeTable:
    """Return punctual probes without round trip and speed, a row each; by default all of the first region."""
    rounds, values = np.asarray(round_at, np.int64), np.asarray(ttft_us, np.float64)
    unknown = np.full(len(values), np.nan)
    return ProbeTable(
        members=tuple(members),
        regions=tuple(regions),
        member=np.asarray(member, np.int64),
        region=np.broadcast_to(np.asarray(region, np.int64), rounds.shape),
        vantage_id=np.asarray(vantage_id, np.int64),
        round_at=rounds,
        kind=np.asarray(kind, np.int8),
        ttft_us=values,
        censored=np.zeros(len(values), np.bool_),
        rtt_us=unknown,
        tokens_per_second=unknown,
        comparable=np.ones(len(values), np.bool_),
        answer_from_us=values,
        first_chunk_tokens=np.ones(len(values)),
    )


def plan_of(
    *targets: Target, slo: Slo | None = None, route: Route | None = None, version: int = 1, control: str = ""
) -> Plan:
    route = route or Route(name="r", members=tuple(one.name for one in targets), slo=slo or Slo())
    return Plan(version=version, baseline="r0", targets=targets, control=control, routes=(route,))


@dataclass(slots=True, kw_only=True)
class RoutingSimulation:
    """Log-normal TTFT with standard deviation `sigma` of its logarithm, by default 0.45, and first-order
    `autocorrelation` over the rounds. A share `drift` of its variance is slow drift of the member, which the vantages
    of a region share and whose correlation falls to 0.97 in five minutes. Vantage v is in region `v // per_region`.
    """

    seed: int
    plan: Plan = field(default_factory=lambda: plan_of(target(0), target(1)))
    regions: int = 3
    per_region: int = 2
    sigma: float = 0.45
    autocorrelation: float = 0.0
    drift: float = 0.0
    history: History = NO_HISTORY
    state: State = field(default_factory=State)
    at: int = 0
    _rows: list[Reals] = field(default_factory=list)
    _drifts: dict[tuple[int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        epoch_us = rules_of(self.plan.routes[0], self.plan).epoch_us
        self.at = START_AT // epoch_us * epoch_us

    _random: np.random.Generator = field(init=False)

    def run(
        self,
        epochs: int,
        *medians_ms: float,
        fails: Fails = none_fail,
        silent: bool = False,
        decisions_per_epoch: int = 1,
        here: int = 0,
    ) -> list[DecisionRecord]:
        """Advance and decide for region `here`, several times in each epoch. With `silent`, no samples arrive."""
        rules = rules_of(self.plan.routes[0], self.plan)
        until_at = self.at + epochs * rules.epoch_us
        if not silent:
            self._rows += [
                self._simulate_member(place, medians_ms[place], fails, until_at)
                for place in range(len(self.plan.targets))
            ]
        rows = np.concatenate(self._rows, axis=1)
        self._rows = [rows[:, np.argsort(rows[3], kind="stable")]]
        found = []
        for _ in range(epochs * decisions_per_epoch):
            self.at += rules.epoch_us // decisions_per_epoch
            from_place, to_place = np.searchsorted(self._rows[0][3], [self.at - rules.window_us, self.at])
            found.append(self.decide_now(self._rows[0][:, from_place:to_place], here))
        return found

    def decide_now(self, rows: Reals, here: int = 0) -> DecisionRecord:
        (inputs,) = build_inputs(
            self.plan.routes[0],
            self.plan,
            self._probe_table(rows),
            regions=[f"r{here}"],
            at=self.at,
            history=self.history,
        )
        record = DecisionRecord(inputs, self.state, decide(inputs, self.state))
        self.state = record.decision.state
        return record

    def _simulate_member(self, place: int, median_ms: float, fails: Fails, until_at: int) -> Reals:
        every_us = self.plan.targets[place].every_us
        rounds_at = np.arange(-(-self.at // every_us), -(-until_at // every_us)) * every_us
        vantages = self.regions * self.per_region
        noise = np.stack([self._noise_series(len(rounds_at)) for _ in range(vantages)])
        if self.drift:
            drifts = [self._drift_series(place, region, len(rounds_at), every_us) for region in range(self.regions)]
            noise = np.sqrt(1 - self.drift) * noise + np.sqrt(self.drift) * np.repeat(drifts, self.per_region, axis=0)
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

    def _noise_series(self, rounds: int) -> Reals:
        noise = self._random.standard_normal(rounds)
        for place in range(1, rounds if self.autocorrelation else 0):
            noise[place] = self.autocorrelation * noise[place - 1] + np.sqrt(1 - self.autocorrelation**2) * noise[place]
        return noise

    def _drift_series(self, place: int, region: int, rounds: int, every_us: int) -> Reals:
        """Return the drift of a member in a region, which continues over the runs."""
        kept = DRIFT_CORRELATION ** (every_us / DRIFT_STEP_US)
        last = self._drifts.get((place, region), float(self._random.standard_normal()))
        drift = np.sqrt(1 - kept**2) * self._random.standard_normal(rounds)
        for step in range(rounds):
            last = drift[step] = kept * last + drift[step]
        self._drifts[place, region] = last
        return np.asarray(drift)

    def _probe_table(self, rows: Reals) -> ProbeTable:
        return probe_table(
            [one.name for one in self.plan.targets],
            [f"r{place}" for place in range(self.regions)],
            member=rows[0],
            region=rows[1],
            vantage_id=rows[2] + 100,
            round_at=rows[3],
            kind=rows[4],
            ttft_us=rows[5],
        )

    def replan(self, plan: Plan) -> None:
        self.plan = replace(plan, version=self.plan.version + 1)
