"""Evidence of a table, computed from probes.

A vantage is suspect if at least two thirds of its targets, of at least two providers, had only failures in their last
probes: then the vantage itself probably fails, and its probes are left out. It is not suspect while the plan's control
target answers it. A target that most vantages of other regions see fail too is no evidence against a vantage that any
target answers: then the providers fail, and the vantages know which one answers. The probes of a suspect vantage stay
left out after it stops reporting; but only reporting vantages are counted, so that a vantage's last probes do not count
for the whole window.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import sqrt
from typing import Any

import numpy as np

from isochrone_collector.analysis.distribution import Values, quantiles_of
from isochrone_collector.analysis.goodput import Ending, Requests, effective_sizes
from isochrone_collector.analysis.histogram import buckets_of
from isochrone_collector.analysis.probe_records import (
    COMPARABLE,
    FIRST_TOKEN,
    VALID,
    Records,
    by_outcome,
    has,
    outcomes,
)
from isochrone_collector.analysis.probes import Kind, Kinds
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.routing.inputs import Evidence, Rules, has_limits, limits_of
from isochrone_collector.routing.long_run import Week, shares_of
from isochrone_common.probe_metrics import CUT_OFF, STREAMED
from isochrone_wire.answers import Metric, Quantile
from isochrone_wire.durations import SECOND_US
from isochrone_wire.model import Outcome, Slo

_SHARE = 0.95
_SHARES = (0.5, _SHARE)
# The greatest probability with which the last probes failed by chance.
_CHANCE = 1e-3
# The 95th percentile of the normal distribution.
_ONE_SIDED = 1.645
# The number of gaps whose median is the usual one: two that are long for another reason do not change it.
_AROUND = 5
# By `Kind`.
_IS_SENT = np.array([True, True, False, False])
_ENDING_OF = np.array([Ending.ANSWERED, Ending.FAILED, Ending.NONE, Ending.NONE], np.int8)
_NAMES = tuple(kind.name.lower() for kind in Kind)
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
    """Map (member, vantage) to the number of newest probes that failed in a row, throttled and skipped ones ignored."""
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
    """Return the suspect vantages, given the region of each; `control` is the index of the plan's control target."""
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
    """Return a vantage's runs, without targets that fail for most other regions if any target answers it."""
    if all(_is_failing(run, rules) for run in own.values()):
        return own
    elsewhere: dict[int, list[bool]] = {}
    for (member, vantage), run in runs.items():
        if member in own and region_of[vantage] != region:
            elsewhere.setdefault(member, []).append(_is_failing(run, rules))
    shared = {member for member, failing in elsewhere.items() if 2 * sum(failing) > len(failing)}
    return {member: run for member, run in own.items() if member not in shared or not _is_failing(run, rules)}


