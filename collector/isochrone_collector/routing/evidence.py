"""Evidence of a table, computed from probes.

A vantage is suspect if at least two thirds of its targets, of at least two providers, had only failures in their last
probes: then the vantage itself probably fails, and its probes are left out. It is not suspect while the plan's control
target answers it. A target that most vantages of other regions see fail too is no evidence against a vantage that any
target answers: then the providers fail, and the vantages know which one answers. The probes of a suspect vantage stay
left out after it stops reporting; but only reporting vantages are counted, so that a vantage's last probes do not count
for the whole window.

Two members are compared by slots as long as the longer of their intervals, because each target has its own rounds. Of
the member that is probed more often only the first round of a slot counts: a median of several rounds is less skewed
than a single value, which would look like a shift. Whether they stall together is counted in joint rounds only.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from itertools import combinations

import numpy as np

from isochrone_collector.analysis.distribution import quantiles_of
from isochrone_collector.analysis.goodput import effective_sizes
from isochrone_collector.analysis.histogram import buckets_of
from isochrone_collector.analysis.probes import Flags, Integers, Kind, Kinds, Reals, sign_is_known
from isochrone_collector.analysis.requests import Ending, Requests
from isochrone_collector.analysis.stats.long_run_variance import Inflation, independent, inflation, stacked
from isochrone_collector.analysis.stats.paired import Shift, paired_shifts
from isochrone_collector.analysis.stats.proportion import wilson
from isochrone_collector.analysis.stats.ragged import ragged
from isochrone_collector.routing.inputs import Comparison, Evidence, Rules, has_limits, limits_of
from isochrone_collector.routing.joint_rounds import JointRounds
from isochrone_wire.answers import Metric, Quantile
from isochrone_wire.model import SECOND_US, Slo

_SHARE = 0.95
# The number of gaps whose median is the usual one: two that are long for another reason do not change it.
_LEAST_COSINES = 6
# The half-width of a 99 % interval relative to one of 95 %.
_MANY_LOOKS = 1.314
_AROUND = 5
# By `Kind`.
_IS_SENT = np.array([True, True, False, False])
_ENDING_OF = np.array([Ending.ANSWERED, Ending.FAILED, Ending.NONE, Ending.NONE], np.int8)
NO_OBJECTIVE = Slo()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTable:
    """One row per probe. `member` and `region` are indices into `members` and `regions`; durations are in microseconds,
    NaN if unknown; where `censored`, `ttft_us` is the limit that was hit. Probes that are not `comparable` began too
    late for their round, or were given up before the request was sent. The tokens of an answer after the first
    `first_chunk_tokens` begin at `answer_from_us`.
    """

    members: tuple[str, ...]
    regions: tuple[str, ...]
    member: Integers
    region: Integers
    vantage_id: Integers
    round_at: Integers
    kind: Kinds
    ttft_us: Reals
    censored: Flags
    rtt_us: Reals
    tokens_per_second: Reals
    comparable: Flags
    answer_from_us: Reals
    first_chunk_tokens: Reals

    def __len__(self) -> int:
        return len(self.member)

    def where(self, mask: Flags) -> "ProbeTable":
        """Return the rows of a mask."""
        columns = [field.name for field in fields(self) if field.name not in ("members", "regions")]
        return replace(self, **{name: getattr(self, name)[mask] for name in columns})


Failing = Mapping[tuple[int, int], int]


def reporting(probes: ProbeTable, *, since_at: int) -> set[int]:
    """Return the vantages with a round of any target at `since_at` or later."""
    return set(np.unique(probes.vantage_id[probes.round_at >= since_at]).tolist())


def failing_runs(probes: ProbeTable) -> dict[tuple[int, int], int]:
    """Map (member, vantage) to the number of its newest probes that failed in a row; throttled and skipped ones are
    ignored.
    """
    sent = probes.where(_IS_SENT[probes.kind])
    if not len(sent):
        return {}
    order = np.lexsort((-sent.round_at, sent.vantage_id, sent.member))
    member, vantage, failed = (of[order] for of in (sent.member, sent.vantage_id, sent.kind == Kind.FAILED))
    places = np.arange(len(order))
    starts = np.flatnonzero(np.r_[True, (np.diff(member) != 0) | (np.diff(vantage) != 0)])
    ends = np.r_[starts[1:], len(order)]
    first_success = np.minimum.reduceat(np.where(failed, len(order), places), starts)
    lengths = np.minimum(first_success, ends) - starts
    keys = zip(member[starts].tolist(), vantage[starts].tolist(), strict=True)
    return dict(zip(keys, lengths.tolist(), strict=True))


def regions_of(probes: ProbeTable) -> dict[int, int]:
    """Map each vantage to the index of its region."""
    vantages, rows = np.unique(probes.vantage_id, return_index=True)
    return dict(zip(vantages.tolist(), probes.region[rows].tolist(), strict=True))


def suspects(
    runs: Failing, provider_of: Sequence[str], region_of: Mapping[int, int], rules: Rules, *, control: int | None = None
) -> set[int]:
    """Return the suspect vantages. `region_of` maps each vantage to its region; `control` is the index of the plan's
    control target, if any.
    """
    by_vantage: dict[int, dict[int, int]] = {}
    for (member, vantage), run in runs.items():
        by_vantage.setdefault(vantage, {})[member] = run
    return {
        vantage
        for vantage, own in by_vantage.items()
        if _is_suspect(own, provider_of, rules, control)
        and _is_suspect(_own_failures(own, runs, region_of, region_of[vantage], rules), provider_of, rules, control)
    }


def _is_suspect(runs: Mapping[int, int], provider_of: Sequence[str], rules: Rules, control: int | None) -> bool:
    if control is not None and runs.get(control) == 0:
        return False
    failing = [member for member, run in runs.items() if _is_failing(run, rules)]
    certain = max(runs.values()) >= rules.failures_in_a_row
    several = len({provider_of[member] for member in failing}) > 1
    return certain and several and len(failing) >= rules.suspicious_share * len(runs)


def _is_failing(run: int, rules: Rules) -> bool:
    # Targets have their own rounds: when the first one has failed three times, the others have only twice.
    return run >= rules.failures_in_a_row - 1


def _own_failures(
    own: Mapping[int, int], runs: Failing, region_of: Mapping[int, int], region: int, rules: Rules
) -> Mapping[int, int]:
    """Return the runs of a vantage without those of targets that most vantages of other regions see fail too; all of
    them if none of its targets answers, because then its rounds do not show which ones fail.
    """
    if all(_is_failing(run, rules) for run in own.values()):
        return own
    elsewhere: dict[int, list[bool]] = {}
    for (member, vantage), run in runs.items():
        if member in own and region_of[vantage] != region:
            elsewhere.setdefault(member, []).append(_is_failing(run, rules))
    shared = {member for member, failing in elsewhere.items() if 2 * sum(failing) > len(failing)}
    return {member: run for member, run in own.items() if member not in shared or not _is_failing(run, rules)}


Drift = Callable[[Sequence[tuple[int, int]], int], Inflation]
"""Returns, for each pair of members, how far their difference over a window (microseconds) may be from that of the long
run, as known from the past week: the variance of its level; NaN if it is unknown.
"""


def evidence_of(
    probes: ProbeTable,
    series: Sequence[tuple[int, int]],
    *,
    every_us: Sequence[int],
    trusted: Failing,
    reporting_ids: Collection[int],
    rules: Rules,
    slo: Slo = NO_OBJECTIVE,
) -> list[Evidence]:
    """Compute the evidence of each member in each region of `series`, pairs of indices, all at once. `every_us` are the
    intervals by member. `trusted` are the runs of failures of vantages that are not suspect; only those of vantages in
    `reporting_ids` count for current failures.
    """
    found = [_member_probes(probes, member, region_place, trusted, slo) for member, region_place in series]
    quantiles = _quantiles([one.requests for one in found], slo)
    sizes = effective_sizes([one.succeeded for one in found]).tolist()
    return [
        _evidence(one, of, size, every_us=every_us[one.member], reporting_ids=reporting_ids, rules=rules, slo=slo)
        for one, of, size in zip(found, quantiles, sizes, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemberProbes:
    """The probes of a member in one region by vantages that are not suspect: all of its own, those `sent`, and those of
    every member by the same vantages (`local`); its `runs` of failures by vantage, in all regions; whether each sent
    request succeeded, in the order of their rounds.
    """

    member: int
    runs: Mapping[int, int]
    local: ProbeTable
    own: ProbeTable
    sent: ProbeTable
    requests: Requests
    succeeded: Flags


def _member_probes(probes: ProbeTable, member: int, region_place: int, trusted: Failing, slo: Slo) -> _MemberProbes:
    runs = {vantage: run for (of, vantage), run in trusted.items() if of == member}
    local = probes.where((probes.region == region_place) & np.isin(probes.vantage_id, list(runs)))
    own = local.where(local.member == member)
    requests = _requests(own, slo)
    return _MemberProbes(
        member=member,
        runs=runs,
        local=local,
        own=own,
        sent=own.where(_IS_SENT[own.kind]),
        requests=requests,
        succeeded=(requests.ending == Ending.ANSWERED)[requests.ending != Ending.NONE],
    )


def _quantiles(requests: Sequence[Requests], slo: Slo) -> Iterator[dict[str, Quantile | None]]:
    """Yield the quantiles of each member's requests, by their names in `Evidence`."""
    shares = {0.5: None, _SHARE: None}
    ttft = quantiles_of([one.values(Metric.TTFT) for one in requests], shares, of_known=True)
    speeds = quantiles_of([one.speeds() for one in requests], {0.5: None})
    found = {"ttft_p50_us": ttft[0.5], "ttft_p95_us": ttft[_SHARE], "tokens_per_second_p50": speeds[0.5]}
    if slo.answer_tokens:
        answers = quantiles_of([one.values(Metric.E2E) for one in requests], shares)
        found |= {"answer_p50_us": answers[0.5], "answer_p95_us": answers[_SHARE]}
    return ({name: own[place] for name, own in found.items()} for place in range(len(requests)))


