"""The board of the demo's screen, from the collector's answers about the newest rounds. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from isochrone_client.screen.board import Board, Cell, Place, cell_of
from isochrone_wire.answers import Differential
from isochrone_wire.insights import Standing


def read_board(
    standings: Iterable[Standing],
    differentials: Iterable[Differential],
    *,
    baseline: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    usual: Mapping[Place, Differential],
    failing: Collection[Place] = (),
) -> Board:
    """The board of two answers about the newest rounds. `usual` are the differentials of the start of the demo, and
    `failing` the places with an open incident.
    """
    medians = {(row.target, row.region): row.ttft_p50_us for row in standings}
    rows = by_place(differentials)
    places = [(target, region) for target in targets for region in (baseline, *regions)]
    cells = {}
    for place in places:
        median, row = medians.get(place), rows.get(place)
        value = median.value if median else None
        cell = Cell(value=value) if row is None else _changed_cell(value, row, usual.get(place))
        cells[place] = replace(cell, is_failing=place in failing)
    return Board(baseline=baseline, regions=regions, targets=targets, cells=cells)


def by_place(rows: Iterable[Differential]) -> dict[Place, Differential]:
    """The rows by target and region."""
    return {(row.target, row.region): row for row in rows}


def _changed_cell(value: float | None, row: Differential, usual: Differential | None) -> Cell:
    return replace(cell_of(value, row), changed=_change(row, usual) if usual else None)


def _change(now: Differential, usual: Differential) -> float | None:
    """The change of a difference; `None` unless the intervals are apart by more than the smallest one that matters."""
    bounds = (now.shift, now.shift_low, now.shift_high, usual.shift, usual.shift_low, usual.shift_high)
    if None in bounds:
        return None
    shift, low, high, usual_shift, usual_low, usual_high = (bound or 0.0 for bound in bounds)
    apart = max(low - usual_high, usual_low - high)
    return shift - usual_shift if apart > max(now.margin or 0.0, usual.margin or 0.0) else None
