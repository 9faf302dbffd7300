"""A simulated fleet: rounds of every target from every vantage, as evidence of incidents, with a step after each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from isochrone_collector.alerts.failure_evidence import Fleet, RoundKind, RoundResult, WatchedTarget
from isochrone_collector.alerts.incidents import IncidentWatch, Step, Transition
from isochrone_wire.model import MINUTE_US

START_AT = 1_795_000_020_000_000
EVERY_US = MINUTE_US
OK, FAILED, THROTTLED, HELD = RoundKind

# The result of a round, by target, vantage and number; `None` if there is none.
Results = Callable[[str, str, int], RoundKind | None]


def answered(_target: str, _vantage: str, _number: int) -> RoundKind | None:
    return OK


def fails(target: str, rounds: range, *vantages: str, kind: RoundKind = FAILED, then: Results = answered) -> Results:
    def results(name: str, vantage: str, number: int) -> RoundKind | None:
        hit = name == target and number in rounds and (not vantages or vantage in vantages)
        return kind if hit else then(name, vantage, number)

    return results


@dataclass(frozen=True, slots=True)
class Happened:
    """A transition, by the number of the round after which it was reported."""

    round: int
    step: str
    kind: str
    target: str
    regions: tuple[str, ...]
    transition: Transition = field(repr=False, compare=False)


@dataclass(slots=True, kw_only=True)
class SimulatedFleet:
    """Targets `a`, `b` …, of a provider each, and vantages `us-1`, … in the region that their name begins with."""

    targets: Sequence[str] = ("a", "b", "c", "d")
    vantages: Sequence[str] = ("us-1", "us-2", "sg-1", "fra-1")
    provider_of: Callable[[str], str] = str
    control: str = ""
    never_worked: Sequence[str] = ()
    distrusted: Sequence[str] = ()
    watch: IncidentWatch = field(default_factory=IncidentWatch)
    steps_per_round: int = 2
    number: int = 0

    @property
    def fleet(self) -> Fleet:
        targets = [
            WatchedTarget(
                id=place + 1,
                name=name,
                provider=self.provider_of(name),
                every_us=EVERY_US,
                has_worked=name not in self.never_worked or self.watch.evidence.has_answered(place + 1),
            )
            for place, name in enumerate(self.targets)
        ]
        return Fleet(
            targets={target.id: target for target in targets},
            control=self.targets.index(self.control) + 1 if self.control else 0,
            distrusted={self.vantages.index(name) + 1 for name in self.distrusted},
        )

    def play(self, rounds: int, results: Results = answered) -> list[Happened]:
        """Play rounds, and return what happened except mere continuations."""
        found: list[Happened] = []
        for _ in range(rounds):
            at = START_AT + self.number * EVERY_US
            self.watch.evidence.add(
                RoundResult(target_id=t + 1, vantage_id=v + 1, region=vantage[:-2], round_at=at, kind=kind)
                for t, target in enumerate(self.targets)
                for v, vantage in enumerate(self.vantages)
                if (kind := results(target, vantage, self.number)) is not None
            )
            for part in range(self.steps_per_round):
                transitions = self.watch.step(
                    self.fleet, now_at=at + (part + 1) * EVERY_US // (self.steps_per_round + 1)
                )
                found += [self._happened(one) for one in transitions if one.step is not Step.CONTINUED]
            self.number += 1
        return found

    def _happened(self, transition: Transition) -> Happened:
        incident = transition.incident
        regions = tuple(sorted(incident.failing))
        name = self.targets[incident.target_id - 1] if incident.target_id <= len(self.targets) else "gone"
        return Happened(self.number, transition.step, incident.kind, name, regions, transition)
