"""Incidents of partial failures: the rounds until 20 % failing is found, and the false alarms a year."""

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from itertools import product

import numpy as np

from isochrone_collector.alerts.failure_cusum import FailureCusum, alarm_limit
from isochrone_collector.alerts.failure_evidence import FailureEvidence, Fleet, RoundKind, RoundResult, WatchedTarget
from isochrone_collector.analysis.stats.arrays import Flags
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, SECOND_US

_START_AT = 1_795_000_020_000_000
_USUAL, _FAILING = 0.01, 0.2
_HISTORY, _MOST = 720, 400
_RUNS = 1000


def rounds_to_find(seed: int, *, vantages: int = 2, usual: float = _USUAL, runs: int = 100) -> float:
    """Return the median number of rounds of 60 s, after 12 hours of the `usual` share, until 20 % failing is found."""
    rng = np.random.default_rng(seed)
    share = np.where(np.arange(_HISTORY + _MOST) < _HISTORY, usual, _FAILING)
    found = []
    for _ in range(runs):
        alarms = _alarms(rng.random((vantages, len(share))) < share, every_us=60 * SECOND_US)
        found.append(next((at - _HISTORY + 1 for at in alarms if at >= _HISTORY), _MOST))
    return float(np.median(found))


def false_alarms_a_year(seed: int) -> dict[str, float]:
    """Return the false alarms of the CUSUMs of a target a year at 1 % failing, by vantages and interval.

    They are too rare to be counted: importance sampling (Siegmund 1985) plays excursions at 20 % failing.
    """
    rng = np.random.default_rng(seed)
    return {
        f"{vantages} vantages, every {every_s} s": _false_alarms(rng, vantages, every_s * SECOND_US)
        for vantages, every_s in product((1, 2, 4), (10, 60, 300))
    }


def _false_alarms(rng: np.random.Generator, vantages: int, every_us: int) -> float:
    limit, history = alarm_limit(every_us=every_us, vantages=vantages), FailureCusum()
    for at, failed in enumerate((rng.random(10_000) < _USUAL).tolist()):
        history.add(at, failed=failed)
    weights = []
    for _ in range(_RUNS):
        cusum, weight, at = deepcopy(history), 1.0, 20_000
        cusum.value = 0.0
        cusum.add(at, failed=True)
        while 0 < cusum.value < limit:
            at += 1
            failed = rng.random() < _FAILING
            weight *= _USUAL / _FAILING if failed else (1 - _USUAL) / (1 - _FAILING)
            cusum.add(at, failed=failed)
        weights.append(weight * (cusum.value > 0))
    # One CUSUM of all vantages, and one of each.
    return 2 * vantages * 365 * DAY_US / every_us * _USUAL * float(np.mean(weights))


def _alarms(failed: Flags, *, every_us: int) -> Iterator[int]:
    """Yield the numbers of the rounds in which a target, each vantage in its region, begins to fail."""
    target = WatchedTarget(id=1, name="a", provider="a", every_us=every_us)
    evidence, fleet, is_failing = FailureEvidence(), Fleet(targets={1: target}), False
    of = partial(evidence.of, target, AlertKind.TARGET_FAILING, clear_rounds=3)
    for number, results in enumerate(failed.T.tolist()):
        at = _START_AT + number * every_us
        evidence.add(
            RoundResult(target_id=1, vantage_id=one, region=str(one), round_at=at, kind=RoundKind(is_failed))
            for one, is_failed in enumerate(results)
        )
        # Only a failure begins an incident.
        if is_failing or True in results:
            was_failing, is_failing = is_failing, bool(of(fleet, now_at=at).failing)
            if is_failing and not was_failing:
                yield number
