"""The state of targets from several regions, as a screen shows it. Pure.

Durations are in microseconds, rates in tokens per second.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from isochrone_wire.answers import Decision, Differential

# The collector states no interval for fewer rounds.
ROUNDS_NEEDED = 6

# The widest interval with which the size of a change is stated, as a share of that size.
_KNOWN_SHARE = 0.5

Place = tuple[str, str]
"""A target and a region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One target from one region: the median of the metric, and its difference to the baseline as far as it is known.

    `is_changing` if the difference changed within the newest rounds, so that only those since then count. `changed` is
    its change since the start of the demo, if that is certain and matters. `is_failing` if the target has an open
    incident from there, `is_stale` if the newest round is old. `bars` has a character per bucket of time, oldest first.
    """

    value: float | None = None
    rounds: int = 0
    shift: float | None = None
    low: float | None = None
    high: float | None = None
    decision: Decision = Decision.UNDECIDED
    network_shift: float | None = None
    is_changing: bool = False
    changed: float | None = None
    is_failing: bool = False
    is_stale: bool = False
    bars: str = ""

    @property
    def is_firm(self) -> bool:
        """Return whether the difference has an interval."""
        return self.low is not None and self.high is not None

    @property
    def has_known_change(self) -> bool:
        """Return whether the size of the change is known: the rounds of the window agree on it."""
        if self.changed is None or self.low is None or self.high is None:
            return False
        return self.high - self.low <= _KNOWN_SHARE * abs(self.changed)


def cell_of(value: float | None, row: Differential) -> Cell:
    """The cell of a median and a difference to the baseline."""
    return Cell(
        value=value,
        rounds=row.n or min(row.baseline_n, row.region_n),
        shift=row.shift,
        low=row.shift_low,
        high=row.shift_high,
        decision=row.decision,
        network_shift=row.network_shift,
        is_changing=row.since_at is not None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All cells by target and region; `regions` are those other than the baseline."""

    baseline: str
    regions: tuple[str, ...]
    targets: tuple[str, ...]
    cells: Mapping[Place, Cell]

    def cell(self, target: str, region: str) -> Cell:
        """The cell of a target and region; an empty one before its first sample."""
        return self.cells.get((target, region), Cell())

    @property
    def has_every_value(self) -> bool:
        """Return whether each target has a median from each region."""
        places = [(target, region) for target in self.targets for region in (self.baseline, *self.regions)]
        return all(self.cell(*place).value is not None for place in places)

    @property
    def is_firm(self) -> bool:
        """Return whether each difference has an interval."""
        return all(self.cell(target, region).is_firm for target in self.targets for region in self.regions)

    @property
    def changed(self) -> tuple[Place, ...]:
        """The places whose difference has changed since the start."""
        return tuple(place for place, cell in self.cells.items() if cell.changed is not None)

    @property
    def marked(self) -> tuple[Place, ...]:
        """The places whose difference has changed, or that have an open incident."""
        return (*self.changed, *(place for place, cell in self.cells.items() if cell.is_failing))

    @property
    def has_network(self) -> bool:
        """Return whether the network accounts for a millisecond of any difference."""
        return any(abs(cell.network_shift or 0) >= 1000 for cell in self.cells.values())  # noqa: PLR2004  # 1 ms
