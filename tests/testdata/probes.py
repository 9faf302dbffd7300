"""Probes as a table of short rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from isochrone_collector.analysis.probes import Kind, Probes

NAN = float("nan")


class Row(NamedTuple):
    """One probe."""

    target: int
    region: str
    at: int
    value: float = NAN
    vantage: int = 1
    kind: Kind = Kind.OK
    censored: bool = False
    network: float = NAN


def probes(rows: Sequence[Row], *, regions: tuple[str, ...] = ("us", "sg")) -> Probes:
    """Return the rows as columns."""
    return Probes(
        regions=regions,
        target_id=np.array([row.target for row in rows], dtype=np.int64),
        region=np.array([regions.index(row.region) for row in rows], dtype=np.int64),
        vantage_id=np.array([row.vantage for row in rows], dtype=np.int64),
        round_at=np.array([row.at for row in rows], dtype=np.int64),
        kind=np.array([row.kind for row in rows], dtype=np.int8),
        value=np.array([row.value for row in rows], dtype=np.float64),
        censored=np.array([row.censored for row in rows], dtype=np.bool_),
        network=np.array([row.network for row in rows], dtype=np.float64),
    )


def series(
    region: str, values: Sequence[float], *, target: int = 1, start: int = 0, limits: Sequence[int] = ()
) -> list[Row]:
    """One value per round from `start` on; rounds whose place is in `limits` ran into a timeout at their value."""
    return [Row(target, region, start + place, value, censored=place in limits) for place, value in enumerate(values)]
