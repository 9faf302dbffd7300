"""Differentials: the difference between a region and the baseline region, target by target.

The chain from probes to decisions: `panel` reduces probes to one value per region and round, `levels` finds the steps
of their difference, `panel.pair_up` the rounds since then that two regions share, `estimation` estimates the shift
between them, `decision` decides on it, and `participation` checks that enough was recorded to decide at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from isochrone_collector.analysis.differential.decision import (
    Comparison,
    Margin,
    Rounds,
    Verdict,
    decide,
    family_rates,
    margin_of,
    mostly_lost,
    rounds_needed,
    undetermined_note,
)
from isochrone_collector.analysis.differential.estimation import Estimate, estimates
from isochrone_collector.analysis.differential.levels import LevelHistory
from isochrone_collector.analysis.differential.panel import Changes, Pairs, Panel, TargetRegion, pair_up
from isochrone_collector.analysis.differential.participation import Participation
from isochrone_collector.analysis.history import SeriesLevels
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_collector.analysis.stats.shifts import Shift
from isochrone_wire.answers import Decision, Differential, Level, Metric, Part


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

    `margin` is the smallest difference that matters, by default the metric's. `decorrelation_rounds` are the rounds of
    a pair that count as one independent round, as far as its history shows them. `family` are the targets whose
    comparisons count for the false-discovery rate, `None` for all; `family_size` is the number of its comparisons if
    they were not all read.
    """

    participations: Mapping[TargetRegion, Participation] = field(default_factory=dict)
    region_problems: Mapping[str, str] = field(default_factory=dict)
    changes: Changes = field(default_factory=dict)
    histories: Mapping[TargetRegion, LevelHistory] = field(default_factory=dict)
    parts: Mapping[TargetRegion, tuple[Part, ...]] = field(default_factory=dict)
    hourly: SeriesLevels | None = None
    margin: Margin | None = None
    decorrelation_rounds: Mapping[TargetRegion, float] = field(default_factory=dict)
    family: frozenset[int] | None = None
    family_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The baseline or the region: its rounds, its participation, and why nothing is decided in its favour."""

    region: str
    n: int
    participation: Participation
    losses: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The result of one subject before the correction; `unfit` is why nothing is decided, whatever the values."""

    subject: Subject
    estimate: Estimate | None
    history: LevelHistory | None
    since_at: int
    baseline: _Side
    region: _Side
    unfit: str
    undetermined: int

    @property
    def p_value(self) -> float:
        p_value = self.estimate.p_value if self.estimate and not self.unfit else None
        if p_value is None:
            return np.nan
        # The noise around all levels may give a smaller one.
        return min(p_value, self.history.p_value) if self.history else p_value

    def chance_beyond(self, margin: Margin) -> float:
        """Return the p-value of a difference of the margin or more; NaN where nothing is compared."""
        if self.estimate is None or self.unfit:
            return np.nan
        size = margin.size(self.estimate.baseline_median, self.estimate.region_median)
        return self.estimate.shift.chance_beyond(size, freedom=self.estimate.freedom)


def differentials_of(
    panel: Panel, subjects: Sequence[Subject], *, metric: Metric, baseline: str, context: ComparisonContext
) -> tuple[Differential, ...]:
    """Return one differential per subject: region minus baseline, with its interval and the decision."""
    pairs = pair_up(panel, [subject.key for subject in subjects], baseline=baseline, changes=context.changes)
    lines = _lines(pairs, subjects, metric=metric, baseline=baseline, context=context)
    is_member = np.array([context.family is None or one.target_id in context.family for one in subjects], np.bool_)
    margin = context.margin or margin_of(metric)
    (rates, comparisons), (equal_rates, _) = (
        family_rates(np.array(p_values, dtype=np.float64), is_member=is_member, size=context.family_size)
        for p_values in ([line.p_value for line in lines], [line.chance_beyond(margin) for line in lines])
    )
    return tuple(
        _differential(
            line,
            metric,
            q_value=None if np.isnan(rate) else rate,
            equivalence_q_value=alike,
            comparisons=comparisons,
            context=context,
        )
        for line, rate, alike in zip(lines, rates.tolist(), equal_rates.tolist(), strict=True)
    )


