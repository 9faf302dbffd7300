"""Rows of the table `sample`, made one by one: the slow reference of what ingest encodes at once."""

from dataclasses import asdict
from typing import Any

from isochrone_collector.store.batches import Origin
from isochrone_collector.store.samples import COLUMNS
from isochrone_wire.model import RateLimit, Sample

Row = tuple[Any, ...]


def sample_row(sample: Sample, idx: int, origin: Origin) -> Row:
    """Return a sample as a row of `sample`, in the order of `COLUMNS`. `idx` is its index in the batch."""
    limits = {f"ratelimit_{name}": value for name, value in asdict(sample.ratelimit or RateLimit()).items()}
    values = {**asdict(sample), **limits, **asdict(origin), "idx": idx}
    return tuple(values[name] for name in COLUMNS)
