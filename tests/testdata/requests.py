"""Planned requests as columns, written by hand."""

from collections.abc import Sequence

import numpy as np

from isochrone_collector.analysis.goodput import Ending, Requests
from isochrone_wire.model import SECOND_US

_NAN = float("nan")


def requests_of(
    ttft_us: Sequence[float],
    ending: Sequence[Ending] = (),
    *,
    e2e_us: Sequence[float] = (),
    ceiling_us: Sequence[float] = (),
    speed: Sequence[float] = (),
    every_us: int = 60 * SECOND_US,
) -> Requests:
    """Return the requests of one target from "us", one round after the other; by default all were answered."""
    n = len(ttft_us)
    return Requests(
        regions=("us",),
        target_id=np.ones(n, np.int64),
        region=np.zeros(n, np.int64),
        round_at=np.arange(n, dtype=np.int64) * every_us,
        ending=np.array(ending or [Ending.ANSWERED] * n, np.int8),
        ttft_us=np.array(ttft_us, np.float64),
        e2e_us=np.array(e2e_us or [_NAN] * n, np.float64),
        ceiling_us=np.array(ceiling_us or [_NAN] * n, np.float64),
        tokens_per_second=np.array(speed or [_NAN] * n, np.float64),
    )