def _evidence(
    of: _MemberProbes,
    quantiles: Mapping[str, Quantile | None],
    size: float,
    *,
    every_us: int,
    reporting_ids: Collection[int],
    rules: Rules,
    slo: Slo,
) -> Evidence:
    """Return the evidence; `size` is the effective number of the sent requests."""
    runs = {vantage: run for vantage, run in of.runs.items() if vantage in reporting_ids}
    local_runs = [runs[vantage] for vantage in np.unique(of.own.vantage_id).tolist() if vantage in runs]
    ttft = of.requests.values(Metric.TTFT)
    values, limits = ttft.values[~ttft.censored], ttft.values[ttft.censored]
    in_time = of.requests.judged(limits_of(slo), min_speed=slo.min_tokens_per_second or 0.0)
    return Evidence(
        target=of.own.members[of.member],
        n=len(values),
        n_eff=median.n_eff if (median := quantiles["ttft_p50_us"]) else None,
        vantages=len(local_runs),
        failing_vantages=sum(run >= rules.failures_in_a_row for run in runs.values()),
        failing_here=sum(run >= rules.failures_in_a_row for run in local_runs),
        fails_here=bool(local_runs) and min(local_runs) >= 2 * rules.failures_in_a_row,
        coverage=_coverage(of.local, of.own, of.sent, every_us),
        rtt_p50_us=_median(of.own.rtt_us[~np.isnan(of.own.rtt_us)]),
        success=wilson(int(of.succeeded.sum()), len(of.succeeded), n_eff=size),
        outcomes=_outcomes(of.own),
        newest_at=int(of.sent.round_at.max()) if len(of.sent) else None,
        histogram=_bucket_counts(values),
        censored=_bucket_counts(limits),
        goodput=in_time.goodput if has_limits(slo) else None,
        goodput_n_eff=in_time.n_eff,
        throttled=_throttled(of.own, rules),
        **quantiles,
    )


