"""Grouping of the probes of several targets into shared rounds. Pure.

Targets of one route have the same rounds (`isochrone_wire.rounds`): these are *joint* rounds, in which a stall that the
targets share meets all of them. Other targets share slots only. A slot is as long as the longest interval, so that it
holds a round of every target; of several rounds of a target the first counts. So the targets of a slot were probed
within one interval of each other, though not at the same instant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.probes import Flags, Integers, Reals
from isochrone_collector.analysis.simulation.replay import RecordedRounds
from isochrone_wire.model import SECOND_US

_TOGETHER_US = SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class SentProbes:
    """One row per probe that was sent, unordered. `ttft_us` is NaN without a first token, `limit_us` is 0 if no limit
    was hit, `cost_usd` is NaN if unknown.
    """

    target_id: Integers
    vantage_id: Integers
    round_at: Integers
    dispatched_at: Integers
    throttled: Flags
    ttft_us: Reals
    limit_us: Reals
    cost_usd: Reals

    def __len__(self) -> int:
        return len(self.target_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRounds:
    """The rounds of one vantage in which every member was probed, and the number left out because a member was missing
    or throttled. `absent` are the members that it never probed.
    """

    recorded: RecordedRounds
    left_out: int
    absent: tuple[int, ...] = ()


def find_shared_rounds(
    sent: SentProbes, members: Sequence[int], region_of: Mapping[int, str], *, slot_us: int | None = None
) -> list[SharedRounds]:
    """Return, for each vantage, the slots of `slot_us` microseconds that all members (by id) share; without `slot_us`
    the joint rounds, in which their requests began within a second.
    """
    order = np.lexsort((sent.dispatched_at, sent.round_at))
    return [
        _of_vantage(sent, order[sent.vantage_id[order] == vantage_id], members, region_of[int(vantage_id)], slot_us)
        for vantage_id in np.unique(sent.vantage_id)
    ]


def _of_vantage(
    sent: SentProbes, rows: Integers, members: Sequence[int], region: str, slot_us: int | None
) -> SharedRounds:
    slots, place = np.unique(sent.round_at[rows] // (slot_us or 1), return_inverse=True)
    # The row in `sent` per slot and member, or -1; writing backwards keeps the first.
    first = np.full((len(slots), len(members)), -1, np.int64)
    for column, member in enumerate(members):
        of_member = sent.target_id[rows] == member
        first[place[of_member][::-1], column] = rows[of_member][::-1]
    whole = (first >= 0).all(axis=1) & ~(sent.throttled[first] & (first >= 0)).any(axis=1)
    if slot_us is None:
        whole &= np.ptp(sent.dispatched_at[first], axis=1) <= _TOGETHER_US
    chosen = first[whole]
    recorded = RecordedRounds(
        region=region,
        ttft_us=sent.ttft_us[chosen],
        limit_us=sent.limit_us[chosen],
        cost_usd=sent.cost_usd[chosen],
    )
    absent = tuple(int(column) for column in np.flatnonzero((first < 0).all(axis=0)))
    return SharedRounds(recorded=recorded, left_out=int(len(slots) - whole.sum()), absent=absent)
