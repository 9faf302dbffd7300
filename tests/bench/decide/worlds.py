"""Worlds of the bench: levels that change in time, and the TTFTs of probes around them.

What they lack: members whose noise differs, load that follows the route's own weights, and clocks that are wrong.
"""

from dataclasses import dataclass

import numpy as np

from bench.truth.series import chained
from isochrone_collector.analysis.stats.arrays import Flags, Reals

BASE_MS = 350.0
SIGMA = 0.45
DAY_S = 86_400
TIME_LIMIT_MS = 10_000.0
RETRY_MS = 1_000.0
TIGHT_SHARE = 0.5
OUTAGE_EVERY_S = 1200
DRIFT_KEPT, DRIFT_STEP_S = 0.97, 300.0
HEAVY_FACTOR = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A world: `gap_ms` between the best member and the others, which changes every `period_s` (0: never).

    `share` of the variance of the noise has `autocorrelation` from round to round; `drift` is the share of a slow drift
    of each member, which the vantages share; `heavy` that of values ten times as large. With `swing`, levels follow the
    hour of the day. A member has an outage of `outage_s` now and then, or takes only half of the traffic for two hours.
    """

    name: str
    members: int = 2
    vantages: int = 2
    every_s: int = 50
    days: float = 1.0
    gap_ms: float = 0.0
    period_s: int = 0
    swing: float = 0.0
    share: float = 1.0
    autocorrelation: float = 0.0
    drift: float = 0.0
    heavy: float = 0.0
    outage_s: int = 0
    throttles: bool = False
    starts_slow_s: int = 0
    has_history: bool = False

    @property
    def is_equal(self) -> bool:
        """Whether the members are equal in the long run, so that each move is one too many."""
        return not (self.gap_ms or self.swing or self.outage_s or self.throttles)


WORLDS = (
    World(name="seeds: slower after 75 s, fallback at 200 ms", every_s=10, days=0.1, gap_ms=400, starts_slow_s=75),
    World(name="2 h, 150 ms", gap_ms=150, period_s=7200, days=2),
    World(name="2 h, 400 ms", gap_ms=400, period_s=7200),
    World(name="30 min, 150 ms", gap_ms=150, period_s=1800),
    World(name="30 min, 400 ms", gap_ms=400, period_s=1800),
    World(name="2 h, 150 ms, four members", gap_ms=150, period_s=7200, members=4),
    World(name="2 h, 150 ms, eight members", gap_ms=150, period_s=7200, members=8),
    World(name="2 h, 150 ms, one vantage", gap_ms=150, period_s=7200, vantages=1, days=2),
    World(name="2 h, 150 ms, four vantages", gap_ms=150, period_s=7200, vantages=4),
    World(name="2 h, 150 ms, rounds of 10 s", gap_ms=150, period_s=7200, every_s=10, days=0.5),
    World(name="2 h, 150 ms, rounds of 300 s", gap_ms=150, period_s=7200, every_s=300, days=6),
    World(name="2 h, 150 ms, AR(.5)", gap_ms=150, period_s=7200, autocorrelation=0.5, days=2),
    World(name="2 h, 150 ms, AR(.8)", gap_ms=150, period_s=7200, autocorrelation=0.8, days=2),
    World(name="2 h, 150 ms, AR(.97)", gap_ms=150, period_s=7200, autocorrelation=0.97),
    World(name="2 h, 150 ms, 2 % heavy", gap_ms=150, period_s=7200, heavy=0.02),
    World(name="constant 60 ms", gap_ms=60),
    World(name="swing of 15 % by day", swing=0.15, days=2),
    World(name="swing of 30 % by day", swing=0.3, days=2),
    World(name="outages of 70 s, rounds of 10 s", outage_s=70, every_s=10),
    World(name="outages of 130 s", outage_s=130, days=4),
    World(name="throttling", throttles=True),
    World(name="equal", days=2),
    World(name="equal, four members", members=4),
    World(name="equal, AR(.5)", autocorrelation=0.5, days=2),
    World(name="equal, drift .1", drift=0.1, days=3),
    World(name="equal, drift .1, a week of history", drift=0.1, days=3, has_history=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What happens in a world: `cost_ms` of a request by round and member, when a member takes only half of the
    traffic, and the probes by round, member and vantage: `ttft_ms`, and whether they failed or were refused.
    """

    world: World
    cost_ms: Reals
    is_tight: Flags
    ttft_ms: Reals
    failed: Flags
    throttled: Flags