def _lines(
    pairs: Pairs, subjects: Sequence[Subject], *, metric: Metric, baseline: str, context: ComparisonContext
) -> list[_Line]:
    known = [context.decorrelation_rounds.get(subject.key, np.nan) for subject in subjects]
    found = estimates(
        pairs,
        with_network=metric.includes_request,
        decorrelation_rounds=np.array(known, dtype=np.float64),
        history=_history(pairs, subjects, baseline, context.hourly),
    )
    lines, n_shared = [], pairs.n_shared.tolist()
    columns = (
        (pairs.baseline_span.counts.tolist(), pairs.baseline_lost.tolist()),
        (pairs.region_span.counts.tolist(), pairs.region_lost.tolist()),
    )
    for place, (subject, estimate) in enumerate(zip(subjects, found, strict=True)):
        sides = []
        for region, (n, lost) in zip((baseline, subject.region), columns, strict=True):
            own = context.participations.get((subject.target_id, region), Participation())
            losses = mostly_lost(region, lost=lost[place], rounds=n_shared[place]) or own.losses(region)
            sides.append(_Side(region=region, n=n[place], participation=own, losses=losses))
        problems = (
            *(context.region_problems.get(side.region, "") for side in sides),
            *(side.participation.busy_problem(side.region) for side in sides),
            *("" if side.n else f"no {metric.value} from {side.region}" for side in sides),
            *(side.participation.coverage_problem(side.region) for side in sides),
        )
        lines.append(
            _Line(
                subject=subject,
                estimate=estimate,
                history=context.histories.get(subject.key),
                since_at=int(pairs.since_at[place]),
                baseline=sides[0],
                region=sides[1],
                unfit=next(filter(None, problems), ""),
                undetermined=int(pairs.undetermined[place]),
            )
        )
    return lines


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


def _differential(
    line: _Line,
    metric: Metric,
    *,
    q_value: float | None,
    equivalence_q_value: float,
    comparisons: int,
    context: ComparisonContext,
) -> Differential:
    subject, estimate, history = line.subject, line.estimate, line.history
    known = history.decorrelation_rounds if history else None
    rounds = Rounds(
        n=estimate.n if estimate and estimate.paired else min(line.baseline.n, line.region.n),
        decorrelation_rounds=context.decorrelation_rounds.get(subject.key, known),
        undetermined=line.undetermined,
    )
    found = Differential(
        target=subject.target,
        provider=subject.provider,
        model=subject.model,
        metric=metric,
        unit=metric.unit,
        baseline=line.baseline.region,
        region=subject.region,
        baseline_n=line.baseline.n,
        region_n=line.region.n,
        since_at=line.since_at or None,
        baseline_side=line.baseline.participation.side(line.baseline.n),
        region_side=line.region.participation.side(line.region.n),
        parts=context.parts.get(subject.key, ()),
        levels=history.levels if history else (),
        rounds_needed=rounds_needed(rounds.decorrelation_rounds),
    )
    if estimate is None:
        losses = (line.unfit, line.region.losses, line.baseline.losses, undetermined_note(line.undetermined))
        return replace(found, reason=next(filter(None, losses), "no round has a value from both regions"))
    shift, median = estimate.shift, estimate.baseline_median
    comparison = Comparison(
        metric=metric,
        shift=shift,
        rounds=rounds,
        margin=(context.margin or margin_of(metric)).size(median, estimate.region_median),
        median_difference=estimate.region_median - median,
        faster_share=estimate.prob_superiority if metric.more_is_better else 1 - estimate.prob_superiority,
        q_value=q_value,
        comparisons=comparisons,
        equivalence_q_value=equivalence_q_value,
        has_history=estimate.has_history,
        baseline_losses=line.baseline.losses,
        region_losses=line.region.losses,
    )
    decision, reason = _verdict(line, comparison)
    return replace(
        found,
        shift=shift.estimate,
        shift_low=shift.low,
        shift_high=shift.high,
        levels=_with_present(found.levels, shift, estimate.n),
        shift_percent=100 * shift.estimate / median if median else None,
        median_difference=comparison.median_difference,
        faster_probability=comparison.faster_share,
        margin=comparison.margin,
        q_value=q_value,
        decision=decision,
        reason=reason,
        provisional=not (estimate.has_history or decision is Decision.UNDECIDED),
        **{name: getattr(estimate, name) for name in _FIGURES},
    )


def _with_present(levels: tuple[Level, ...], shift: Shift, n: int) -> tuple[Level, ...]:
    """Return the levels, the present one with the interval of the long-run level if it is that of the same rounds."""
    if not levels or levels[-1].n != n:
        return levels
    return (*levels[:-1], replace(levels[-1], low=shift.low, high=shift.high))


_FIGURES = (
    *("baseline_median", "region_median", "correlation", "n", "n_eff", "paired", "newest_at"),
    *("network_shift", "server_shift"),
)


def _verdict(line: _Line, comparison: Comparison) -> Verdict:
    if line.unfit:
        return Decision.UNDECIDED, line.unfit
    decision, reason = decide(comparison)
    is_short = comparison.rounds.lack in reason and line.since_at
    return decision, f"{reason}, counted from the change on" if is_short else reason
