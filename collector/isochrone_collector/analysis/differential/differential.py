"""Differentials: the difference between a region and the baseline region, target by target.

The chain from probes to decisions: `panel` reduces probes to one value per region and round, `levels` finds the steps
of their difference, `panel.pair_up` the rounds since then that two regions share, `estimation` estimates the shift
between them, `decision` decides on it, and `participation` checks that enough was recorded to decide at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from isochrone_collector.analysis.differential.decision import (
    MAX_FALSE_SHARE,
    MAX_WITHOUT_HISTORY,
    Margin,
    Rounds,
    Verdict,
    adjusted_for_comparisons,
    after_losses,
    decide,
    family_rates,
    margin_of,
    mostly_lost,
    rounds_needed,
    undetermined_note,
    unless_mixed,
    with_enough_rounds,
)
from isochrone_collector.analysis.differential.estimation import Estimate, estimates
from isochrone_collector.analysis.differential.levels import LevelHistory
from isochrone_collector.analysis.differential.panel import Changes, Pairs, Panel, TargetRegion, pair_up
from isochrone_collector.analysis.differential.participation import Participation
from isochrone_collector.analysis.history import SeriesLevels
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_wire.answers import Decision, Differential, Metric, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The target and region of a differential."""

    target_id: int
    target: str
    provider: str
    model: str
    region: str

    @property
    def key(self) -> TargetRegion:
        """The target's id and the region."""
        return self.target_id, self.region


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonContext:
    """Context of the comparisons: participation, regions with a problem of their own and its reason, the newest
    lasting changes or steps, the levels of the pairs that have several, the parts by phase, and the hourly levels of
    the past week, if they are known.

    `margin` is the smallest difference that matters, that of the metric without a plan if it is `None`. `memories` are
    the rounds of a pair that are worth one independent round, as far as its history shows them. `family` are the
    targets whose comparisons count for the false-discovery rate, `None` for all; `family_size` is the number of its
    comparisons if they were not all read.
    """

    participations: Mapping[TargetRegion, Participation] = field(default_factory=dict)
    region_problems: Mapping[str, str] = field(default_factory=dict)
    changes: Changes = field(default_factory=dict)
    histories: Mapping[TargetRegion, LevelHistory] = field(default_factory=dict)
    parts: Mapping[TargetRegion, tuple[Part, ...]] = field(default_factory=dict)
    hourly: SeriesLevels | None = None
    margin: Margin | None = None
    memories: Mapping[TargetRegion, float] = field(default_factory=dict)
    family: frozenset[int] | None = None
    family_size: int | None = None

    def memory(self, key: TargetRegion) -> float | None:
        """Return the memory of a pair, from its history or from the levels before the present one, if known."""
        history = self.histories.get(key)
        return self.memories.get(key, history.memory if history else None)

    def is_member(self, subject: Subject) -> bool:
        """Return whether a subject is in the family of comparisons."""
        return self.family is None or subject.target_id in self.family


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The result of one subject, before the correction for all comparisons."""

    subject: Subject
    estimate: Estimate | None
    since_at: int
    baseline_n: int
    region_n: int
    baseline_participation: Participation
    region_participation: Participation
    unfit: str
    undetermined: int
    baseline_losses: str
    region_losses: str

    def tested(self) -> float:
        """Return the p-value that enters the correction; NaN if there is nothing to decide."""
        if self.unfit or self.estimate is None or self.estimate.p_value is None:
            return np.nan
        return self.estimate.p_value

    def why_nothing(self) -> str:
        """Return the reason for a missing estimate."""
        losses = (self.unfit, self.region_losses, self.baseline_losses, undetermined_note(self.undetermined))
        return next(filter(None, losses), "no round has a value from both regions")


def differentials_of(
    panel: Panel, subjects: Sequence[Subject], *, metric: Metric, baseline: str, known: ComparisonContext
) -> tuple[Differential, ...]:
    """Return one differential per subject: region minus baseline, with its interval and the decision."""
    pairs = pair_up(panel, [subject.key for subject in subjects], baseline=baseline, changes=known.changes)
    lines = _lines(pairs, subjects, metric=metric, baseline=baseline, known=known)
    rates = family_rates(
        np.array([line.tested() for line in lines], dtype=np.float64),
        is_member=np.array([known.is_member(subject) for subject in subjects], dtype=np.bool_),
        size=known.family_size,
    )
    return tuple(
        _differential(
            line,
            metric=metric,
            baseline=baseline,
            q_value=None if np.isnan(rate) else rate,
            comparisons=rates.comparisons,
            known=known,
        )
        for line, rate in zip(lines, rates.q_values.tolist(), strict=True)
    )


def _lines(
    pairs: Pairs, subjects: Sequence[Subject], *, metric: Metric, baseline: str, known: ComparisonContext
) -> list[_Line]:
    none = Participation()
    columns = (
        subjects,
        estimates(
            pairs,
            with_network=metric.includes_request,
            memories=_memories(subjects, known),
            history=_history(pairs, subjects, baseline, known.hourly),
        ),
        pairs.since_at.tolist(),
        pairs.baseline_span.counts.tolist(),
        pairs.region_span.counts.tolist(),
        pairs.undetermined.tolist(),
        zip(pairs.n_shared.tolist(), pairs.baseline_lost.tolist(), pairs.region_lost.tolist(), strict=True),
    )
    lines = []
    for subject, estimate, since_at, baseline_n, region_n, undetermined, (n_shared, *lost) in zip(
        *columns, strict=True
    ):
        participations = [
            known.participations.get((subject.target_id, region), none) for region in (baseline, subject.region)
        ]
        sides = list(zip((baseline, subject.region), (baseline_n, region_n), participations, strict=True))
        losses = [
            mostly_lost(region, lost=own_lost, rounds=n_shared) or participation.losses(region)
            for (region, _, participation), own_lost in zip(sides, lost, strict=True)
        ]
        lines.append(
            _Line(
                subject=subject,
                estimate=_with_noise_of_all(estimate, known.histories.get(subject.key)),
                since_at=since_at,
                baseline_n=baseline_n,
                region_n=region_n,
                baseline_participation=participations[0],
                region_participation=participations[1],
                unfit=_unfit(sides, metric=metric, region_problems=known.region_problems),
                undetermined=undetermined,
                baseline_losses=losses[0],
                region_losses=losses[1],
            )
        )
    return lines


def _memories(subjects: Sequence[Subject], known: ComparisonContext) -> Reals:
    told = [known.memories.get(subject.key) for subject in subjects]
    return np.array([np.nan if memory is None else memory for memory in told], dtype=np.float64)


def _history(
    pairs: Pairs, subjects: Sequence[Subject], baseline: str, hourly: SeriesLevels | None
) -> VarianceInflation | None:
    """Return how far the levels of such windows were from the long run in the past week, after the newest change."""
    if hourly is None:
        return None
    since_at = pairs.since_at.tolist()
    regions = hourly.of([subject.key for subject in subjects], since_at)
    baselines = hourly.of([(subject.target_id, baseline) for subject in subjects], since_at)
    return regions.minus(baselines).variances(pairs.hours())


def _with_noise_of_all(estimate: Estimate | None, history: LevelHistory | None) -> Estimate | None:
    """Return an estimate with the p-value that the noise around all levels gives, if that is smaller."""
    if history is None or estimate is None or estimate.p_value is None:
        return estimate
    return replace(estimate, p_value=min(estimate.p_value, history.p_value))


def _unfit(
    sides: Sequence[tuple[str, int, Participation]], *, metric: Metric, region_problems: Mapping[str, str]
) -> str:
    """Return why nothing is decided on these two sides, whatever their values; empty if a decision is possible."""
    reasons = (
        *(region_problems.get(region, "") for region, _, _ in sides),
        *("" if n else f"no {metric.value} from {region}" for region, n, _ in sides),
        *(participation.coverage_problem(region) for region, _, participation in sides),
    )
    return next(filter(None, reasons), "")


def _differential(
    line: _Line, *, metric: Metric, baseline: str, q_value: float | None, comparisons: int, known: ComparisonContext
) -> Differential:
    subject, estimate = line.subject, line.estimate
    history = known.histories.get(subject.key)
    common = {
        "target": subject.target,
        "provider": subject.provider,
        "model": subject.model,
        "metric": metric,
        "unit": metric.unit,
        "baseline": baseline,
        "region": subject.region,
        "baseline_n": line.baseline_n,
        "region_n": line.region_n,
        "since_at": line.since_at or None,
        "baseline_side": line.baseline_participation.side(line.baseline_n),
        "region_side": line.region_participation.side(line.region_n),
        "parts": known.parts.get(subject.key, ()),
        "levels": history.levels if history else (),
        "rounds_needed": rounds_needed(known.memory(subject.key)),
    }
    if estimate is None:
        return Differential(**common, reason=line.why_nothing())  # type: ignore[arg-type]  # a dict of mixed values
    margin = (known.margin or margin_of(metric)).size(estimate.baseline_median, estimate.region_median)
    verdict = _verdict(line, estimate, margin=margin, metric=metric, memory=known.memory(subject.key))
    most = MAX_FALSE_SHARE if estimate.has_history else MAX_WITHOUT_HISTORY
    verdict = adjusted_for_comparisons(verdict, q_value=q_value, comparisons=comparisons, most=most)
    faster = estimate.greater if metric.more_is_better else 1 - estimate.greater
    decision, reason = unless_mixed(
        verdict,
        estimate.shift,
        median_difference=estimate.region_median - estimate.baseline_median,
        faster_share=faster,
        metric=metric,
    )
    return Differential(
        **common,  # type: ignore[arg-type]  # as above
        **_figures(estimate),  # type: ignore[arg-type]  # as above
        faster_probability=faster,
        margin=margin,
        q_value=q_value,
        decision=decision,
        reason=reason,
    )


def _verdict(line: _Line, estimate: Estimate, *, margin: float, metric: Metric, memory: float | None) -> Verdict:
    """Return the verdict on one line, before the correction for all comparisons."""
    if line.unfit:
        return Decision.UNDECIDED, line.unfit
    n = estimate.n if estimate.paired else min(line.baseline_n, line.region_n)
    rounds = Rounds(n=n, memory=memory, undetermined=line.undetermined)
    verdict = after_losses(
        decide(estimate.shift, rounds=rounds, margin=margin, metric=metric),
        baseline=line.baseline_losses,
        region=line.region_losses,
    )
    decision, reason = with_enough_rounds(verdict, estimate.shift, rounds=rounds, metric=metric)
    return decision, f"{reason}, counted from the change on" if rounds.lack in reason and line.since_at else reason


def _figures(estimate: Estimate) -> dict[str, object]:
    shift, median = estimate.shift, estimate.baseline_median
    return {
        "baseline_median": median,
        "region_median": estimate.region_median,
        "median_difference": estimate.region_median - median,
        "correlation": estimate.correlation,
        "shift": shift.estimate,
        "shift_low": shift.low,
        "shift_high": shift.high,
        "shift_percent": 100 * shift.estimate / median if median else None,
        "n": estimate.n,
        "n_eff": estimate.n_eff,
        "paired": estimate.paired,
        "newest_at": estimate.newest_at,
        "network_shift": estimate.network_shift,
        "server_shift": estimate.server_shift,
    }
