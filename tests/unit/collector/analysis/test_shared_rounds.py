"""Shared rounds of targets with one phase, and with different ones."""

from dataclasses import replace
from typing import Any

import numpy as np

from isochrone_collector.analysis.simulation import SentProbes, SharedRounds, find_shared_rounds
from isochrone_wire.model import SECOND_US

A, B = 11, 12
SLOT_US = 10 * SECOND_US
Probe = tuple[int, float, float | None]
"""Target, seconds since the start, and TTFT in microseconds; without one, it was throttled."""


def sent(*probes: Probe, vantage_id: int = 1) -> SentProbes:
    """Probes of one vantage."""
    at = np.array([int(seconds * SECOND_US) for _, seconds, _ in probes], np.int64)
    nothing: Any = np.zeros(len(probes))
    return SentProbes(
        target_id=np.array([target for target, _, _ in probes], np.int64),
        vantage_id=np.full(len(probes), vantage_id, np.int64),
        round_at=at,
        dispatched_at=at,
        throttled=np.array([ttft is None for _, _, ttft in probes]),
        ttft_us=np.array([float("nan") if ttft is None else ttft for _, _, ttft in probes]),
        limit_us=nothing,
        cost_usd=nothing,
    )


def of(*probes: Probe) -> SharedRounds:
    [only] = find_shared_rounds(sent(*probes), (A, B), {1: "us"}, slot_us=SLOT_US)
    return only


def test_joint_rounds_begin_together() -> None:
    """Without a slot only rounds count in which both were planned at the same instant and began within a second: not
    one in which a request waited for a free slot.
    """
    probes = sent((A, 1.0, 1.0), (B, 1.0, 2.0), (A, 11.0, 3.0), (B, 11.1, 4.0), (A, 21.0, 5.0), (B, 21.0, 6.0))
    waited = replace(probes, dispatched_at=probes.dispatched_at + np.array([0, 900_000, 0, 0, 0, 1_100_000]))
    [only] = find_shared_rounds(waited, (A, B), {1: "us"})
    assert (only.recorded.ttft_us.tolist(), only.left_out) == ([[1.0, 2.0]], 3)


def test_rounds_of_different_phase_share_a_slot() -> None:
    """Two targets probed at different instants of the same ten seconds make one round; in order of time."""
    found = of((B, 17.0, 4.0), (A, 11.5, 3.0), (A, 1.5, 1.0), (B, 7.0, 2.0))
    assert found.recorded.ttft_us.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert (found.left_out, found.recorded.region) == (0, "us")


def test_who_is_asked_more_often_brings_the_first() -> None:
    """Of a member's several rounds in a slot the first one counts, and of a burst the one sent first."""
    found = of((A, 2.0, 2.0), (A, 1.0, 1.0), (A, 6.0, 6.0), (B, 5.0, 5.0))
    assert found.recorded.ttft_us.tolist() == [[1.0, 5.0]]


def test_a_slot_without_a_member_is_left_out_and_counted() -> None:
    """A slot in which a member was not probed, or was throttled, is left out."""
    found = of((A, 1.0, 1.0), (B, 2.0, 2.0), (A, 11.0, 1.0), (A, 21.0, 1.0), (B, 22.0, None))
    assert (len(found.recorded), found.left_out, found.absent) == (1, 2, ())


def test_who_was_never_asked_is_named() -> None:
    """A member without a single probe from a vantage leaves it nothing to share."""
    found = of((A, 1.0, 1.0), (A, 11.0, 1.0))
    assert (len(found.recorded), found.left_out, found.absent) == (0, 2, (1,))


def test_vantages_are_clients_of_their_own() -> None:
    """Two vantages in one slot make two rounds, each with its own region."""
    one, other = sent((A, 1.0, 1.0), (B, 2.0, 2.0)), sent((A, 1.0, 3.0), (B, 2.0, 4.0), vantage_id=2)
    both = SentProbes(
        **{name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in SentProbes.__dataclass_fields__}
    )
    found = find_shared_rounds(both, (A, B), {1: "us", 2: "sg"}, slot_us=SLOT_US)
    assert [(part.recorded.region, part.recorded.ttft_us.tolist()) for part in found] == [
        ("us", [[1.0, 2.0]]),
        ("sg", [[3.0, 4.0]]),
    ]
