"""Incidents of partial failures: the rounds until 20 % failing is found, and the false alarms a year."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from isochrone_collector.alerts.failure_evidence import FailureEvidence, Fleet, RoundKind, RoundResult, WatchedTarget
from isochrone_collector.analysis.stats.arrays import Flags
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, SECOND_US

_START_AT = 1_795_000_020_000_000
_USUAL, _FAILING = 0.01, 0.2
_HISTORY, _MOST = 720, 400
# By name: the vantages, the interval in seconds, the years, and the part of the failures that all vantages share.
QUIET = {
    "2 vantages, 60 s": (2, 60, 0.5, 0.0),
    "2 vantages, 60 s, half of the failures shared": (2, 60, 0.5, 0.5),
    "1 vantage, 5 min": (1, 300, 2.0, 0.0),
    "4 vantages, 10 s": (4, 10, 0.03, 0.0),
}


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
    """Return the false alarms of a target a year at 1 % failing, by case of `QUIET`."""
    return {name: _false_alarms(np.random.default_rng(seed), *case) for name, case in QUIET.items()}


def _false_alarms(rng: np.random.Generator, vantages: int, every_s: int, years: float, shared: float) -> float:
    n = round(years * 365 * DAY_US / SECOND_US / every_s)
    failed = rng.random((vantages, n)) < _USUAL * (1 - shared)
    failed |= rng.random(n) < _USUAL * shared
    # A vantage whose failures in a row raise the alarm has found a cluster of failures.
    in_row = np.append(False, (failed[:, 1:] & failed[:, :-1]).any(axis=0))
    return sum(not in_row[at] for at in _alarms(failed, every_us=every_s * SECOND_US)) / years


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
