"""The order of differentials, and the selection of some of them by their decision. Pure."""

import math
from collections.abc import Callable, Iterable

from isochrone_wire.answers import Decision, Differential, DifferentialList, Metric

DECIDED = "decided"
"""A selection: all decisions except `undecided`."""
DEFAULT_SORT = "difference"


def _best_first(value: float | None, metric: Metric) -> float:
    if value is None:
        return math.inf
    return -value if metric.more_is_better else value


_SORT_KEY: dict[str, Callable[[Differential], tuple[object, ...]]] = {
    DEFAULT_SORT: lambda row: (_best_first(row.shift, row.metric), row.target),
    "target": lambda row: (row.target,),
    "percent": lambda row: (_best_first(row.shift_percent, row.metric), row.target),
}
SORTS = tuple(_SORT_KEY)


def targets_in_order(rows: Iterable[Differential], sort: str) -> tuple[str, ...]:
    """The targets of the rows in one of the orders `SORTS`, each at the place of its first row, whatever the region."""
    return tuple(dict.fromkeys(row.target for row in sorted(rows, key=_SORT_KEY[sort])))


def select_rows(
    answer: DifferentialList, *, sort: str = DEFAULT_SORT, only: str | None = None
) -> tuple[Differential, ...]:
    """Return the differentials to show, by region in the order of the answer, sorted within a region by one of `SORTS`.
    `difference` and `percent` put the targets first for which the region is best. `only` keeps one decision, or with
    `DECIDED` all except `undecided`.
    """
    regions = list(dict.fromkeys(row.region for row in answer.differentials))
    wanted = set(Decision) - {Decision.UNDECIDED} if only == DECIDED else {only}
    kept = [row for row in answer.differentials if only is None or row.decision in wanted]
    return tuple(sorted(kept, key=lambda row: (regions.index(row.region), _SORT_KEY[sort](row))))
