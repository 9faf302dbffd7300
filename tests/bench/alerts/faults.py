"""The injected faults, and the incidents that they must lead to. Pure; rounds are numbers within the fault."""

from dataclasses import dataclass
from typing import Any

from isochrone_wire.insights import AlertKind
from isochrone_wire.model import Outcome

VANTAGES = ("us-1", "us-2", "sg-1", "fra-1", "fra-2")
CONTROL = "control/x"
TARGETS = ("alpha/a1", "alpha/a2", "beta/b1", "beta/b2", "gamma/c", "delta/d", "epsilon/e", CONTROL)
NEW_TARGET = "zeta/new"
_EVERYWHERE = ("us", "sg", "fra")
_HELD_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Requests to some targets end in `outcome` from some vantages, named by their beginning, for some rounds.

    `share` of the requests are affected. From round `everywhere_from` on, all vantages are; with `is_held`, the agents
    send only every third request meanwhile. `is_late`: the rounds are delivered when the fault is over. The clocks of
    the vantages are `clock_offset_s` wrong. `accused` are the targets that must have an incident.
    """

    name: str
    outcome: Outcome
    targets: tuple[str, ...]
    vantages: tuple[str, ...] = _EVERYWHERE
    accused: tuple[str, ...] = ()
    rounds: int = 12
    share: float = 1.0
    everywhere_from: int | None = None
    is_held: bool = False
    is_late: bool = False
    clock_offset_s: int = 0

    def affects(self, vantage: str, number: int = 0) -> bool:
        is_everywhere = self.everywhere_from is not None and number >= self.everywhere_from
        return is_everywhere or vantage.startswith(self.vantages)

    def outcome_of(self, target: str, vantage: str, number: int, *, draw: float) -> Outcome | None:
        """Return the outcome of a request, `None` if it is not affected; `draw` is uniform in [0, 1)."""
        if number not in range(self.rounds) or target not in self.targets or not self.affects(vantage, number):
            return None
        if draw >= self.share:
            return None
        is_sent = not self.is_held or number % _HELD_ROUNDS == 0
        return self.outcome if is_sent else Outcome.SKIPPED_THROTTLED

    @property
    def kind(self) -> AlertKind:
        is_throttling = self.outcome is Outcome.THROTTLED
        return AlertKind.TARGET_THROTTLED if is_throttling else AlertKind.TARGET_FAILING

    @property
    def regions(self) -> frozenset[str]:
        affected = VANTAGES if self.everywhere_from is not None else filter(self.affects, VANTAGES)
        return frozenset(region_of(vantage) for vantage in affected)


def region_of(vantage: str) -> str:
    return vantage.rpartition("-")[0]


def _provider(name: str, outcome: Outcome, *targets: str, **more: Any) -> Fault:
    return Fault(name=name, outcome=outcome, targets=targets, accused=targets, **more)


def _ours(name: str, outcome: Outcome, *vantages: str, targets: tuple[str, ...] = TARGETS) -> Fault:
    return Fault(name=name, outcome=outcome, targets=targets, vantages=vantages)


_MOST = ("alpha/a1", "alpha/a2", "beta/b1", "beta/b2", "gamma/c", "delta/d")
FAULTS = (
    _provider("HTTP 500 from one region", Outcome.HTTP_ERROR, "alpha/a1", vantages=("sg",)),
    _provider("HTTP 500 from several regions", Outcome.HTTP_ERROR, "beta/b1", vantages=("us", "fra")),
    _provider(
        "HTTP 500 from one region, then from all", Outcome.HTTP_ERROR, "gamma/c", vantages=("fra",), everywhere_from=5
    ),
    _provider("requests hang everywhere", Outcome.TIMED_OUT, "delta/d"),
    _ours("the network of a vantage", Outcome.CONNECT_FAILED, "sg-1"),
    _provider("a provider is down everywhere", Outcome.HTTP_ERROR, "alpha/a1", "alpha/a2"),
    _provider("throttled from one region", Outcome.THROTTLED, "epsilon/e", vantages=("us",)),
    _provider("streams end early from one region", Outcome.TRUNCATED, "gamma/c", vantages=("sg",)),
    _provider("throttled everywhere", Outcome.THROTTLED, "beta/b1", "beta/b2"),
    _provider(
        "85 % of the requests fail from one region",
        Outcome.HTTP_ERROR,
        "delta/d",
        vantages=("sg",),
        share=0.85,
        rounds=24,
    ),
    _ours("the network of a region", Outcome.CONNECT_FAILED, "us"),
    _provider("throttled everywhere, and the agents wait", Outcome.THROTTLED, "epsilon/e", is_held=True),
    _provider("a target that never worked", Outcome.HTTP_ERROR, NEW_TARGET),
    _provider("the control target everywhere", Outcome.HTTP_ERROR, CONTROL),
    _provider("90 % of the requests fail everywhere", Outcome.TIMED_OUT, "alpha/a2", share=0.9, rounds=24),
    Fault(
        name="two targets and the control target from one region",
        outcome=Outcome.HTTP_ERROR,
        targets=("gamma/c", "delta/d", CONTROL),
        accused=(CONTROL,),
        vantages=("fra",),
    ),
    _ours("one of two vantages of a region", Outcome.CONNECT_FAILED, "us-2", targets=("beta/b2",)),
    _provider("most providers at once", Outcome.HTTP_ERROR, *_MOST),
    Fault(
        name="a vantage with a wrong clock",
        outcome=Outcome.HTTP_ERROR,
        targets=("epsilon/e",),
        vantages=("sg",),
        clock_offset_s=60,
    ),
    Fault(
        name="an outage that was over when it was delivered",
        outcome=Outcome.HTTP_ERROR,
        targets=("alpha/a1",),
        vantages=("fra",),
        is_late=True,
    ),
)
