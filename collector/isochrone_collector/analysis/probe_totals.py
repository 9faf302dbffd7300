"""Totals of the stored probes for Prometheus, per target and region. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.stats.arrays import Integers
from isochrone_common.probe_metrics import HISTOGRAMS, LIMITS, OFFSETS, OUTCOMES, ProbeCounts, Series, labels_of
from isochrone_wire.model import Plan, RateLimit, Target

MAX_SERIES = 1_000
"""Maximum number of pairs of a region and a target that are counted; each has about 80 series in Prometheus."""

REASONS = ("limit", "not_in_plan", "partly_stored")
"""Why stored samples are in no series: there are `MAX_SERIES` already, the plan in force does not have the target, or
some rounds of their batch were stored before.
"""

UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchCounts:
    """The counts of a batch, a row per target, as in `ProbeCounts`; unknown `limits` are -1."""

    target_ids: Integers
    counts: NDArray[np.uint16]
    sums: NDArray[np.float64]
    last_success_at: Integers
    limits: Integers
    limits_at: Integers

    def __eq__(self, other: object) -> bool:
        """Return whether every array of the other one has the same values."""
        if not isinstance(other, BatchCounts):
            return NotImplemented
        return all(np.array_equal(getattr(self, one.name), getattr(other, one.name)) for one in fields(self))

    __hash__ = None  # type: ignore[assignment]  # arrays have no hash


class ProbeTotals:
    """The counts of all batches stored since the start, of targets of the plan; `left_out` by one of `REASONS`."""

    def __init__(self, plan: Callable[[], Plan | None]) -> None:
        self._plan = plan
        self._known: Plan | None = None
        self._targets: dict[int, Target] = {}
        self._rows: dict[tuple[str, int], int] = {}
        self._free = list(range(MAX_SERIES))
        self._counts = np.zeros((MAX_SERIES, OFFSETS[-1]), np.int64)
        self._sums = np.zeros((MAX_SERIES, len(HISTOGRAMS)))
        self._last_success_at = np.zeros(MAX_SERIES, np.int64)
        self._limits = np.full((MAX_SERIES, len(LIMITS)), UNKNOWN, np.int64)
        self._limits_at = np.zeros(MAX_SERIES, np.int64)
        self.left_out: Counter[str] = Counter()

    def add(self, region: str, batch: BatchCounts | None, *, samples: int) -> None:
        """Add the counts of a batch of so many `samples` from a region, if they are known."""
        self._follow_plan()
        if batch is None:
            self.left_out["partly_stored"] += samples
            return
        rows = np.array([self._row(region, target_id) for target_id in batch.target_ids.tolist()], np.int64)
        (kept,) = np.nonzero(rows >= 0)
        if len(kept) < len(rows):
            self._leave_out(batch, rows)
            rows = rows[kept]
        self._counts[rows] += batch.counts[kept]
        self._sums[rows] += batch.sums[kept]
        self._last_success_at[rows] = np.maximum(self._last_success_at[rows], batch.last_success_at[kept])
        is_newer = (batch.limits_at[kept] > 0) & (batch.limits_at[kept] >= self._limits_at[rows])
        newer, kept = rows[is_newer], kept[is_newer]
        self._limits[newer], self._limits_at[newer] = batch.limits[kept], batch.limits_at[kept]

    def series(self) -> Iterator[Series]:
        """Yield the counts of each target and region with their labels."""
        self._follow_plan()
        for (region, target_id), row in sorted(self._rows.items()):
            limits = {name: value for name, value in zip(LIMITS, self._limits[row].tolist(), strict=True) if value >= 0}
            yield (
                labels_of(region, self._targets[target_id]),
                ProbeCounts(
                    counts=self._counts[row].tolist(),
                    sums=self._sums[row].tolist(),
                    last_success_at=int(self._last_success_at[row]),
                    limits=RateLimit(**limits),
                ),
            )

    def _follow_plan(self) -> None:
        """Forget the targets that the plan in force does not have."""
        plan = self._plan()
        if plan is self._known:
            return
        self._known, self._targets = plan, {target.id: target for target in plan.targets} if plan else {}
        for key in [key for key in self._rows if key[1] not in self._targets]:
            row = self._rows.pop(key)
            self._counts[row], self._sums[row], self._last_success_at[row] = 0, 0, 0
            self._limits[row], self._limits_at[row] = UNKNOWN, 0
            self._free.append(row)

    def _row(self, region: str, target_id: int) -> int:
        """Return the row of a series, -1 if there is none."""
        row = self._rows.get((region, target_id))
        if row is None and target_id in self._targets and self._free:
            row = self._rows[region, target_id] = self._free.pop()
        return -1 if row is None else row

    def _leave_out(self, batch: BatchCounts, rows: Integers) -> None:
        samples = batch.counts[:, : len(OUTCOMES)].sum(axis=1).tolist()
        for target_id, row, count in zip(batch.target_ids.tolist(), rows.tolist(), samples, strict=True):
            if row < 0:
                self.left_out["limit" if target_id in self._targets else "not_in_plan"] += count
