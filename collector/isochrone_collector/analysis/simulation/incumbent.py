"""Who is asked when the one in use is left only for good reason: a simple form of the rules that routes go by. Pure.

A challenger takes over when the 95 % interval of incumbent minus challenger, paired by round over the rounds
remembered, lies above zero and the shift is at least max(20 ms, 5 % of the incumbent's median), three rounds running.
After three failures in a row the next best takes over at once. Without such rules two members that are
equally good change places all day, for nothing.
"""

import numpy as np

from isochrone_collector.analysis.simulation.replay import MEMORY_ROUNDS, MIN_LEARNING_ROUNDS, Places, Reals, Track
from isochrone_collector.analysis.stats.paired import paired_shift
from isochrone_collector.analysis.stats.signed_rank import interval_depth

_ROUNDS_RUNNING = 3
_FAILURES_RUNNING = 3
_MARGIN_US = 20_000.0
_MARGIN_SHARE = 0.05


def incumbents(track: Track, ranking: Places) -> Places:
    """The member in use in each round. Until there are six rounds to judge by, that is the best so far."""
    felt, failed = track.felt_us, np.isnan(track.ttft_us)
    chosen = ranking[:, 0].copy()
    running = 0
    for place in range(MIN_LEARNING_ROUNDS, len(track)):
        current, challenger = int(chosen[place - 1]), int(ranking[place, 0])
        same = challenger == int(ranking[place - 1, 0])
        memory = felt[max(0, place - MEMORY_ROUNDS) : place]
        better = challenger != current and _is_better(memory[:, current], memory[:, challenger])
        running = (running if same else 0) + 1 if better else 0
        if failed[place - _FAILURES_RUNNING : place, current].all():
            # Its median may be the lowest still.
            challenger, running = next(int(member) for member in ranking[place] if member != current), _ROUNDS_RUNNING
        chosen[place] = challenger if running >= _ROUNDS_RUNNING else current
    return chosen


def _is_better(incumbent: Reals, challenger: Reals) -> bool:
    differences = incumbent - challenger
    if not _may_be_above_zero(differences):
        return False
    shift = paired_shift(differences)
    margin = max(_MARGIN_US, _MARGIN_SHARE * float(np.median(incumbent)))
    return shift is not None and shift.low is not None and shift.low > 0 and shift.estimate >= margin


def _may_be_above_zero(differences: Reals) -> bool:
    """Whether the interval could lie above zero: a necessary condition that takes a hundredth of its time.

    Its lower bound is the Walsh average at a certain depth before it is widened, so fewer of them than that may be
    at or below zero; and each difference at or below zero makes as many of them as its rank by size.
    """
    depth = interval_depth(len(differences))
    ranks = np.argsort(np.argsort(np.abs(differences))) + 1
    return depth is not None and int(ranks[differences <= 0].sum()) < depth
