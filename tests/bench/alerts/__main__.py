"""Alerts of a simulated fleet: faults of many kinds, and then quiet hours with the usual noise.

Five vantages in three regions measure eight targets every minute; time is simulated. Their samples go through the real
ingest into a real PostgreSQL, and the real job finds the incidents and raises the alerts. All the time 0.5 to 1 % of
the requests to a target fail or time out, single ones are throttled, rounds are missing, answers are slow for some
minutes, and agents restart. The result counts incidents: those that the faults must lead to, those that were raised,
those that no fault explains, and those that are missing, incomplete or without their alerts.

usage: python -m bench.alerts [--hours 24] [--seed 20261123] prints a line per fault and a RESULT line; exit 1 when a
goal is missed
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

import structlog

from bench.alerts.accounting import Account, Expected, account
from bench.alerts.faults import CONTROL, FAULTS, NEW_TARGET, TARGETS, Fault, region_of
from bench.result import at_least, at_most, conclude
from fixtures.inprocess_collector import DAY_AT, InProcessCollector, in_process_collector
from isochrone_collector.jobs.incident_detection import IncidentDetection
from isochrone_collector.store import alerts, incidents
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Heartbeat, Outcome, Sample, Vantage

SEED = 20261123
EVERY_US = MINUTE_US
# Noise alone before the first fault, and the rounds from one fault to the next.
WARM_UP_ROUNDS = 60
SLOT_ROUNDS = 45
# Instants at which vantages deliver a round and the job runs, in seconds after the start of the round.
DELIVERED_S = {"us-1": 3, "us-2": 5, "sg-1": 6, "fra-1": 10, "fra-2": 19}
RUN_S = (8, 12, 21, 32)
GOALS = {
    "spurious": at_most(0),
    "missed": at_most(0),
    "first_alert_rounds": at_most(3),
    "faults": at_least(len(FAULTS)),
}


@dataclass(slots=True)
class Noise:
    """Conditions of every fleet: some failures and refusals, missing rounds, slow minutes, agents that restart."""

    rng: Random
    failing: dict[str, float] = field(init=False)
    away_until: dict[str, int] = field(default_factory=dict)
    slow_until: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.failing = {target: self.rng.uniform(0.003, 0.008) for target in (*TARGETS, NEW_TARGET)}

    def reports(self, vantage: str, number: int) -> bool:
        """Return whether a vantage probes at all in a round: an agent restarts about every eight hours."""
        if self.rng.random() < 1 / 480:
            self.away_until[vantage] = number + self.rng.randint(1, 5)
        return number >= self.away_until.get(vantage, 0)

    def outcome(self, target: str) -> Outcome | None:
        """Return the outcome of a request, `None` if the round is missing."""
        draw = self.rng.random() - self.failing[target]
        for outcome, share in ((Outcome.TIMED_OUT, 0.002), (Outcome.THROTTLED, 0.002), (None, 0.003)):
            if draw < 0:
                return Outcome.HTTP_ERROR
            if draw < share:
                return outcome
            draw -= share
        return Outcome.OK

    def ttft_us(self, target: str, number: int) -> int:
        """Return a time to first token; sometimes all answers of a target are slow for ten minutes."""
        if self.rng.random() < 1 / 2400:
            self.slow_until[target] = number + 10
        factor = 6 if number < self.slow_until.get(target, 0) else 1
        return round(400_000 * factor * self.rng.lognormvariate(0, 0.3))


@dataclass(slots=True)
class Run:
    local: InProcessCollector
    detection: IncidentDetection
    noise: Noise
    ids: dict[str, int] = field(default_factory=dict)
    number: int = 0
    expected: list[Expected] = field(default_factory=list)
    held: dict[str, list[Sample]] = field(default_factory=dict)

    @property
    def round_at(self) -> int:
        return DAY_AT + self.number * EVERY_US

    async def apply(self, *targets: str) -> None:
        document = f"baseline: us\ncontrol: {CONTROL}\nevery: 60s\ntargets:\n" + "".join(
            f"  - {{provider: {target.partition('/')[0]}, model: {target.partition('/')[2]}, base_url: http://h}}\n"
            for target in targets
        )
        change = await self.local.plans.apply(document, dry_run=False, applied_by="the bench")
        assert change.problems == (), change.problems
        assert self.local.plans.current
        self.ids = {target.name: target.id for target in self.local.plans.current.targets}

    async def inject(self, fault: Fault) -> None:
        if NEW_TARGET in fault.targets:
            await self.apply(*TARGETS, NEW_TARGET)
        from_at = self.round_at
        until_at = from_at + SLOT_ROUNDS * EVERY_US
        self.expected += [
            Expected(
                fault=fault.name,
                kind=fault.kind,
                target=target,
                regions=fault.regions,
                from_at=from_at,
                until_at=until_at,
            )
            for target in fault.accused
        ]
        for number in range(SLOT_ROUNDS):
            await self.play(fault, number)
        if NEW_TARGET in fault.targets:
            await self.apply(*TARGETS)

    async def play(self, fault: Fault | None = None, number: int = 0) -> None:
        """Play a round: the vantages deliver, and the job runs, each in its time."""
        if self.round_at % DAY_US == 0:
            await self.local.turn_to(self.round_at)
        steps = [(second, vantage) for vantage, second in DELIVERED_S.items()] + [(second, "") for second in RUN_S]
        for second, vantage in sorted(steps):
            self.local.clock.at = self.round_at + second * SECOND_US
            if vantage:
                await self._deliver(vantage, fault, number)
            else:
                await self.detection.run()
        self.number += 1

    async def _deliver(self, vantage: str, fault: Fault | None, number: int) -> None:
        samples = self.held.pop(vantage, [])
        if self.noise.reports(vantage, self.number):
            samples += self._samples(vantage, fault, number)
        if fault is not None and fault.is_late and fault.affects(vantage) and number <= fault.rounds:
            self.held[vantage] = samples
            return
        if samples:
            is_wrong = fault is not None and fault.affects(vantage) and number < fault.rounds
            offset_us = fault.clock_offset_s * SECOND_US if fault is not None and is_wrong else 0
            heartbeat = Heartbeat(clock_offset_us=offset_us, clock_uncertainty_us=SECOND_US, epoch=1)
            await self.local.push(Vantage(name=vantage, region=region_of(vantage)), samples, heartbeat=heartbeat)

    def _samples(self, vantage: str, fault: Fault | None, number: int) -> Iterator[Sample]:
        at = self.round_at
        for target, target_id in self.ids.items():
            usual, draw = self.noise.outcome(target), self.noise.rng.random()
            ttft_us = self.noise.ttft_us(target, self.number)
            hit = fault.outcome_of(target, vantage, number, draw=draw) if fault else None
            outcome = hit or usual
            if outcome is not None:
                yield Sample(
                    target_id=target_id,
                    round_at=at,
                    dispatched_at=at,
                    ttft_us=ttft_us if outcome is Outcome.OK else None,
                    outcome=outcome,
                    http_status={Outcome.HTTP_ERROR: 500, Outcome.THROTTLED: 429}.get(outcome),
                )

    async def account(self) -> Account:
        ever = Window(from_at=DAY_AT - DAY_US, until_at=self.round_at + DAY_US)
        async with self.local.database.connection() as connection:
            found = await incidents.of_window(connection, ever, past=True)
            raised = await alerts.of_window(connection, ever)
        ordered = sorted(found, key=lambda incident: incident.opened_at)
        return account(self.expected, ordered, raised, every_us=EVERY_US)


async def measured(conninfo: str, *, seed: int, hours: int) -> Account:
    """Play the faults and the quiet hours on a database."""
    async with in_process_collector(conninfo) as local:
        await local.turn_to(DAY_AT)
        run = Run(local, local.incident_detection(), Noise(Random(seed)))
        await run.apply(*TARGETS)
        for _ in range(WARM_UP_ROUNDS):
            await run.play()
        for fault in FAULTS:
            began = time.monotonic()
            await run.inject(fault)
            _print(f"{fault.name}: {len(fault.accused)} expected, {time.monotonic() - began:.1f} s")
        for hour in range(hours):
            for _ in range(60):
                await run.play()
            _print(f"quiet hour {hour + 1} of {hours}: {len((await run.account()).spurious)} spurious so far")
        return await run.account()


def main() -> int:
    parser = argparse.ArgumentParser(description="Alerts of a simulated fleet.")
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as name, EmbeddedPostgres(Path(name, "postgres")) as postgres:
        schema.migrate(postgres.conninfo)
        found = asyncio.run(measured(postgres.conninfo, seed=options.seed, hours=options.hours))
    for title, sentences in (("spurious", found.spurious), ("missed", found.missed)):
        for sentence in sentences:
            _print(f"{title}: {sentence}")
    minutes = found.first_alert_rounds or (float("inf"),)
    figures = {
        "expected": found.expected,
        "raised": found.raised,
        "spurious": len(found.spurious),
        "missed": len(found.missed),
        # An alert during the third round after the first failed one comes after three rounds.
        "first_alert_rounds": max(minutes) // 1,
        "slowest_alert_min": max(minutes),
        "median_alert_min": median(minutes),
        "faults": len(FAULTS),
        "quiet_hours": options.hours,
        "seed": options.seed,
    }
    return conclude(figures, GOALS)


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a bench prints


if __name__ == "__main__":
    sys.exit(main())
