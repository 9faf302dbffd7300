"""Rounds of new probes, for the evidence of incidents. The law: they are those of the statement `round_results`."""

from collections.abc import Mapping

import numpy as np

from isochrone_collector.alerts.failure_evidence import RoundKind, RoundResult
from isochrone_collector.analysis.probe_records import Records, by_outcome, outcomes
from isochrone_wire.model import Outcome

_NOT_SENT = -1
_KINDS = {
    Outcome.OK: RoundKind.OK,
    Outcome.THROTTLED: RoundKind.THROTTLED,
    Outcome.SKIPPED_THROTTLED: RoundKind.HELD,
}
_KIND_OF = by_outcome(lambda outcome: _KINDS.get(outcome, _NOT_SENT if outcome.skipped else RoundKind.FAILED))


def round_results(records: Records, region_of: Mapping[int, str]) -> list[RoundResult]:
    """Return the rounds of all probes, oldest first: of each vantage the best result. Rounds without a request are left
    out, except those held back because the provider had asked to wait. `region_of` has the region of each vantage.
    """
    kind = _KIND_OF[outcomes(records["traits"])]
    parts = np.stack((records["round_at"], records["target_id"], records["vantage_id"], kind))[:, kind != _NOT_SENT]
    parts = parts[:, np.lexsort(parts[::-1])]
    is_first = np.ones(parts.shape[1], np.bool_)
    is_first[1:] = (np.diff(parts[:-1]) != 0).any(axis=0)
    return [
        RoundResult(
            target_id=target_id,
            vantage_id=vantage_id,
            region=region_of[vantage_id],
            round_at=round_at,
            kind=RoundKind(kind),
        )
        for round_at, target_id, vantage_id, kind in parts[:, is_first].T.tolist()
    ]
