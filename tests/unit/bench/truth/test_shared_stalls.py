"""Stalls that members share: what is reported is the truth, or nothing."""

import numpy as np
import pytest

from bench.truth.shared_stalls import World, hedged, plan_of, race_p99_error_pct, reported_race_p99_us


def test_a_race_shows_the_stalls_that_its_members_share() -> None:
    """The p99 of a race over recorded rounds is that of two requests at once at any instant."""
    assert race_p99_error_pct(seed=1) < 10


@pytest.mark.parametrize("routed", [True, False])
def test_without_joint_rounds_nothing_is_reported(*, routed: bool) -> None:
    """Targets of no route are probed at different instants, where one of the two mostly avoids the stall."""
    world, plan = World(seed=1), plan_of(routed=routed)
    sent = world.sent(plan, 2_000)
    assert (reported_race_p99_us(plan, sent) is not None) == routed
    hidden = float(np.quantile(sent.ttft_us.min(axis=1), 0.99)) < 2e6
    assert hidden == (not routed)


def test_no_table_hedges_under_common_stalls() -> None:
    """A second request meets the same stall as the first; with stalls of its own it shortens the tail."""
    for seed in (1, 2):
        assert hedged(seed, common=True, tables=100)[0] == 0
    assert hedged(1, common=False, tables=100)[0] > 0
