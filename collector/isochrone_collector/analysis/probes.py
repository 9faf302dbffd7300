"""Probes as columns, the input of queries over many samples. Pure."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals

Kinds = NDArray[np.int8]


class Kind(IntEnum):
    """The result that a probe counts as: success, failure, or neither (throttled, never sent)."""

    OK = 0
    FAILED = 1
    THROTTLED = 2
    SKIPPED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """One row per probe, unordered. `region` is an index into `regions`.

    `value` is of one metric (microseconds, or tokens per second), NaN if the probe has none; where `censored`, it is
    the limit that the probe hit. `network` is the network's part of the value, in microseconds: the RTT, and for a cold
    latency the connection too; NaN if unknown. Probes that succeeded and cannot be compared are `left_out`.
    """

    regions: tuple[str, ...]
    target_id: Integers
    region: Integers
    vantage_id: Integers
    round_at: Integers
    kind: Kinds
    value: Reals
    censored: Flags
    network: Reals
    left_out: Flags | None = None

    def __len__(self) -> int:
        return len(self.target_id)


def sign_is_known(ours: Reals, our_limit: Flags, theirs: Reals, their_limit: Flags) -> Flags:
    """Return whether the signs of differences are known: neither is a limit, or one is and exceeds the other value."""
    excess = ours - theirs
    return np.where(our_limit, ~their_limit & (excess > 0), ~their_limit | (excess < 0))
