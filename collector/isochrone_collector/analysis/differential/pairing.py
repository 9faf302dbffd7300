"""Pairing of rounds: for each target and region, the rounds it shares with the baseline.

The laws:

1. Only rounds in which both regions have a value count, and the medians shown are those of these rounds: values from
   different hours are not compared.
2. A round in which both sides timed out has no known difference and is left out. If only one side timed out and its
   limit exceeds the other's value, the limit is used: the true difference is larger, with the same sign. If the limit
   does not exceed it (connecting is given up after seconds, answers may take minutes), even the sign is open, and the
   round is left out too.
3. A change point of either side cuts off the rounds before it: values before and after a change are not mixed.

A round is the same instant of the wall clock everywhere, so a vantage with a wrong clock probes at another time than
its partners. Its durations are still right, as they come from a monotonic clock; the differences only scatter more and
the interval gets wider. So a wrong clock is reported (`isochrone regions`) and excludes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.differential.panel import Panel
from isochrone_collector.analysis.probes import Flags, Integers, Reals
from isochrone_collector.analysis.stats.ragged import Ragged, grouped
from isochrone_wire.model import SECOND_US

_HOUR_US = 3600 * SECOND_US

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
        return np.where(n > 1, (last - first) / _HOUR_US * n / np.maximum(n - 1, 1), 0.0)

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