def evidence_of(
    probes: ProbeTable,
    series: Sequence[tuple[int, int]],
    *,
    every_us: Sequence[int],
    trusted: Failing,
    reporting_ids: Collection[int],
    rules: Rules,
    slo: Slo = NO_OBJECTIVE,
    week: Week,
) -> list[Evidence]:
    """Compute the evidence of each member in each region of `series`, pairs of indices, all at once. `every_us` are the
    intervals by member. `trusted` are the runs of failures of vantages that are not suspect; only those of vantages in
    `reporting_ids` count for current failures.
    """
    found = [
        _member_probes(probes, member, region_place, every_us=every_us[member], trusted=trusted, slo=slo)
        for member, region_place in series
    ]
    quantiles = _quantiles(found, slo, week)
    sizes = effective_sizes([one.succeeded for one in found]).tolist()
    long_run = shares_of([one.requests for one in found], slo, week)
    return [
        replace(_evidence(one, of, size, reporting_ids=reporting_ids, rules=rules, slo=slo), long_run=beyond)
        for one, of, size, beyond in zip(found, quantiles, sizes, long_run, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemberProbes:
    """The probes and requests of a member in one region, by round, and the `runs` of failures by vantage."""

    member: int
    runs: Mapping[int, int]
    own: ProbeTable
    newest_at: int | None
    coverage: float | None
    requests: Requests
    ttft: Values
    succeeded: Flags


def _member_probes(
    probes: ProbeTable, member: int, region_place: int, *, every_us: int, trusted: Failing, slo: Slo
) -> _MemberProbes:
    runs = {vantage: run for (of, vantage), run in trusted.items() if of == member}
    local = probes.where((probes.region == region_place) & np.isin(probes.vantage_id, list(runs)))
    own = local.where(local.member == member)
    sent = own.where(_IS_SENT[own.kind])
    requests = _requests(own, slo)
    return _MemberProbes(
        member=member,
        runs=runs,
        own=own,
        newest_at=int(sent.round_at.max()) if len(sent) else None,
        coverage=_coverage(local, own, sent, every_us),
        requests=requests,
        ttft=requests.values(Metric.TTFT),
        succeeded=(requests.ending == Ending.ANSWERED)[requests.ending != Ending.NONE],
    )


def _quantiles(members: Sequence[_MemberProbes], slo: Slo, week: Week) -> Iterator[dict[str, Quantile | None]]:
    """Yield the quantiles of each member's requests, by their names in `Evidence`."""
    ttft = quantiles_of([one.ttft for one in members], week.of_quantiles(Metric.TTFT, _SHARES), of_known=True)
    speeds = quantiles_of([one.requests.speeds() for one in members], {0.5: None})
    found = {"ttft_p50_us": ttft[0.5], "ttft_p95_us": ttft[_SHARE], "tokens_per_second_p50": speeds[0.5]}
    if slo.answer_tokens:
        values = [one.requests.values(Metric.E2E) for one in members]
        answers = quantiles_of(values, week.of_quantiles(Metric.E2E, _SHARES))
        found |= {"answer_p50_us": answers[0.5], "answer_p95_us": answers[_SHARE]}
    return ({name: own[place] for name, own in found.items()} for place in range(len(members)))


def _evidence(
    of: _MemberProbes,
    quantiles: Mapping[str, Any],
    size: float,
    *,
    reporting_ids: Collection[int],
    rules: Rules,
    slo: Slo,
) -> Evidence:
    """Return the evidence; `size` is the effective number of the sent requests."""
    runs = {vantage: run for vantage, run in of.runs.items() if vantage in reporting_ids}
    local_runs = [runs[vantage] for vantage in np.unique(of.own.vantage_id).tolist() if vantage in runs]
    values, limits = of.ttft.values[~of.ttft.censored], of.ttft.values[of.ttft.censored]
    rtt_us = of.own.rtt_us[~np.isnan(of.own.rtt_us)]
    answered = of.own.round_at[of.own.kind == Kind.OK]
    just_failed = bool(local_runs) and min(local_runs) > 0 and _is_no_chance(of.succeeded, sum(local_runs))
    throttled, throttled_high = _throttled(of.own, rules)
    in_time = of.requests.judged(limits_of(slo), min_speed=slo.min_tokens_per_second or 0.0)
    return Evidence(
        target=of.own.members[of.member],
        n=len(values),
        n_eff=median.n_eff if (median := quantiles["ttft_p50_us"]) else None,
        vantages=len(local_runs),
        failing_vantages=sum(run >= rules.failures_in_a_row for run in runs.values()),
        failing_here=sum(run >= rules.failures_in_a_row for run in local_runs),
        fails_here=bool(local_runs) and min(local_runs) >= 2 * rules.failures_in_a_row,
        failed_at=of.newest_at if just_failed else None,
        answered_at=int(answered.max()) if len(answered) else None,
        coverage=of.coverage,
        rtt_p50_us=float(np.median(rtt_us)) if len(rtt_us) else None,
        success=wilson(int(of.succeeded.sum()), len(of.succeeded), n_eff=size),
        outcomes={_NAMES[kind]: count for kind, count in enumerate(np.bincount(of.own.kind).tolist()) if count},
        newest_at=of.newest_at,
        histogram=_bucket_counts(values),
        censored=_bucket_counts(limits),
        goodput=in_time.goodput if has_limits(slo) else None,
        goodput_n_eff=in_time.n_eff,
        throttled=throttled,
        throttled_high=throttled_high,
        **quantiles,
    )


def _is_no_chance(succeeded: Flags, run: int) -> bool:
    """Return whether so many failures in a row are more than chance. Earlier failures in a row count as one: an outage
    says nothing about how often single requests fail.
    """
    before = succeeded[: max(len(succeeded) - run, 0)]
    begun = int((before[:-1] & ~before[1:]).sum()) + int(len(before) and not before[0])
    return bool(((begun + 0.5) / (len(before) + 1)) ** run <= _CHANCE)


def _throttled(own: ProbeTable, rules: Rules) -> tuple[float, float]:
    """Return the share of the rounds of the short window that were throttled, and its upper bound, one-sided at 95 %; 0
    for a few of them.
    """
    recent = own.where(own.round_at > own.round_at.max(initial=0) - rules.short_us)
    throttled = int((recent.kind == Kind.THROTTLED).sum())
    asked = int((recent.kind != Kind.SKIPPED).sum())
    if throttled < rules.failures_in_a_row:
        return 0.0, 0.0
    share = throttled / asked
    return share, min(share + _ONE_SIDED * sqrt(share * (1 - share) / asked), 1.0)


def _requests(own: ProbeTable, slo: Slo) -> Requests:
    """Return a member's planned requests by round. A throttled one is not late: it lowers the share of the traffic."""
    rest = np.maximum((slo.answer_tokens or 0) - own.first_chunk_tokens, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        answer_us = own.answer_from_us + rest / own.tokens_per_second * SECOND_US
    unsorted = Requests(
        regions=own.regions,
        target_id=own.member,
        region=own.region,
        round_at=own.round_at,
        ending=_ENDING_OF[own.kind],
        ttft_us=np.where(own.censored, np.nan, own.ttft_us),
        e2e_us=np.where((own.kind == Kind.OK) & np.isfinite(answer_us), answer_us, np.nan),
        ceiling_us=np.where(own.censored, own.ttft_us, np.nan),
        tokens_per_second=own.tokens_per_second,
    )
    return unsorted.take(np.argsort(own.round_at, kind="stable"))


def _coverage(local: ProbeTable, own: ProbeTable, sent: ProbeTable, every_us: int) -> float | None:
    """Return the share of rounds with a sent probe, from the member's first to its vantage's newest of any target."""
    due = done = 0
    for vantage in np.unique(own.vantage_id).tolist():
        rounds_at = np.unique(own.round_at[own.vantage_id == vantage])
        last_at = int(local.round_at[local.vantage_id == vantage].max())
        due += _rounds_due(rounds_at, every_us) + (last_at - int(rounds_at[-1])) // every_us
        done += len(np.unique(sent.round_at[sent.vantage_id == vantage]))
    return min(done / due, 1.0) if due else None


def _rounds_due(rounds_at: Integers, every_us: int) -> int:
    """Count the rounds due between these: a gap counts by the usual gap around it, as intervals change."""
    gaps = np.diff(rounds_at)
    if (gaps < 1.5 * every_us).all():
        return 1 + len(gaps)
    around = np.lib.stride_tricks.sliding_window_view(np.pad(gaps, _AROUND // 2, mode="edge"), _AROUND)
    usual = np.maximum(np.median(around, axis=1), every_us)
    return 1 + int(np.maximum(np.rint(gaps / usual), 1).sum())


def _bucket_counts(values: Reals) -> dict[int, int]:
    buckets, counts = np.unique(buckets_of(values), return_counts=True)
    return dict(zip(buckets.tolist(), counts.tolist(), strict=True))


_INTEGERS = ("target_id", "round_at", "vantage_id", "region", "kind", "censored", "comparable")
_REALS = ("ttft_us", "rtt_us", "tokens_per_second", "answer_from_us", "first_chunk_tokens")
_COPIED = ("target_id", "round_at", "vantage_id", "rtt_us", "answer_from_us", "first_chunk_tokens")

_KINDS = {Outcome.OK: Kind.OK, Outcome.THROTTLED: Kind.THROTTLED, Outcome.SKIPPED_THROTTLED: Kind.THROTTLED}
_KIND_OF = by_outcome(lambda outcome: _KINDS.get(outcome, Kind.FAILED if outcome.failed else Kind.SKIPPED))
_IS_STREAMED = by_outcome(STREAMED.__contains__)
_IS_CUT_OFF = by_outcome(CUT_OFF.__contains__)
_IS_CONNECTED = by_outcome(lambda outcome: outcome is not Outcome.CONNECT_FAILED)


class ProbeCache:
    """Probes as columns. `regions` are the names that the column `region` indexes."""

    def __init__(self) -> None:
        self.regions: list[str] = []
        self._columns: dict[str, Any] = {
            **{name: np.empty(0, np.int64) for name in _INTEGERS},
            **{name: np.empty(0) for name in _REALS},
        }

    def __len__(self) -> int:
        return len(self._columns["round_at"])

    def place_of(self, region: str) -> int:
        """Return the index of a region, adding it if it is new."""
        if region not in self.regions:
            self.regions.append(region)
        return self.regions.index(region)

    def add(self, records: Records, region_of: Mapping[int, str]) -> set[tuple[int, str]]:
        """Add new probes, with the region of each vantage; return their (target id, region) pairs."""
        vantage_ids, rows = np.unique(records["vantage_id"], return_inverse=True)
        places = np.array([self.place_of(region_of[one]) for one in vantage_ids.tolist()], np.int64)
        new = {**_columns(records), "region": places[rows]}
        self._columns = {name: np.concatenate([kept, new[name]]) for name, kept in self._columns.items()}
        pairs = set(zip(new["target_id"].tolist(), new["region"].tolist(), strict=True))
        return {(target_id, self.regions[place]) for target_id, place in pairs}

    def forget(self, *, before_at: int) -> None:
        """Remove the rounds before an instant."""
        recent = self._columns["round_at"] >= before_at
        if not recent.all():
            self._columns = {name: column[recent] for name, column in self._columns.items()}

    def clear(self) -> None:
        """Remove everything."""
        self.forget(before_at=np.iinfo(np.int64).max)

    def table(self, targets: Mapping[int, str], *, from_at: int) -> ProbeTable:
        """Return the probes of some targets (id → name) from an instant on."""
        ids = np.array(sorted(targets), np.int64)
        of = self._columns
        wanted = np.isin(of["target_id"], ids) & (of["round_at"] >= from_at)
        chosen = {name: column[wanted] for name, column in of.items()}
        return ProbeTable(
            members=tuple(targets[target_id] for target_id in ids.tolist()),
            regions=tuple(self.regions),
            member=np.searchsorted(ids, chosen["target_id"]),
            region=chosen["region"],
            vantage_id=chosen["vantage_id"],
            round_at=chosen["round_at"],
            kind=chosen["kind"].astype(np.int8),
            censored=chosen["censored"].astype(bool),
            comparable=chosen["comparable"].astype(bool),
            **{name: chosen[name] for name in _REALS},
        )


def _columns(records: Records) -> dict[str, Any]:
    """Return the columns of new probes, except `region`."""
    traits = records["traits"]
    outcome, began, is_valid = outcomes(traits), has(traits, FIRST_TOKEN), has(traits, VALID)
    has_value = _IS_STREAMED[outcome] & is_valid & began
    is_limit = _IS_CUT_OFF[outcome] & ~began & ~np.isnan(records["ttft_us"])
    return {
        "kind": _KIND_OF[outcome],
        "censored": is_limit,
        "comparable": has(traits, COMPARABLE) & _IS_CONNECTED[outcome],
        "ttft_us": np.where(has_value | is_limit, records["ttft_us"], np.nan),
        "tokens_per_second": np.where(is_valid & (_KIND_OF[outcome] == Kind.OK), records["tokens_per_second"], np.nan),
        **{name: records[name] for name in _COPIED},
    }
