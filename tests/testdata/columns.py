"""Columns of the analysis from short rows: probes, requests, distributions, and quantiles to compare with."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple, TypeVar

import numpy as np

from isochrone_collector.analysis.distribution import Values
from isochrone_collector.analysis.goodput import Ending, Requests
from isochrone_collector.analysis.probes import Kind, Probes
from isochrone_collector.analysis.stats.binomial import dependent_ranks
from isochrone_wire.answers import Quantile
from isochrone_wire.model import SECOND_US

NAN = float("nan")
T = TypeVar("T")


def present(value: T | None) -> T:
    assert value is not None
    return value


class Row(NamedTuple):
    target: int
    region: str
    at: int
    value: float = NAN
    vantage: int = 1
    kind: Kind = Kind.OK
    censored: bool = False
    network: float = NAN


def probes(rows: Sequence[Row], *, regions: tuple[str, ...] = ("us", "sg")) -> Probes:
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


def values_of(known: Sequence[float] = (), limits: Sequence[float] = ()) -> Values:
    """Return values in this order, with the limits among them at equal distances."""
    places = (np.arange(len(limits)) + 0.5) / max(len(limits), 1)
    order = np.argsort(np.concatenate([(np.arange(len(known)) + 0.5) / max(len(known), 1), places]), kind="stable")
    censored = np.repeat([False, True], [len(known), len(limits)])
    return Values(values=np.array([*known, *limits], dtype=float)[order], censored=censored[order])


def independent_quantile(values: Sequence[float], share: float, *, censored: Sequence[float] = ()) -> Quantile | None:
    """Return the quantile `share` of independent values with its 95 % interval; limits rank above all values."""
    known, limits = np.sort(np.asarray(values, dtype=float)), np.sort(np.asarray(censored, dtype=float))
    ordered = np.concatenate([known, np.maximum(limits, known[-1]) if len(known) else limits]).tolist()
    n = len(ordered)
    if not n:
        return None
    low, high = (ordered[rank - 1] if rank else None for rank in dependent_ranks(n, share, n) or (0, 0))
    return Quantile(value=ordered[min(n, max(1, ceil(share * n - 1e-12 * n))) - 1], low=low, high=high)


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
        e2e_us=np.array(e2e_us or [NAN] * n, np.float64),
        ceiling_us=np.array(ceiling_us or [NAN] * n, np.float64),
        tokens_per_second=np.array(speed or [NAN] * n, np.float64),
    )
