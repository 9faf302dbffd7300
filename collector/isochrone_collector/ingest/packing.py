"""Packing of a push batch: its samples are validated and encoded as rows of COPY."""

from dataclasses import dataclass

import numpy as np

from isochrone_collector.ingest.copy_format import pack_rows
from isochrone_collector.ingest.probe_counts import count_probes
from isochrone_collector.ingest.probe_records import probe_records
from isochrone_collector.ingest.sample_columns import COLUMN
from isochrone_collector.ingest.validation import PushBatch, validate
from isochrone_collector.store.batches import PackedBatch
from isochrone_collector.store.rows import Origin
from isochrone_wire.answers import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """The criteria of validation: the ids of all known `targets`, and the `window` of rounds that have a partition.

    Unless `final`, the targets may be out of date: another collector may have applied a plan with more of them.
    """

    targets: frozenset[int]
    window: Window
    final: bool


def pack(batch: PushBatch, criteria: Criteria) -> PackedBatch | None:
    """Return the packed batch; `None` when it has unknown targets and the criteria are not final."""
    columns = batch.decode_columns()
    if not criteria.final and not columns.targets() <= criteria.targets:
        return None
    validated = validate(batch, columns, known_targets=criteria.targets, window=criteria.window)
    origin = Origin(
        vantage_id=batch.vantage.id,
        region=batch.vantage.region,
        epoch=batch.epoch,
        seq=batch.seq,
        received_at=batch.received_at,
    )
    late = np.array([index for index, _ in validated.late], np.int64)
    fresh = columns.select(validated.fresh)
    rounds = fresh.numbers[:, COLUMN["round_at"]]
    return PackedBatch(
        origin=origin,
        samples=batch.sample_count,
        content_hash=batch.hash_samples(),
        rows=pack_rows(columns, validated.fresh, origin),
        late_rows=pack_rows(columns, late, origin, [reason for _, reason in validated.late]),
        rejections=[(rejection.index, rejection.reason) for rejection in validated.rejections],
        oldest_round_at=int(rounds.min()) if len(rounds) else None,
        newest_round_at=int(rounds.max()) if len(rounds) else None,
        probe_counts=count_probes(fresh),
        records=probe_records(fresh, origin.vantage_id).tobytes(),
    )
