"""In-memory cache of the fleet's newest probes, from which tables are decided without reading them again."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from isochrone_collector.analysis.probes import Integers, Reals
from isochrone_collector.routing.evidence import ProbeTable
from isochrone_wire.model import MINUTE_US

Columns = Mapping[str, Integers | Reals]

Batch = tuple[int, int, int]

KEY = ("target_id", "round_at", "vantage_id", "epoch", "seq", "idx")
_REALS = ("ttft_us", "rtt_us", "tokens_per_second", "answer_from_us", "first_chunk_tokens")
VALUES = ("region", "kind", "censored", "comparable", *_REALS)
NAMES = (*KEY, *VALUES)
# Callers add batches again for up to half a minute.
_BATCH_MEMORY_US = 10 * MINUTE_US
_MAX_BATCHES = 10_000


class ProbeCache:
    """Probes as columns, without duplicates. `regions` are the names that the column `region` indexes.

    Batches are added as a whole, so a batch that was added before is skipped. Batch keys are remembered for
    `_BATCH_MEMORY_US` after they were last added.
    """

    def __init__(self) -> None:
        self.regions: list[str] = []
        self._seen_at: dict[Batch, int] = {}
        self._columns: dict[str, Any] = {
            name: np.empty(0, np.float64 if name in _REALS else np.int64) for name in NAMES
        }

    def __len__(self) -> int:
        return len(self._columns["round_at"])

    def place_of(self, region: str) -> int:
        """Return the index of a region, adding it if it is new."""
        if region not in self.regions:
            self.regions.append(region)
        return self.regions.index(region)

    def add(self, columns: Columns, *, at: int) -> set[tuple[int, str]]:
        """Add the probes of whole batches, and return the (target id, region) pairs of the new ones."""
        batches = list(zip(*(columns[name].tolist() for name in ("vantage_id", "epoch", "seq")), strict=True))
        fresh = np.array([batch not in self._seen_at for batch in batches], bool)
        self._seen_at |= dict.fromkeys(batches, at)
        if len(self._seen_at) > _MAX_BATCHES:
            self._seen_at = {batch: seen for batch, seen in self._seen_at.items() if seen > at - _BATCH_MEMORY_US}
        new = {name: columns[name][fresh] for name in NAMES}
        self._columns = {name: np.concatenate([kept, new[name]]) for name, kept in self._columns.items()}
        pairs = set(zip(new["target_id"].tolist(), new["region"].tolist(), strict=True))
        return {(int(target_id), self.regions[int(place)]) for target_id, place in pairs}

    def forget(self, *, before_at: int) -> None:
        """Remove the rounds before an instant."""
        recent = self._columns["round_at"] >= before_at
        if not recent.all():
            self._columns = {name: column[recent] for name, column in self._columns.items()}

    def clear(self) -> None:
        """Remove everything."""
        self.forget(before_at=np.iinfo(np.int64).max)
        self._seen_at = {}

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
