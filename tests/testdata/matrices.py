"""Differentials and cells of matrices, in milliseconds."""

from typing import Any

from isochrone_client.pages.matrix import Cell
from isochrone_wire.answers import Decision, Differential, Metric

BASELINE, REGION, OTHER = "us-east-2", "ap-southeast-1", "eu-central-1"


def difference(
    shift: float | None,
    *errors: float,
    target: str = "acme/large",
    region: str = REGION,
    n: int = 10,
    decision: Decision = Decision.SLOWER,
    **more: Any,
) -> Differential:
    """A difference whose interval ends so far below and above it; without a shift, one that is not known yet."""
    below, above = errors or (2.0, 2.0)
    return Differential(
        target=target,
        provider="acme",
        model=target.partition("/")[2],
        metric=Metric.TTFT,
        unit="us",
        baseline=BASELINE,
        region=region,
        shift=None if shift is None else 1000 * shift,
        shift_low=None if shift is None else 1000 * (shift - below),
        shift_high=None if shift is None else 1000 * (shift + above),
        n=0 if shift is None else n,
        baseline_n=n + 1,
        region_n=n,
        decision=Decision.UNDECIDED if shift is None else decision,
        margin=20_000.0,
        **more,
    )


def cell(value: float, row: Differential, **more: Any) -> Cell:
    """A cell with a difference."""
    return Cell(value=1000 * value, rounds=row.n or row.region_n, difference=row, **more)
