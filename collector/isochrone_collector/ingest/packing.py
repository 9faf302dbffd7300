"""From a parcel to a sealed batch: its samples judged, and packed as the rows they will be."""

from dataclasses import dataclass

import numpy as np

from isochrone_collector.ingest.copy_format import pack
from isochrone_collector.ingest.sample_columns import COLUMN
from isochrone_collector.ingest.validation import PushBatch, admit
from isochrone_collector.store.batches import PackedBatch
from isochrone_collector.store.rows import Origin
from isochrone_wire.answers import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What samples are judged by: the ids of all `targets` known here and the `window` of rounds that can be stored.

    Where the targets are not `final`, somebody else may know more of them.
    """

    targets: frozenset[int]
    window: Window
    final: bool


def seal(parcel: PushBatch, criteria: Criteria) -> PackedBatch | None:
    """The sealed batch; `None` when it names unknown targets though there may be more of them."""
    sheet = parcel.sheet()
    if not criteria.final and not sheet.targets() <= criteria.targets:
        return None
    admitted = admit(parcel, sheet, known_targets=criteria.targets, window=criteria.window)
    origin = Origin(
        vantage_id=parcel.vantage.id,
        region=parcel.vantage.region,
        epoch=parcel.epoch,
        seq=parcel.seq,
        received_at=parcel.received_at,
    )
    late = np.array([index for index, _ in admitted.late], np.int64)
    rounds = sheet.numbers[admitted.fresh, COLUMN["round_at"]]
    return PackedBatch(
        origin=origin,
        samples=parcel.samples,
        rows=pack(sheet, admitted.fresh, origin),
        late_rows=pack(sheet, late, origin, [reason for _, reason in admitted.late]),
        rejections=[(rejection.index, rejection.reason) for rejection in admitted.rejections],
        oldest_round_at=int(rounds.min()) if len(rounds) else None,
        newest_round_at=int(rounds.max()) if len(rounds) else None,
    )
