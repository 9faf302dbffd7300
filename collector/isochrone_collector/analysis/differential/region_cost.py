"""Region cost: the best region for each provider, and the latency that the other regions add.

The laws:

1. Regions are compared on the targets of a provider that all of them measured; a region without any such target is left
   out, with the reason. Unfit data (a region with its own problem, too few rounds recorded) counts as not
   measured. A lasting change of a target in any region cuts off the rounds before it.
2. The best region is the one to which no other is estimated to be better. The cost of another region is the
   Hodges-Lehmann shift of its differences to the best one, paired by target and round (see `stats.shifts`); a pair that
   both sides lost to a timeout, or in which one side's timeout leaves the sign open (see `panel`), does not count. A
   region that lost most of its rounds to timeouts is not the best if there is another, and no decision favours it.
3. What slows a region down slows it down for all targets at once, so the differences of several targets in one round
   are not independent, and neither are those of neighbouring rounds. The ranks of the differences, each around the
   median of its target, are therefore added up over all targets of a round. The half-width of the interval is
   multiplied by the √ of the variance of these sums, relative to that of independent ranks (the design effect of a
   cluster sample: L. Kish, Survey Sampling (1965), section 5.4), times the inflation of their series. The rounds that
   count for a decision are those of one target.
4. A region is `mixed` as in `decision`: the difference of the medians is that of each target over its pairs, and of
   several targets their median; the share of faster rounds is that of all pairs.
5. The best region is decided only if every other is decidedly slower; if some are equivalent, it is equivalent.
6. Drift slower than the window is known from the past week: from the mean over the targets of the hourly levels, each
   around its own. Without 48 hours of it, all lines of the answer show it together (`stats.memory`), and decisions are
   provisional.
7. The best region is chosen from the same rounds on which it is compared, so a lucky one looks better than it is. The
   interval and the p-values of a line therefore hold for all regions that may be the best one, by Bonferroni. Inference
   that holds for all choices holds for the one that was made (projection; I. Andrews, T. Kitagawa and A. McCloskey,
   Quarterly J. Econ. 139 (2024) 305-358), and it is enough to hold for those that the data leave possible (T. Zrnic and
   W. Fithian, Annals of Statistics 52 (2024) 1227-1253): regions whose cost is less than two half-widths of intervals
   that together err in 0.1 %. One that is far behind widens nothing, and of two regions the interval is that of one
   comparison.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isochrone_collector.analysis.differential.decision import (
    Comparison,
    Margin,
    Rounds,
    decide,
    mostly_lost,
    q_values,
    undetermined_note,
)
from isochrone_collector.analysis.differential.estimation import medians, with_unseen
from isochrone_collector.analysis.differential.panel import Changes, Panel, TargetRegion
from isochrone_collector.analysis.history import SeriesLevels
from isochrone_collector.analysis.stats.arrays import Integers, Ragged, Reals, grouped, mean_ranks
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation, inflation
from isochrone_collector.analysis.stats.shifts import Shifts, paired_estimates, paired_shifts
from isochrone_wire.answers import Decision, Metric
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import RegionCost

# A region may be the best one unless it is excluded with so many times less error than an interval has.
_SURE = 50


def region_costs(
    panel: Panel,
    providers: Mapping[int, str],
    *,
    metric: Metric,
    unfit: Mapping[TargetRegion, str],
    changes: Changes,
    margin: Margin,
    hourly: SeriesLevels | None = None,
) -> tuple[RegionCost, ...]:
    """Return one line per provider and region that has a value, the best region of a provider first.

    `providers` maps target id → provider; other targets are ignored. `unfit` maps a target and region → why it is not
    compared. `margin` is the smallest difference that matters. `hourly` are the levels of the past week, if they are
    known.
    """
    newest = _newest_changes(changes)
    panel = _since(panel, newest)
    places: dict[str, list[int]] = {}
    for place, target_id in enumerate(panel.target_ids.tolist()):
        if target_id in providers:
            places.setdefault(providers[target_id], []).append(place)
    view = _PanelView(panel, metric, unfit, newest)
    found = [line for provider in sorted(places) for line in _provider(view, provider, places[provider])]
    compared = [line for line in found if isinstance(line, _Line)]
    lines = [line for line in found if isinstance(line, RegionCost)]
    judged = [*lines, *(_judged(compared, margin, _histories(compared, newest, hourly)) if compared else ())]
    return tuple(cost for provider in sorted(places) for cost in _ordered(judged, provider))


def _newest_changes(changes: Changes) -> dict[int, int]:
    newest: dict[int, int] = {}
    for (target_id, _), changed_at in changes.items():
        newest[target_id] = max(newest.get(target_id, 0), changed_at)
    return newest


def _since(panel: Panel, newest: Mapping[int, int]) -> Panel:
    since_at = np.array([newest.get(target_id, 0) for target_id in panel.target_ids.tolist()], dtype=np.int64)
    kept = panel.round_at >= since_at[panel.group // max(1, len(panel.regions))]
    columns = ("group", "round_at", "value", "censored", "network")
    return replace(panel, **{name: getattr(panel, name)[kept] for name in columns})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Differences:
    """The values of a region and of the best one in each pair, with its target and round; some are `undetermined`."""

    ours: Reals
    theirs: Reals
    targets: Integers
    round_at: Integers
    undetermined: int

    def __len__(self) -> int:
        return len(self.ours)

    @property
    def hours(self) -> float:
        """The hours that the rounds span, with one gap more than there are between them."""
        instants = np.unique(self.round_at)
        gaps = max(len(instants) - 1, 1)
        return float(instants[-1] - instants[0]) / HOUR_US * len(instants) / gaps

    @property
    def values(self) -> Reals:
        """The differences."""
        return self.ours - self.theirs

    @property
    def rounds(self) -> int:
        """The most rounds of one target."""
        return int(np.bincount(self.targets).max(initial=0))

    def ranks(self) -> Reals:
        """Return the rank of each difference around the median of its target, from the mean rank."""
        centred = self.values - self._medians(self.values)[self.targets]
        return np.asarray(mean_ranks(centred[np.newaxis])[0] - (len(self) + 1) / 2)

    def median_difference(self) -> float:
        """Return the median over the targets of the difference of both regions' medians."""
        return float(np.median(self._medians(self.ours) - self._medians(self.theirs)))

    def faster_share(self, metric: Metric) -> float:
        """Return the share of pairs in which the region is better than the best one; ties count half."""
        greater = float(np.mean((np.sign(self.values) + 1) / 2))
        return greater if metric.more_is_better else 1 - greater

    def _medians(self, values: Reals) -> Reals:
        return medians(grouped(values, self.targets, rows=int(self.targets.max(initial=-1)) + 1))

    def by_round(self, values: Reals) -> Reals:
        """Return the sums of all targets in each round, by the interval of the slowest target."""
        begins = np.flatnonzero(np.diff(self.targets)) + 1
        apart = [np.diff(rounds_at) for rounds_at in np.split(self.round_at, begins) if len(rounds_at) > 1]
        every = max((int(np.median(one)) for one in apart), default=1)
        _, place = np.unique(self.round_at // every, return_inverse=True)
        return np.bincount(place, weights=values).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Line:
    """A cost to decide on: its pairs, the ids of their targets, the median of the best region, and why nothing is
    decided in favour of that one or of its own.
    """

    cost: RegionCost
    pairs: _Differences
    target_ids: tuple[int, ...]
    best_median: float
    losses: tuple[str, str]

    def margin(self, margin: Margin) -> float:
        """Return the smallest difference from the best region that matters."""
        return margin.size(self.best_median, self.cost.median or 0.0)


class _PanelView:
    """A panel indexed by target and region, with what is unfit in it."""

    def __init__(
        self, panel: Panel, metric: Metric, unfit: Mapping[TargetRegion, str], newest_changes: Mapping[int, int]
    ) -> None:
        self.regions = panel.regions
        self.metric = metric
        self.sign = -1 if metric.more_is_better else 1
        self._panel = panel
        self._round_keys = panel.round_keys()
        width = max(1, len(panel.regions))
        self._target = panel.group // width
        self._starts = np.searchsorted(panel.group, np.arange(len(panel.target_ids) * width + 1))
        self.counts = np.diff(self._starts).reshape(len(panel.target_ids), width)
        self._unfit = unfit
        self._newest_changes = newest_changes
        self.fit = np.array(
            [[(target_id, region) not in unfit for region in panel.regions] for target_id in panel.target_ids.tolist()]
        ).reshape(self.counts.shape)

    def rows(self, region: int, targets: Sequence[int]) -> Integers:
        """Return the places of the values of some targets from one region, by target and round."""
        return np.concatenate([np.arange(*self._span(region, target)) for target in targets])

    def median(self, region: int, targets: Sequence[int]) -> float:
        """Return the median of the targets' medians."""
        spans = (slice(*self._span(region, target)) for target in targets)
        return float(np.median([np.median(self._panel.value[span]) for span in spans]))

    def ids(self, targets: Sequence[int]) -> tuple[int, ...]:
        """Return the ids of targets."""
        return tuple(self._panel.target_ids[list(targets)].tolist())

    def since_at(self, targets: Sequence[int]) -> int | None:
        """Return the newest change of the targets, `None` without one."""
        changed_at = (self._newest_changes.get(int(self._panel.target_ids[target])) for target in targets)
        return max(filter(None, changed_at), default=None)

    def losses(self, region: int, rows: Integers) -> str:
        """Return the reason if most of a region's `rows` ended in a timeout, else an empty text."""
        lost = int(np.count_nonzero(self._panel.censored[rows]))
        return mostly_lost(self.regions[region], lost=lost, rounds=len(rows))

    def differences(self, rows: Integers, best: Integers) -> _Differences:
        """Return the values in `rows` minus those in `best` of the same target and round."""
        _, left, right = np.intersect1d(
            self._round_keys[rows], self._round_keys[best], assume_unique=True, return_indices=True
        )
        ours, theirs = rows[left], best[right]
        kept = self._panel.sign_is_known(ours, theirs)
        undetermined = ~kept & ~(self._panel.censored[ours] & self._panel.censored[theirs])
        ours, theirs = ours[kept], theirs[kept]
        return _Differences(
            ours=self._panel.value[ours],
            theirs=self._panel.value[theirs],
            targets=np.unique(self._target[ours], return_inverse=True)[1],
            round_at=self._panel.round_at[ours],
            undetermined=int(np.count_nonzero(undetermined)),
        )

    def why_unfit(self, region: int, targets: Sequence[int]) -> str:
        """Return why some target is not compared from a region; empty if all are."""
        name = self.regions[region]
        reasons = (self._unfit.get((int(self._panel.target_ids[target]), name)) for target in targets)
        return next(filter(None, reasons), "")

    def _span(self, region: int, target: int) -> tuple[int, int]:
        group = target * max(1, len(self.regions)) + region
        return int(self._starts[group]), int(self._starts[group + 1])


def _provider(view: _PanelView, provider: str, places: Sequence[int]) -> Iterator[RegionCost | _Line]:
    regions, targets = _comparable(view, places)
    blank = RegionCost(provider=provider, metric=view.metric, region="", best_region="", targets=len(targets))
    if not regions:
        yield from _excluded_lines(view, blank, places, ())
        return
    rows = [view.rows(region, targets) for region in regions]
    losses = [view.losses(region, own) for region, own in zip(regions, rows, strict=True)]
    best = _best(view, rows, candidates=[place for place, lost in enumerate(losses) if not lost] or range(len(rows)))
    nearest = regions[best]
    blank = replace(blank, best_region=view.regions[nearest], since_at=view.since_at(targets))
    best_median, target_ids = view.median(nearest, targets), view.ids(targets)
    for place, region in enumerate(regions):
        line = replace(blank, region=view.regions[region], median=view.median(region, targets))
        both = losses[best], losses[place]
        if place == best:
            yield replace(line, added=0.0, n=len(rows[best]))
        elif pairs := view.differences(rows[place], rows[best]):
            line = replace(line, n=len(pairs))
            yield _Line(cost=line, pairs=pairs, target_ids=target_ids, best_median=best_median, losses=both)
        else:
            nowhere = f"no round has a value both from here and from {line.best_region}"
            yield replace(line, reason=both[1] or both[0] or undetermined_note(pairs.undetermined) or nowhere)
    yield from _excluded_lines(view, blank, places, regions)


def _excluded_lines(
    view: _PanelView, blank: RegionCost, places: Sequence[int], compared: Sequence[int]
) -> Iterator[RegionCost]:
    for region in np.flatnonzero(view.counts[places].any(axis=0)).tolist():
        if region not in compared:
            reason = view.why_unfit(region, places) or (
                f"measured none of the targets of {blank.provider} that the others did"
            )
            yield replace(blank, region=view.regions[region], targets=0, reason=reason)


def _comparable(view: _PanelView, places: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the regions to compare and their common targets; the poorest regions go until there are some."""
    measured = (view.counts[places] > 0) & view.fit[places]
    regions = np.flatnonzero(measured.any(axis=0)).tolist()
    while regions:
        common = np.flatnonzero(measured[:, regions].all(axis=1))
        if len(common):
            return regions, [places[place] for place in common.tolist()]
        regions.remove(min(regions, key=lambda region: int(measured[:, region].sum())))
    return [], []


def _best(view: _PanelView, rows: Sequence[Integers], *, candidates: Sequence[int]) -> int:
    """Return the best candidate: from the one with most values, move to the best compared with it, until known."""
    best = max(candidates, key=lambda place: len(rows[place]))
    tried: set[int] = set()
    while best not in tried:
        tried.add(best)
        differences = [view.differences(rows[place], rows[best]).values for place in candidates]
        # Without shared rounds, no candidate is better.
        estimates = np.nan_to_num(view.sign * paired_estimates(_laid_out(differences)))
        if estimates.min() < 0:
            best = candidates[int(estimates.argmin())]
    return best


def _shifts(differences: Sequence[_Differences], history: VarianceInflation | None) -> Shifts:
    ranks = [own.ranks() for own in differences]
    sums = [own.by_round(values) for own, values in zip(differences, ranks, strict=True)]
    # The variance of the sums of the rounds, relative to that of independent values of mean 0.
    squares = np.array([own @ own for own in ranks])
    effects = np.divide([own @ own for own in sums], squares, out=np.ones(len(sums)), where=squares > 0)
    series = _laid_out(sums)
    of_rounds = with_unseen(inflation(series), series, history)
    known = VarianceInflation(ratio=np.maximum(1.0, effects * of_rounds.ratio), freedom=of_rounds.freedom)
    return paired_shifts(_laid_out([own.values for own in differences]), known=known, history=history)


def _histories(
    lines: Sequence[_Line], newest: Mapping[int, int], hourly: SeriesLevels | None
) -> VarianceInflation | None:
    """Return how far the mean levels of each line's targets were from the long run in such windows of the past week."""
    if hourly is None:
        return None
    series = [(line, target_id) for line in lines for target_id in line.target_ids]
    since_at = [newest.get(target_id, 0) for _, target_id in series]
    ours, theirs = (
        hourly.of([(target_id, region) for (_, target_id), region in zip(series, regions, strict=True)], since_at)
        for regions in ([line.cost.region for line, _ in series], [line.cost.best_region for line, _ in series])
    )
    owner = np.repeat(np.arange(len(lines)), [len(line.target_ids) for line in lines])
    return ours.minus(theirs).averaged(owner, rows=len(lines)).variances(np.array([line.pairs.hours for line in lines]))


def _rivals(lines: Sequence[_Line], alone: Shifts) -> Integers:
    """Return how many regions besides each line's own may be the best one of its provider."""
    _, of = np.unique([line.cost.provider for line in lines], return_inverse=True)
    reach = alone.among(_SURE * np.bincount(of)[of])
    is_candidate = np.array([not line.losses[1] for line in lines], np.bool_)
    may_be_best = is_candidate & ~(np.abs(alone.estimate) > reach.high - reach.low)
    return 1 + np.bincount(of[may_be_best], minlength=len(lines))[of] - may_be_best


def _laid_out(rows: Sequence[Reals]) -> Ragged:
    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    return grouped(np.concatenate(rows), owner, rows=len(rows))


def _judged(lines: Sequence[_Line], margin: Margin, history: VarianceInflation | None) -> list[RegionCost]:
    alone = _shifts([line.pairs for line in lines], history)
    rivals = _rivals(lines, alone)
    chosen = alone.among(rivals)
    columns = zip(lines, alone.listed(), alone.freedom.tolist(), strict=True)
    beyond = [one.chance_beyond(line.margin(margin), freedom=freedom) if one else 1.0 for line, one, freedom in columns]
    rows = zip(
        lines,
        chosen.listed(),
        chosen.n_eff.tolist(),
        q_values(chosen.p_value).tolist(),
        q_values(np.minimum(rivals * np.array(beyond), 1.0)).tolist(),
        [False] * len(lines) if history is None else np.isfinite(history.ratio).tolist(),
        strict=True,
    )
    comparisons = int(np.count_nonzero(~np.isnan(chosen.p_value)))
    return [
        _decided(
            replace(line.cost, added=shift.estimate, added_low=shift.low, added_high=shift.high, n_eff=n_eff),
            Comparison(
                metric=line.cost.metric,
                shift=shift,
                rounds=Rounds(n=line.pairs.rounds, undetermined=line.pairs.undetermined),
                margin=line.margin(margin),
                median_difference=line.pairs.median_difference(),
                faster_share=line.pairs.faster_share(line.cost.metric),
                q_value=None if np.isnan(rate) else rate,
                comparisons=comparisons,
                equivalence_q_value=alike,
                has_history=has_history,
                baseline_losses=line.losses[0],
                region_losses=line.losses[1],
            ),
        )
        for line, shift, n_eff, rate, alike, has_history in rows
        if shift
    ]


def _decided(cost: RegionCost, comparison: Comparison) -> RegionCost:
    decision, reason = decide(comparison)
    provisional = not (comparison.has_history or decision is Decision.UNDECIDED)
    return replace(cost, decision=decision, reason=reason, provisional=provisional)


def _ordered(costs: Sequence[RegionCost], provider: str) -> list[RegionCost]:
    """Return the lines of one provider, the best region first and unknown costs last."""

    def place(cost: RegionCost) -> tuple[bool, float, str]:
        added = cost.added or 0.0
        return cost.added is None, -added if cost.metric.more_is_better else added, cost.region

    own = [cost for cost in costs if cost.provider == provider]
    others = sorted((cost for cost in own if cost.region != cost.best_region), key=place)
    return [*(_best_line(cost, others) for cost in own if cost.region == cost.best_region), *others]


def _best_line(best: RegionCost, others: Sequence[RegionCost]) -> RegionCost:
    """Return the best region's own line, decided by all that were compared with it."""
    decisions = {cost.region: cost.decision for cost in others if cost.targets}
    near = [region for region, decision in decisions.items() if decision is Decision.EQUIVALENT]
    unclear = (Decision.UNDECIDED, Decision.MIXED)
    open_ = [region for region, decision in decisions.items() if decision in unclear]
    if not decisions:
        return replace(best, reason=f"no other region to compare {best.region} with")
    if open_:
        return replace(best, reason=f"not decidedly better than {', '.join(open_)}")
    best = replace(best, provisional=any(cost.provisional for cost in others))
    if near:
        return replace(best, decision=Decision.EQUIVALENT, reason=f"equivalent: {', '.join(near)}")
    return replace(best, decision=Decision.FASTER)
