"""Panel of probes: one value per target, region and round, sorted by these three.

The laws:

1. A region's value in a round is the median of its probes, of all its vantages.
2. Probes that timed out rank above all others, with their limit as the value. A round is censored if the upper middle
   of its probes is: its true median is then at least the value.
3. The network part of a round is the median of its probes for which it is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.probes import Flags, Integers, Probes, Reals, sign_is_known
from isochrone_collector.analysis.sorting import beginnings, order_by, order_within

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
