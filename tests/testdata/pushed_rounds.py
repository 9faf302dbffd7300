"""A small fleet with given latencies: rounds of every target from every vantage, pushed to a real collector."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fixtures.collector import Caller
from isochrone_wire.model import MINUTE_US, Batch, Outcome, Sample, Vantage

EVERY_US = MINUTE_US
US, SG = "us-east-2", "ap-southeast-1"
VANTAGES = (
    Vantage(name="us-1", region=US),
    Vantage(name="us-2", region=US),
    Vantage(name="sg-1", region=SG),
    Vantage(name="sg-2", region=SG),
)
FIRST, SECOND, THIRD = "alpha/m", "beta/m", "gamma/m"
USUAL_LATENCIES_US = {FIRST: 200_000, SECOND: 300_000, THIRD: 400_000}
PLAN = f"""
baseline: {US}
every: 60s
targets:
  - {{provider: alpha, model: m, base_url: http://alpha}}
  - {{provider: beta, model: m, base_url: http://beta}}
  - {{provider: gamma, model: m, base_url: http://gamma}}
routes:
  - name: chat
    members: [{FIRST}, {SECOND}, {THIRD}]
"""

# The latency of a target from a region in microseconds; `None` if it fails.
Latencies = Callable[[str, str], int | None]


def usual_latencies(target: str, region: str) -> int | None:  # the signature of `Latencies`
    return USUAL_LATENCIES_US[target]


def without(*dead: str) -> Latencies:
    return lambda target, region: None if target in dead else usual_latencies(target, region)


@dataclass(slots=True)
class Fleet:
    targets: dict[str, int]
    epoch: int = 1  # distinguishes the pushes of two fleets
    phases: Callable[[str], dict[str, int]] = lambda _region: {}  # of the requests from a region, by field
    rng: Random = field(default_factory=lambda: Random(7))
    _seq: int = 0

    def push_rounds(
        self,
        call: Caller,
        rounds: Iterable[int],
        latencies: Latencies = usual_latencies,
        *,
        vantages: Iterable[Vantage] = VANTAGES,
    ) -> None:
        """Push rounds, one batch per vantage; return when all are committed."""
        begun = list(rounds)
        for vantage in vantages:
            self._seq += 1
            samples = tuple(
                self._sample(target, at, latencies(target, vantage.region), self.phases(vantage.region))
                for at in begun
                for target in self.targets
            )
            receipt = call.push(Batch(vantage=vantage, epoch=self.epoch, seq=self._seq, samples=samples))
            assert receipt.stored == len(samples), receipt

    def _sample(self, target: str, at: int, ttft_us: int | None, phases: dict[str, int]) -> Sample:
        common: dict[str, Any] = {"target_id": self.targets[target], "round_at": at, "dispatched_at": at}
        if ttft_us is None:
            return Sample(outcome=Outcome.HTTP_ERROR, http_status=503, error="overloaded", **common)
        seen_us = round(ttft_us * self.rng.lognormvariate(0, 0.05))
        common |= phases
        return Sample(outcome=Outcome.OK, ttft_us=seen_us, e2e_us=2 * seen_us, tokens_per_second=50.0, **common)


def rounds_until(end_at: int, count: int) -> list[int]:
    """Return `count` consecutive rounds, the last one before `end_at`."""
    last_at = (end_at - 1) // EVERY_US * EVERY_US
    return [last_at - place * EVERY_US for place in reversed(range(count))]