def course(world: World, seed: int) -> Course:
    chance = np.random.default_rng([seed, *world.name.encode()])
    rounds = int(world.days * DAY_S) // world.every_s
    levels = _levels(world, rounds, chance)
    shape = (rounds, world.members, world.vantages)
    values = levels[..., np.newaxis] * np.exp(SIGMA * _noise(world, shape, chance))
    values *= np.where(chance.random(shape) < world.heavy, HEAVY_FACTOR, 1.0)
    cost = levels * np.exp(SIGMA**2 / 2) * (1 + world.heavy * (HEAVY_FACTOR - 1))
    is_out, is_tight = _outages(world, rounds, chance), _tight(world, rounds)
    throttled = is_tight[..., np.newaxis] & (chance.random(shape) < TIGHT_SHARE)
    cost = np.where(is_out, TIME_LIMIT_MS, cost)
    failed = np.broadcast_to(is_out[..., np.newaxis], shape)
    return Course(world=world, cost_ms=cost, is_tight=is_tight, ttft_ms=values, failed=failed, throttled=throttled)


def _levels(world: World, rounds: int, chance: np.random.Generator) -> Reals:
    day = np.arange(rounds) * world.every_s / DAY_S
    if world.swing:
        phases = chance.random(world.members)
        return np.asarray(BASE_MS * (1 + world.swing * np.sin(2 * np.pi * (day[:, np.newaxis] + phases))))
    if world.starts_slow_s:
        is_slow = np.arange(rounds) * world.every_s >= world.starts_slow_s
        return np.stack([np.where(is_slow, 120 + world.gap_ms, 120.0), np.full(rounds, 200.0)], axis=1)
    levels = np.full((rounds, world.members), BASE_MS + world.gap_ms)
    period = world.period_s // world.every_s or rounds
    best, start, end = int(chance.integers(world.members)), 0, int(chance.integers(1, period + 1))
    while start < rounds:
        levels[start : end if world.period_s else rounds, best] = BASE_MS
        best = (best + 1 + int(chance.integers(world.members - 1))) % world.members
        start, end = (end if world.period_s else rounds), end + period
    return levels


def _noise(world: World, shape: tuple[int, int, int], chance: np.random.Generator) -> Reals:
    noise = _autoregressive(chance.standard_normal(shape), world.autocorrelation)
    if world.drift:
        kept = DRIFT_KEPT ** (world.every_s / DRIFT_STEP_S)
        drift = _autoregressive(chance.standard_normal(shape[:2]), kept)
        noise = np.sqrt(1 - world.drift) * noise + np.sqrt(world.drift) * drift[..., np.newaxis]
    return noise


def _autoregressive(noise: Reals, kept: float) -> Reals:
    noise[0] /= np.sqrt(1 - kept**2)
    return chained(noise, kept, axis=0)


def _outages(world: World, rounds: int, chance: np.random.Generator) -> Flags:
    found = np.zeros((rounds, world.members), bool)
    length = world.outage_s / world.every_s
    for place in range(1, int(rounds * world.every_s / OUTAGE_EVERY_S) if world.outage_s else 0):
        start = (place + 0.5 * chance.random()) * OUTAGE_EVERY_S / world.every_s
        found[round(start) : round(start + length), int(chance.integers(world.members))] = True
    return found


def _tight(world: World, rounds: int) -> Flags:
    """Return when the first member refuses half of its requests: in the third of every six hours."""
    found = np.zeros((rounds, world.members), bool)
    hours = np.arange(rounds) * world.every_s / 3600 % 6
    found[:, 0] = world.throttles & (hours >= 2) & (hours < 4)  # hours
    return found
