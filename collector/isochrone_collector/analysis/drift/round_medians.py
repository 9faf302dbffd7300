"""Rounds of new probes, and their medians: the same, bit by bit, as those of the statement `round_medians`."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.probe_records import (
    FIRST_TOKEN,
    RECORD,
    VALID,
    Records,
    by_outcome,
    has,
    joined,
    outcomes,
    selected,
)
from isochrone_collector.analysis.probes import Flags, Integers, Reals
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import Outcome

MAX_BYTES = 256_000_000
"""Maximum size of the probes of rounds that are not complete: two minutes at 62 000 probes per second."""

_FIELDS = ("target_id", "round_at", "traits", "ttft_us", "tokens_per_second")
_PROBE = np.dtype([(name, RECORD[name]) for name in _FIELDS])

_IS_CUT_OFF = by_outcome(lambda outcome: outcome in (Outcome.TIMED_OUT, Outcome.STALLED))
_IS_ANSWERED = by_outcome(lambda outcome: outcome in (Outcome.OK, Outcome.TRUNCATED))
_IS_OK = by_outcome(lambda outcome: outcome is Outcome.OK)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MediansRow:
    """The medians of a target's rounds from a region, oldest first; NaN where a metric has no value. Where
    `ttft_limited` is not 0, most probes of the round were cut off by a timeout, and the median TTFT is a lower bound.
    """

    target_id: int
    region: str
    rounds: Integers
    ttft_us: Reals
    ttft_limited: NDArray[np.int32]
    tokens_per_second: Reals

    def values(self, metric: Metric) -> Reals:
        """Return the medians of one of the watched metrics."""
        return self.ttft_us if metric is Metric.TTFT else self.tokens_per_second

    def limited(self, metric: Metric) -> Flags:
        """Return the flags of the medians that are lower bounds."""
        return self.ttft_limited > 0 if metric is Metric.TTFT else np.zeros(len(self.rounds), np.bool_)


def round_medians(region: str, records: Records) -> Iterator[MediansRow]:
    """Yield the medians of the rounds of each target in all probes of a region."""
    order = np.lexsort((records["round_at"], records["target_id"]))
    # Column by column, because whole records take several times as long to move.
    target_id, round_at, traits, value, tokens_per_second = (
        np.ascontiguousarray(records[name])[order] for name in _FIELDS
    )
    is_first = np.ones(len(records), np.bool_)
    is_first[1:] = (np.diff(target_id) != 0) | (np.diff(round_at) != 0)
    (first,) = np.nonzero(is_first)
    rounds, n = np.cumsum(is_first) - 1, len(first)
    outcome, began, is_valid = outcomes(traits), has(traits, FIRST_TOKEN), has(traits, VALID)
    is_cut_off, is_answered = _IS_CUT_OFF[outcome], _IS_ANSWERED[outcome]
    ttft_us = _medians(np.where(is_valid & (is_cut_off | (is_answered & began)), value, np.nan), rounds, n)
    speed = _medians(np.where(is_valid & _IS_OK[outcome], tokens_per_second, np.nan), rounds, n)
    counted = ~np.isnan(value) & (is_cut_off | is_answered)
    cut_off = np.bincount(rounds[counted & is_cut_off & ~began], minlength=n)
    limited = (2 * cut_off >= np.bincount(rounds[counted], minlength=n)).astype(np.int32)
    is_known = ~(np.isnan(ttft_us) & np.isnan(speed))
    for one in np.unique(target_id[first[is_known]]).tolist():
        own = is_known & (target_id[first] == one)
        yield MediansRow(
            target_id=one,
            region=region,
            rounds=round_at[first[own]],
            ttft_us=ttft_us[own],
            ttft_limited=limited[own],
            tokens_per_second=speed[own],
        )


def _medians(values: Reals, group: Integers, n: int) -> Reals:
    """Return the median of the known values of each of `n` groups, NaN if a group has none."""
    known = ~np.isnan(values)
    # Complex numbers are sorted by their real parts, then by the others, in a third of the time of `lexsort`.
    pairs = np.empty(np.count_nonzero(known), np.complex128)
    pairs.real, pairs.imag = group[known], values[known]
    sizes = np.bincount(group[known], minlength=n)
    pairs.sort()
    ordered = pairs.imag
    begin, some = np.cumsum(sizes) - sizes, sizes > 0
    low = ordered[(begin + (sizes - 1) // 2)[some]]
    high = ordered[(begin + sizes // 2)[some]]
    found = np.full(n, np.nan)
    # As `percentile_cont` interpolates.
    found[some] = low + 0.5 * (high - low)
    return found


class UnsettledRounds:
    """The probes of rounds that are not complete yet, by region: `max_bytes` at most, with the fields that medians are
    made of. What is beyond is missing, like the probes that are in the database only.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._records: dict[str, list[Records]] = {}
        self._missing: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        """The size of the probes in memory."""
        return sum(part.nbytes for parts in self._records.values() for part in parts)

    def add(self, region: str, records: Records) -> None:
        """Add new probes of a region."""
        probes = np.empty(len(records), _PROBE)
        for name in _FIELDS:
            probes[name] = records[name]
        self._records.setdefault(region, []).append(probes)

    def miss(self, region: str, newest_round_at: int) -> None:
        """Note that probes of a region are missing, of rounds until `newest_round_at`."""
        self._missing[region] = max(self._missing.get(region, 0), newest_round_at)

    def limit(self) -> None:
        """Drop all probes if there are too many."""
        if self.nbytes > self._max_bytes:
            for region, parts in self._records.items():
                self.miss(region, max(int(part["round_at"].max()) for part in parts))
            self._records = {}

    def incomplete(self, from_at: int) -> tuple[str, ...]:
        """Return the regions with missing probes in rounds since an instant."""
        return tuple(region for region, newest_at in self._missing.items() if newest_at >= from_at)

    def settle(self, window: Window, target_ids: Collection[int]) -> list[MediansRow]:
        """Forget the rounds until the end of a window, and return the medians of those in it, of some targets. Regions
        with missing probes are left out.
        """
        rows: list[MediansRow] = []
        incomplete = self.incomplete(window.from_at)
        for region, parts in self._records.items():
            self._records[region] = [*_select(parts, lambda rounds: rounds >= window.until_at)]
            if region not in incomplete:
                settled = _select(parts, lambda rounds: (rounds >= window.from_at) & (rounds < window.until_at))
                rows += [row for row in round_medians(region, joined(settled, _PROBE)) if row.target_id in target_ids]
        self._missing = {name: newest_at for name, newest_at in self._missing.items() if newest_at >= window.until_at}
        return rows


def _select(parts: Iterable[Records], is_chosen: Callable[[Integers], Flags]) -> Iterator[Records]:
    """Yield the probes of chosen rounds, part by part. Most parts are whole, and are not copied."""
    for part in parts:
        flags = is_chosen(part["round_at"])
        if flags.all():
            yield part
        elif flags.any():
            yield selected(part, flags)
