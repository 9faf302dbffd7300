"""The limits of `probe`: whether the median of all runs keeps them. Pure.

A run that failed counts as beyond every limit. A successful run may have no speed, and is left out of the median speed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import median

from isochrone_wire.model import Outcome, Sample

TTFT, SPEED = "ttft_us", "tokens_per_second"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the median of the `runs` is at most the `limit` of `ttft_us`, in microseconds, or at least that of
    `tokens_per_second`.

    `median` is `None` if half of the runs or more `failed`, and if no run has a value; then the limit is not kept.
    """

    metric: str
    limit: float
    median: float | None
    runs: int
    failed: int
    kept: bool


def judge(samples: Sequence[Sample], *, max_ttft_us: int | None, min_tokens_per_second: float | None) -> list[Verdict]:
    """The verdict on each limit that is given, a duration in microseconds and a speed."""
    failed = sum(sample.outcome is not Outcome.OK for sample in samples)
    verdicts = []
    if max_ttft_us is not None:
        found = _median(sample.ttft_us if sample.outcome is Outcome.OK else inf for sample in samples)
        kept = found is not None and found <= max_ttft_us
        verdicts.append(
            Verdict(metric=TTFT, limit=max_ttft_us, median=found, runs=len(samples), failed=failed, kept=kept)
        )
    if min_tokens_per_second is not None:
        found = _median(sample.tokens_per_second if sample.outcome is Outcome.OK else -inf for sample in samples)
        kept = found is not None and found >= min_tokens_per_second
        verdicts.append(
            Verdict(
                metric=SPEED, limit=min_tokens_per_second, median=found, runs=len(samples), failed=failed, kept=kept
            )
        )
    return verdicts


def _median(values: Iterable[float | None]) -> float | None:
    """The median of the known values; `None` without any, and if it is infinite."""
    known = [value for value in values if value is not None]
    found = median(known) if known else inf
    return found if isfinite(found) else None
