"""Distributions of the values of series, in bins that are equally wide on a logarithmic scale.

The laws:

1. All series of an answer have the same edges. They are edges of the buckets of `histogram`, so values from samples and
   from summaries are counted in the same bins.
2. Every value is counted once, except those that were cut off by a timeout: only a limit of them is known.
"""

from collections.abc import Mapping

import numpy as np

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.probes import Probes
from isochrone_collector.analysis.sorting import beginnings, order_by
from isochrone_wire.queries.series import SeriesBin

FEWEST_BINS = 2
MAX_BINS = 200
"""Bounds of the number of bins of a distribution."""

PackedValues = dict[tuple[int, str], bytes]
"""Values by target id and region, as blobs of `histogram`, which may be concatenated."""


def packed_values(probes: Probes) -> PackedValues:
    """Return the values of each target and region that has any."""
    kept = ~np.isnan(probes.value) & ~probes.censored
    target_id, region, value = probes.target_id[kept], probes.region[kept], probes.value[kept]
    target_ids, target = np.unique(target_id, return_inverse=True)
    group = target * len(probes.regions) + region
    alike = np.zeros(len(group), np.int64)
    order = order_by(group, alike)
    starts = beginnings(group[order], alike)
    owners = (divmod(int(owner), len(probes.regions)) for owner in group[order][starts])
    portions = np.split(value[order], starts[1:])
    return {
        (int(target_ids[place]), probes.regions[region_place]): histogram.pack(portion)
        for (place, region_place), portion in zip(owners, portions, strict=False)
    }


def bins_of(found: Mapping[tuple[int, str], bytes], *, most: int) -> dict[tuple[int, str], tuple[SeriesBin, ...]]:
    """Return the bins of each target and region, lowest first; together they are at most `most` different ones, and one
    of values of zero or less. Bins without a value are left out.
    """
    merged = histogram.merge(found.values(), [b""] * len(found), range(len(found)), of=len(found))
    low, high, counts = merged.coarsened(most)
    edges = list(zip(low.tolist(), high.tolist(), strict=True))
    return {
        key: tuple(SeriesBin(low=low, high=high, n=n) for (low, high), n in zip(edges, row, strict=True) if n)
        for key, row in zip(found, counts.tolist(), strict=True)
    }