def _throttled(own: ProbeTable, rules: Rules) -> float:
    """Return the share of the rounds of the short window that were throttled; 0 for a few of them."""
    recent = own.where(own.round_at > own.round_at.max(initial=0) - rules.short_us)
    throttled = int((recent.kind == Kind.THROTTLED).sum())
    asked = int((recent.kind != Kind.SKIPPED).sum())
    return throttled / asked if throttled >= rules.failures_in_a_row else 0.0


def _requests(own: ProbeTable, slo: Slo) -> Requests:
    """Return the planned requests of a member, in the order of their rounds. A throttled one reflects the capacity of
    the account: it lowers the member's share of the traffic, and is no answer that came too late.
    """
    rest = np.maximum((slo.answer_tokens or 0) - own.first_chunk_tokens, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        answer_us = own.answer_from_us + rest / own.tokens_per_second * SECOND_US
    unsorted = Requests(
        regions=own.regions,
        target_id=own.member,
        region=own.region,
        round_at=own.round_at,
        ending=_ENDING_OF[own.kind],
        ttft_us=np.where(own.censored, np.nan, own.ttft_us),
        e2e_us=np.where(own.kind == Kind.OK, answer_us, np.nan),
        ceiling_us=np.where(own.censored, own.ttft_us, np.nan),
        tokens_per_second=own.tokens_per_second,
    )
    return unsorted.take(np.argsort(own.round_at, kind="stable"))


def _outcomes(own: ProbeTable) -> dict[str, int]:
    return {kind.name.lower(): count for kind in Kind if (count := int((own.kind == kind).sum()))}


def _coverage(local: ProbeTable, own: ProbeTable, sent: ProbeTable, every_us: int) -> float | None:
    """Return the share of rounds with a sent probe, of those from the member's first in the window to the newest round
    that its vantage has of any target.
    """
    due = done = 0
    for vantage in np.unique(own.vantage_id).tolist():
        rounds_at = np.unique(own.round_at[own.vantage_id == vantage])
        last_at = int(local.round_at[local.vantage_id == vantage].max())
        due += _rounds_due(rounds_at, every_us) + (last_at - int(rounds_at[-1])) // every_us
        done += len(np.unique(sent.round_at[sent.vantage_id == vantage]))
    return min(done / due, 1.0) if due else None


def _rounds_due(rounds_at: Integers, every_us: int) -> int:
    """Count the rounds that were due from the first to the last of these. The interval may have changed in between, so
    a gap counts as its multiple of the usual gap around it, or of the current interval if that is longer.
    """
    gaps = np.diff(rounds_at)
    if not len(gaps):
        return 1
    around = np.lib.stride_tricks.sliding_window_view(np.pad(gaps, _AROUND // 2, mode="edge"), _AROUND)
    usual = np.maximum(np.median(around, axis=1), every_us)
    return 1 + int(np.maximum(np.rint(gaps / usual), 1).sum())


def _median(values: Reals) -> float | None:
    return float(np.median(values)) if len(values) else None


def _bucket_counts(values: Reals) -> dict[int, int]:
    buckets, counts = np.unique(buckets_of(values), return_counts=True)
    return dict(zip(buckets.tolist(), counts.tolist(), strict=True))


def comparisons_of(
    probes: ProbeTable,
    members: Sequence[int],
    *,
    slot_us: Sequence[int],
    at: int,
    rules: Rules,
    drift: Drift | None = None,
) -> list[Comparison]:
    """Compare every pair of `members`, given the probes of one region; `slot_us` are the intervals by member. Without
    `drift` nothing is known of it.
    """
    pairs = list(combinations(members, 2))
    if not pairs:
        return []
    rounds = cache(partial(_first_rounds, probes))
    slots = [max(slot_us[left], slot_us[right]) for left, right in pairs]
    shared = [_paired(rounds, *pair, us) for pair, us in zip(pairs, slots, strict=True)]
    joint = [_paired(rounds, *pair, 1) for pair in pairs]
    differences = [one.differences() for one in shared]
    shifts = _shifts(differences, at=at, rules=rules, history=drift and _histories(drift, pairs, rules))
    return [
        Comparison(
            left=probes.members[left],
            right=probes.members[right],
            n=len(one.slot_at),
            window=window,
            middle=middle,
            short=short,
            **both.slow(),
        )
        for (left, right), one, both, (window, middle, short) in zip(pairs, shared, joint, shifts, strict=True)
    ]


Series = tuple[Integers, Reals]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """The slots in which one vantage has a value of both members: their instants, ascending, each member's TTFTs, and
    which of these are limits.
    """

    slot_at: Integers
    left: Reals
    left_limits: Flags
    right: Reals
    right_limits: Flags

    def differences(self) -> Series:
        """Return the slots with a difference of known sign, and the median of the differences of all vantages there."""
        known = sign_is_known(self.left, self.left_limits, self.right, self.right_limits)
        return _medians(self.slot_at[known], (self.left - self.right)[known])

    def slow(self) -> dict[str, int]:
        """Count the slots, those in which either member exceeded its own p95, and those in which both did."""
        left, right = (of > np.quantile(of, _SHARE) if len(of) else of.astype(bool) for of in (self.left, self.right))
        slow_left, slow_right, slow_both = (int(np.count_nonzero(of)) for of in (left, right, left & right))
        return {"joint": len(left), "slow_left": slow_left, "slow_right": slow_right, "slow_both": slow_both}


def _histories(drift: Drift, pairs: Sequence[tuple[int, int]], rules: Rules) -> Inflation:
    """Return the drift of each pair over the whole window, then over the middle one, then over the short one."""
    return stacked([drift(pairs, span_us) for span_us in (rules.window_us, rules.middle_us, rules.short_us)])


def _shifts(
    series: Sequence[Series], *, at: int, rules: Rules, history: Inflation | None
) -> Iterator[tuple[Shift | None, Shift | None, Shift | None]]:
    """Yield the shift of each pair over the whole, the middle and the short window, given its differences.

    If the drift of the week is known, the intervals of the middle and the short window are of 99 %: a lasting or sudden
    difference is looked for all day, in levels that wander.
    """
    whole = [differences for _, differences in series]
    middle = [differences[instants >= at - rules.middle_us] for instants, differences in series]
    short = [differences[instants >= at - rules.short_us] for instants, differences in series]
    earlier = [differences[instants < at - rules.short_us] for instants, differences in series]
    own = stacked([inflation(ragged([*whole, *middle])), _inflation_before(short, earlier)])
    shifts = paired_shifts(ragged([*whole, *middle, *short]), known=own, history=history).listed()
    if history is not None:
        often = np.isfinite(history.ratio) & (np.arange(len(shifts)) >= len(whole))
        shifts = [one.widened(_MANY_LOOKS) if one and more else one for one, more in zip(shifts, often, strict=True)]
    size = len(series)
    return zip(shifts[:size], shifts[size : 2 * size], shifts[2 * size :], strict=True)


def _inflation_before(short: Sequence[Reals], earlier: Sequence[Reals]) -> Inflation:
    """Return the inflation of the few differences of the short window, by those before it: they do not show their own
    dependence, and a step among them would look like dependence.
    """
    found = independent(len(short))
    # As many half periods as make the shortest one about as long as the differences.
    lengths = [len(before) // max(len(own), 1) * 2 for own, before in zip(short, earlier, strict=True)]
    cosines = np.maximum(np.array(lengths, np.int64), _LEAST_COSINES)
    for number in np.unique(cosines).tolist():
        places = np.flatnonzero(cosines == number)
        own = inflation(ragged([earlier[place] for place in places.tolist()]), cosines=number)
        found.ratio[places], found.freedom[places] = own.ratio, own.freedom
    return found


def joint_rounds(probes: ProbeTable, members: Sequence[int]) -> JointRounds:
    """Return the rounds of `members`, given the probes of one region; of a burst the median counts."""
    vantages, place = np.unique(probes.vantage_id, return_inverse=True)
    cells = probes.round_at * max(len(vantages), 1) + place
    series = {probes.members[member]: _ranked_series(probes, cells, member) for member in members}
    found = np.unique(np.concatenate([np.empty(0, np.int64), *(own for own, _ in series.values())]))
    return JointRounds(
        round_at=tuple((found // max(len(vantages), 1)).tolist()),
        ttft={name: _column(found, *own) for name, own in series.items()},
    )


def _ranked_series(probes: ProbeTable, cells: Integers, member: int) -> Series:
    """Return the cells with a TTFT and the median there; a timeout counts at least as much as the largest value."""
    own = (probes.member == member) & ~np.isnan(probes.ttft_us)
    values, censored = probes.ttft_us[own], probes.censored[own]
    largest = values[~censored].max(initial=0.0)
    return _medians(cells[own], np.where(censored, np.maximum(values, largest), values))


def _column(cells: Integers, own: Integers, values: Reals) -> tuple[int | None, ...]:
    """Return the bucket of the value at each of `cells`, `None` at those that are not its own."""
    buckets = dict(zip(own.tolist(), buckets_of(values).tolist(), strict=True))
    return tuple(buckets.get(cell) for cell in cells.tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstRounds:
    """The slots of each vantage with a TTFT of one member, as cells that are distinct and ascend, and their instants:
    the median of the first round in each, and whether that is a limit: half of the round's probes or more were
    cut off.
    """

    cells: Integers
    slot_at: Integers
    ttft_us: Reals
    limits: Flags


_Rounds = Callable[[int, int], _FirstRounds]


def _paired(rounds: _Rounds, left: int, right: int, slot_us: int) -> _Pairs:
    """Return the slots in which one vantage has a value of both members."""
    mine, theirs = rounds(left, slot_us), rounds(right, slot_us)
    _, of_mine, of_theirs = np.intersect1d(mine.cells, theirs.cells, assume_unique=True, return_indices=True)
    return _Pairs(
        slot_at=mine.slot_at[of_mine],
        left=mine.ttft_us[of_mine],
        left_limits=mine.limits[of_mine],
        right=theirs.ttft_us[of_theirs],
        right_limits=theirs.limits[of_theirs],
    )


def _first_rounds(probes: ProbeTable, member: int, slot_us: int) -> _FirstRounds:
    vantages, place = np.unique(probes.vantage_id, return_inverse=True)
    own = (probes.member == member) & ~np.isnan(probes.ttft_us)
    slots = probes.round_at // slot_us
    cells = slots * max(len(vantages), 1) + place
    rounds_at, values, limits, within = (of[own] for of in (probes.round_at, probes.ttft_us, probes.censored, cells))
    order = np.argsort(rounds_at, kind="stable")
    _, first, inverse = np.unique(within[order], return_index=True, return_inverse=True)
    early = order[rounds_at[order] == rounds_at[order][first][inverse]]
    found, medians = _medians(within[early], values[early])
    return _FirstRounds(
        cells=found,
        slot_at=found // max(len(vantages), 1) * slot_us,
        ttft_us=medians,
        limits=_medians(within[early], limits[early].astype(np.float64))[1] > 0,
    )


def _medians(groups: Integers, values: Reals) -> Series:
    """Return the groups, ascending, and the median of each one's values."""
    order = np.lexsort((values, groups))
    found, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    ordered = values[order]
    return found, np.asarray((ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) / 2)
