"""A small fleet told what it sees: rounds of every target from every vantage, pushed to a real collector."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fix_collector import Caller
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
USUAL_US = {FIRST: 200_000, SECOND: 300_000, THIRD: 400_000}
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

# What a target takes from a region in microseconds; `None` when it fails.
See = Callable[[str, str], int | None]


def usual(target: str, region: str) -> int | None:  # every way to see has both
    """Everybody is well, wherever one looks from."""
    return USUAL_US[target]


def without(*dead: str) -> See:
    """Some fail wherever one looks from."""
    return lambda target, region: None if target in dead else usual(target, region)


@dataclass(slots=True)
class Fleet:
    """Pushes what its vantages see. `epoch` tells the pushes of one fleet from those of another."""

    targets: dict[str, int]
    epoch: int = 1
    chance: Random = field(default_factory=lambda: Random(7))
    _seq: int = 0

    def tell(
        self, call: Caller, rounds: Iterable[int], see: See = usual, *, vantages: Iterable[Vantage] = VANTAGES
    ) -> None:
        """Push rounds, one batch per vantage; returns when all are committed."""
        begun = list(rounds)
        for vantage in vantages:
            self._seq += 1
            samples = tuple(
                self._sample(target, at, see(target, vantage.region)) for at in begun for target in self.targets
            )
            receipt = call.push(Batch(vantage=vantage, epoch=self.epoch, seq=self._seq, samples=samples))
            assert receipt.stored == len(samples), receipt

    def _sample(self, target: str, at: int, ttft_us: int | None) -> Sample:
        common: dict[str, Any] = {"target_id": self.targets[target], "round_at": at, "dispatched_at": at}
        if ttft_us is None:
            return Sample(outcome=Outcome.HTTP_ERROR, http_status=503, error="overloaded", **common)
        seen_us = round(ttft_us * self.chance.lognormvariate(0, 0.05))
        return Sample(outcome=Outcome.OK, ttft_us=seen_us, e2e_us=2 * seen_us, tokens_per_second=50.0, **common)


def rounds_until(end_at: int, count: int) -> list[int]:
    """So many rounds one interval after another, the last one before an instant."""
    last_at = (end_at - 1) // EVERY_US * EVERY_US
    return [last_at - place * EVERY_US for place in reversed(range(count))]
