"""Panel of probes: one value per target, region and round, sorted by these three.

The laws:

1. A region's value in a round is the median of its probes, of all its vantages.
2. Probes that timed out rank above all others, with their limit as the value. A round is censored if the upper middle
   of its probes is: its true median is then at least the value.
3. The network part of a round is the median of its probes that have one.

The laws of pairing, for each target and region, the rounds that it shares with the baseline:

1. Only rounds in which both regions have a value count, and the medians shown are those of these rounds: values from
   different hours are not compared.
2. A round in which both sides timed out has no known difference and is left out. If only one side timed out and its
   limit exceeds the other's value, the limit is used: the true difference is larger, with the same sign. If the limit
   does not exceed it (connecting is given up after seconds, answers may take minutes), even the sign is open, and the
   round is left out too.
3. A change point of either side cuts off the rounds before it: values before and after a change are not mixed.

A vantage with a wrong clock probes at another time than its partners. Its durations, of a monotonic clock, are right:
the differences only scatter more. So a wrong clock is reported (`isochrone vantages`) and excludes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.probes import Probes, sign_is_known
from isochrone_collector.analysis.stats.arrays import (
    Flags,
    Integers,
    Ragged,
    Reals,
    beginnings,
    grouped,
    order_by,
    order_within,
)
from isochrone_wire.durations import HOUR_US

# Above any probe's limit in microseconds, even after adding one.
_CENSORED = 1e13
_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One row per target, region and round that has a value, sorted, as columns. `group` is the index of the target in
    `target_ids` times the number of `regions`, plus the index of the region.
    """

    target_ids: Integers
    regions: tuple[str, ...]
    group: Integers
    round_at: Integers
    value: Reals
    censored: Flags
    network: Reals

    def groups(self, key: Sequence[tuple[int, str]]) -> Integers:
        """Return the group of each target and region; -1 if either has no probes."""
        target = {target_id: place for place, target_id in enumerate(self.target_ids.tolist())}
        region = {name: place for place, name in enumerate(self.regions)}
        return np.array(
            [
                target[target_id] * len(region) + region[name] if target_id in target and name in region else -1
                for target_id, name in key
            ],
            dtype=np.int64,
        )

    def counts(self, key: Sequence[tuple[int, str]]) -> Integers:
        """Return the number of rounds of each target and region."""
        groups = self.groups(key)
        return np.searchsorted(self.group, groups, side="right") - np.searchsorted(self.group, groups)

    def targets_with_values(self) -> set[int]:
        """Return the ids of the targets that have a value."""
        first = np.diff(self.group, prepend=-1) > 0
        return set(self.target_ids[self.group[first] // max(1, len(self.regions))].tolist())

    def is_from(self, region: str) -> Flags:
        """Return which rows are of a region."""
        place = self.regions.index(region) if region in self.regions else -1
        return np.asarray(self.group % max(1, len(self.regions)) == place)

    def sign_is_known(self, ours: Integers, theirs: Integers) -> Flags:
        """Return, for each two rows, whether the sign of their difference is known (see `probes.sign_is_known`)."""
        return sign_is_known(self.value[ours], self.censored[ours], self.value[theirs], self.censored[theirs])

    def round_keys(self) -> Integers:
        """Return one number per target and round, equal in all regions and ascending within a region."""
        place = self.round_at - self.round_at.min(initial=_LATEST)
        span = int(place.max(initial=0)) + 1
        return np.asarray(self.group // max(1, len(self.regions)) * span + place)


def build_panel(probes: Probes) -> Panel:
    """Build the panel of probes; probes without a value are left out."""
    target_ids, target = np.unique(probes.target_id, return_inverse=True)
    known = ~np.isnan(probes.value)
    group = (target * len(probes.regions) + probes.region)[known]
    at, value = probes.round_at[known], probes.value[known]
    censored, network = probes.censored[known], probes.network[known]
    order = order_by(group, at)
    starts = beginnings(group[order], at[order])
    lengths = np.diff(starts, append=len(order))
    if len(starts) < len(order):
        order = order[order_within(np.where(censored, value + _CENSORED, value)[order], lengths)]
    group, at, upper = group[order], at[order], starts + lengths // 2
    middle = (value[order[starts + (lengths - 1) // 2]] + value[order[upper]]) / 2
    return Panel(
        target_ids=target_ids,
        regions=probes.regions,
        group=group[starts],
        round_at=at[starts],
        value=middle,
        censored=censored[order[upper]],
        network=_network(network[order], starts, lengths),
    )


def _network(network: Reals, starts: Integers, lengths: Integers) -> Reals:
    """Return the median of the known parts of each run; NaN for a run without any."""
    if (lengths == 1).all():
        return network
    ordered = network[order_within(network, lengths)]
    known = np.add.reduceat(~np.isnan(network), starts, dtype=np.int64)
    low, high = starts + np.maximum(known - 1, 0) // 2, starts + np.minimum(known // 2, lengths - 1)
    return np.where(known > 0, (ordered[low] + ordered[high]) / 2, np.nan)


TargetRegion = tuple[int, str]
"""A target's id and a region."""

Changes = Mapping[TargetRegion, int]
"""The instant of the newest lasting change, in microseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """For each pair, the place in the panel where the rounds of one side begin and end."""

    starts: Integers
    ends: Integers

    @property
    def counts(self) -> Integers:
        """The number of rounds of the side, shared or not."""
        return self.ends - self.starts

    def places(self) -> tuple[Integers, Integers]:
        """Return the pair and the place in the panel of every round of every span."""
        counts = self.counts
        pair = np.repeat(np.arange(len(counts)), counts)
        first = np.repeat(self.starts - (np.cumsum(counts) - counts), counts)
        return pair, first + np.arange(len(pair))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Rounds that both sides share, by pair and ascending: the `pair` of each, and its places in the panel.

    The spans cover all rounds of either side from `since_at` on, which is 0 without a change. `n_shared` counts the
    shared rounds of each pair, left-out ones included; `undetermined` those left out because a timeout of one side
    leaves the sign open; `baseline_lost` and `region_lost` the shared rounds that ended in a timeout.
    """

    panel: Panel
    since_at: Integers
    pair: Integers
    baseline: Integers
    region: Integers
    baseline_span: Spans
    region_span: Spans
    n_shared: Integers
    undetermined: Integers
    baseline_lost: Integers
    region_lost: Integers

    def __len__(self) -> int:
        return len(self.since_at)

    def rows(self, values: Reals, kept: Flags | None = None) -> Ragged:
        """Group one value per shared round (or per `kept` one) into a row per pair."""
        return grouped(values, self.pair if kept is None else self.pair[kept], rows=len(self))

    def hours(self) -> Reals:
        """Return the hours that the shared rounds of each pair span, with one gap more than there are between them."""
        first, last = (np.full(len(self), bound, dtype=np.int64) for bound in (np.iinfo(np.int64).max, 0))
        instants = self.panel.round_at[self.region]
        np.minimum.at(first, self.pair, instants)
        np.maximum.at(last, self.pair, instants)
        n = np.bincount(self.pair, minlength=len(self))
        return np.where(n > 1, (last - first) / HOUR_US * n / np.maximum(n - 1, 1), 0.0)

    def sides(self, place: int) -> tuple[slice, slice]:
        """Return the slices of the panel that hold all rounds of one pair's baseline and region, shared or not."""
        base, other = (
            slice(int(span.starts[place]), int(span.ends[place])) for span in (self.baseline_span, self.region_span)
        )
        return base, other


def pair_up(panel: Panel, wanted: Sequence[TargetRegion], *, baseline: str, changes: Changes) -> Pairs:
    """Pair the rounds of each wanted target and region with those of the baseline."""
    since_at = np.array([since(changes, key, baseline) for key in wanted], dtype=np.int64)
    baseline_span = _spans(panel, [(target_id, baseline) for target_id, _ in wanted], since_at)
    region_span = _spans(panel, wanted, since_at)
    pair, region = region_span.places()
    partner, matched = _partners(panel, region, baseline)
    pair, region, partner = pair[matched], region[matched], partner[matched]
    kept = panel.sign_is_known(partner, region)
    baseline_lost, region_lost = panel.censored[partner], panel.censored[region]

    def count(flags: Flags) -> Integers:
        return np.bincount(pair[flags], minlength=len(wanted))

    return Pairs(
        panel=panel,
        since_at=since_at,
        pair=pair[kept],
        baseline=partner[kept],
        region=region[kept],
        baseline_span=baseline_span,
        region_span=region_span,
        n_shared=np.bincount(pair, minlength=len(wanted)),
        undetermined=count(~kept & ~(baseline_lost & region_lost)),
        baseline_lost=count(baseline_lost),
        region_lost=count(region_lost),
    )


def since(changes: Changes, key: TargetRegion, baseline: str) -> int:
    """Return the newest change of either side; 0 without one."""
    return max(changes.get(key, 0), changes.get((key[0], baseline), 0))


def _spans(panel: Panel, sides: Sequence[TargetRegion], since_at: Integers) -> Spans:
    groups = panel.groups(sides)
    starts, ends = (np.searchsorted(panel.group, groups, side=side) for side in ("left", "right"))
    for place in np.flatnonzero(since_at):
        own = panel.round_at[starts[place] : ends[place]]
        starts[place] += np.searchsorted(own, since_at[place])
    return Spans(starts=starts, ends=ends)


def _partners(panel: Panel, region: Integers, baseline: str) -> tuple[Integers, Flags]:
    """Return, for each place in the panel, the baseline's place in the same round, and whether there is one."""
    from_baseline = np.flatnonzero(panel.is_from(baseline))
    if not len(from_baseline):
        return np.zeros(len(region), dtype=np.int64), np.zeros(len(region), dtype=bool)
    round_keys = panel.round_keys()
    baseline_keys = round_keys[from_baseline]
    found = np.minimum(np.searchsorted(baseline_keys, round_keys[region]), len(from_baseline) - 1)
    return from_baseline[found], baseline_keys[found] == round_keys[region]
