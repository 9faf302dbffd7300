"""In-memory cache of the fleet's newest probes, from which tables are decided without reading them again."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from isochrone_collector.analysis.probe_records import (
    FIRST_TOKEN,
    PUNCTUAL,
    VALID,
    Records,
    by_outcome,
    has,
    outcomes,
)
from isochrone_collector.analysis.probes import Kind
from isochrone_collector.routing.evidence import ProbeTable
from isochrone_common.probe_metrics import CUT_OFF, STREAMED
from isochrone_wire.model import Outcome

_INTEGERS = ("target_id", "round_at", "vantage_id", "region", "kind", "censored", "comparable")
_REALS = ("ttft_us", "rtt_us", "tokens_per_second", "answer_from_us", "first_chunk_tokens")
_COPIED = ("target_id", "round_at", "vantage_id", "rtt_us", "answer_from_us", "first_chunk_tokens")

_KINDS = {
    Outcome.OK: Kind.OK,
    Outcome.THROTTLED: Kind.THROTTLED,
    Outcome.SKIPPED_THROTTLED: Kind.THROTTLED,
}
_KIND_OF = by_outcome(lambda outcome: _KINDS.get(outcome, Kind.SKIPPED if outcome.skipped else Kind.FAILED))
_IS_STREAMED = by_outcome(STREAMED.__contains__)
_IS_CUT_OFF = by_outcome(CUT_OFF.__contains__)
_IS_CONNECTED = by_outcome(lambda outcome: outcome is not Outcome.CONNECT_FAILED)


class ProbeCache:
    """Probes as columns. `regions` are the names that the column `region` indexes."""

    def __init__(self) -> None:
        self.regions: list[str] = []
        self._columns: dict[str, Any] = {
            **{name: np.empty(0, np.int64) for name in _INTEGERS},
            **{name: np.empty(0) for name in _REALS},
        }

    def __len__(self) -> int:
        return len(self._columns["round_at"])

    def place_of(self, region: str) -> int:
        """Return the index of a region, adding it if it is new."""
        if region not in self.regions:
            self.regions.append(region)
        return self.regions.index(region)

    def add(self, records: Records, region_of: Mapping[int, str]) -> set[tuple[int, str]]:
        """Add probes that are not in the cache, and return their (target id, region) pairs. `region_of` has the region
        of each vantage.
        """
        vantage_ids, rows = np.unique(records["vantage_id"], return_inverse=True)
        places = np.array([self.place_of(region_of[one]) for one in vantage_ids.tolist()], np.int64)
        new = {**_columns(records), "region": places[rows]}
        self._columns = {name: np.concatenate([kept, new[name]]) for name, kept in self._columns.items()}
        pairs = set(zip(new["target_id"].tolist(), new["region"].tolist(), strict=True))
        return {(target_id, self.regions[place]) for target_id, place in pairs}

    def forget(self, *, before_at: int) -> None:
        """Remove the rounds before an instant."""
        recent = self._columns["round_at"] >= before_at
        if not recent.all():
            self._columns = {name: column[recent] for name, column in self._columns.items()}

    def clear(self) -> None:
        """Remove everything."""
        self.forget(before_at=np.iinfo(np.int64).max)

    def table(self, targets: Mapping[int, str], *, from_at: int) -> ProbeTable:
        """Return the probes of some targets (id → name) from an instant on."""
        ids = np.array(sorted(targets), np.int64)
        of = self._columns
        wanted = np.isin(of["target_id"], ids) & (of["round_at"] >= from_at)
        chosen = {name: column[wanted] for name, column in of.items()}
        return ProbeTable(
            members=tuple(targets[target_id] for target_id in ids.tolist()),
            regions=tuple(self.regions),
            member=np.searchsorted(ids, chosen["target_id"]),
            region=chosen["region"],
            vantage_id=chosen["vantage_id"],
            round_at=chosen["round_at"],
            kind=chosen["kind"].astype(np.int8),
            censored=chosen["censored"].astype(bool),
            comparable=chosen["comparable"].astype(bool),
            **{name: chosen[name] for name in _REALS},
        )


def _columns(records: Records) -> dict[str, Any]:
    """Return the columns of new probes, except `region`."""
    traits = records["traits"]
    outcome, began, is_valid = outcomes(traits), has(traits, FIRST_TOKEN), has(traits, VALID)
    has_value = _IS_STREAMED[outcome] & is_valid & began
    is_limit = _IS_CUT_OFF[outcome] & ~began & ~np.isnan(records["ttft_us"])
    return {
        "kind": _KIND_OF[outcome],
        "censored": is_limit,
        "comparable": has(traits, PUNCTUAL) & _IS_CONNECTED[outcome],
        "ttft_us": np.where(has_value | is_limit, records["ttft_us"], np.nan),
        "tokens_per_second": np.where(is_valid & (_KIND_OF[outcome] == Kind.OK), records["tokens_per_second"], np.nan),
        **{name: records[name] for name in _COPIED},
    }
