"""The state of the demo on its screen: each target from each region over the newest rounds. Pure.

Durations are in microseconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from isochrone_wire.answers import Decision, Differential
from isochrone_wire.insights import Standing

# The collector states no interval for fewer rounds.
ROUNDS_NEEDED = 6

# The widest interval with which the size of a change is stated, as a share of that size.
_KNOWN_SHARE = 0.5

Place = tuple[str, str]
"""A target and a region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One target from one region: its median time to first token, and its difference to the baseline as far as it is
    known. `is_changing` if the difference changed within the newest rounds, so that only those since then count.
    `changed_us` is its change since the start of the demo, if that is certain and matters.
    """

    ttft_us: float | None = None
    rounds: int = 0
    shift: float | None = None
    low: float | None = None
    high: float | None = None
    decision: Decision = Decision.UNDECIDED
    network_shift: float | None = None
    is_changing: bool = False
    changed_us: float | None = None

    @property
    def is_firm(self) -> bool:
        """Return whether the difference has an interval."""
        return self.low is not None and self.high is not None

    @property
    def has_known_change(self) -> bool:
        """Return whether the size of the change is known: the rounds of the window agree on it."""
        if self.changed_us is None or self.low is None or self.high is None:
            return False
        return self.high - self.low <= _KNOWN_SHARE * abs(self.changed_us)


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
    def has_every_ttft(self) -> bool:
        """Return whether each target has a time to first token from each region."""
        places = [(target, region) for target in self.targets for region in (self.baseline, *self.regions)]
        return all(self.cell(*place).ttft_us is not None for place in places)

    @property
    def is_firm(self) -> bool:
        """Return whether each difference has an interval."""
        return all(self.cell(target, region).is_firm for target in self.targets for region in self.regions)

    @property
    def changed(self) -> tuple[Place, ...]:
        """The places whose difference has changed since the start."""
        return tuple(place for place, cell in self.cells.items() if cell.changed_us is not None)

    @property
    def has_network(self) -> bool:
        """Return whether the network accounts for a millisecond of any difference."""
        return any(abs(cell.network_shift or 0) >= 1000 for cell in self.cells.values())  # noqa: PLR2004  # 1 ms


def read_board(
    standings: Iterable[Standing],
    differentials: Iterable[Differential],
    *,
    baseline: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    usual: Mapping[Place, Differential],
) -> Board:
    """The board of two answers about the newest rounds. `usual` are the differentials of the start of the demo."""
    medians = {(row.target, row.region): row.ttft_p50_us for row in standings}
    rows = by_place(differentials)
    places = [(target, region) for target in targets for region in (baseline, *regions)]
    cells = {}
    for place in places:
        median, row = medians.get(place), rows.get(place)
        ttft_us = median.value if median else None
        cells[place] = Cell(ttft_us=ttft_us) if row is None else _cell(ttft_us, row, usual.get(place))
    return Board(baseline=baseline, regions=regions, targets=targets, cells=cells)


def by_place(rows: Iterable[Differential]) -> dict[Place, Differential]:
    """The rows by target and region."""
    return {(row.target, row.region): row for row in rows}


def _cell(ttft_us: float | None, row: Differential, usual: Differential | None) -> Cell:
    return Cell(
        ttft_us=ttft_us,
        rounds=row.n or min(row.baseline_n, row.region_n),
        shift=row.shift,
        low=row.shift_low,
        high=row.shift_high,
        decision=row.decision,
        network_shift=row.network_shift,
        is_changing=row.since_at is not None,
        changed_us=_change_us(row, usual) if usual else None,
    )


def _change_us(now: Differential, usual: Differential) -> float | None:
    """The change of a difference; `None` unless the intervals are apart by more than the smallest one that matters."""
    bounds = (now.shift, now.shift_low, now.shift_high, usual.shift, usual.shift_low, usual.shift_high)
    if None in bounds:
        return None
    shift, low, high, usual_shift, usual_low, usual_high = (bound or 0.0 for bound in bounds)
    apart = max(low - usual_high, usual_low - high)
    return shift - usual_shift if apart > max(now.margin or 0.0, usual.margin or 0.0) else None
