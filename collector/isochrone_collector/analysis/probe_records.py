"""Records of probes: what drift detection, incident detection and route tables need of each new sample. Pure.

Ingest makes them of the columns of a push, and the statement `probe_records` of stored rows, with the same bits. The
traits are stored, so outcomes keep their places: new ones are added at the end.

The medians of rounds are the same, bit by bit, as those of the statement `round_medians`.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals
from isochrone_common.probe_metrics import CUT_OFF, OUTCOMES, STREAMED
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import MINUTE_US, Outcome, Quality

RECORD = np.dtype(
    [
        ("vantage_id", np.int64),
        ("target_id", np.int64),
        ("round_at", np.int64),
        ("traits", np.int16),
        ("ttft_us", np.float64),
        ("tokens_per_second", np.float64),
        ("rtt_us", np.float64),
        ("answer_from_us", np.float64),
        ("first_chunk_tokens", np.float64),
    ]
)
"""One probe; values are NaN if unknown. `ttft_us` is its timeout if it has no first token. `traits` are the flags below
and, from `OUTCOME_BIT` on, the place of the outcome in `OUTCOMES`. `answer_from_us` is known of answers with a speed.
"""

VALID, COMPARABLE, FIRST_TOKEN, OUTCOME_BIT = 1, 2, 4, 3
"""The values are those of the model; the probe can be compared with its round and with others, because it began in time
and its machine was not busy; it has a first token.
"""

BLOCKED_SHIFT = 6
BLOCKED = Quality.BLOCKED.value << BLOCKED_SHIFT
"""The flag of a round that was not sent; it is derived of the quality, and not stored with the traits."""

# numpy moves the fields of a structure one by one, and keeps Python's lock meanwhile.
_BLOCK = np.dtype((np.void, RECORD.itemsize))

Records = NDArray[np.void]
Traits = NDArray[np.int16]


def by_outcome(value_of: Callable[[Outcome], Any]) -> NDArray[Any]:
    """Return a lookup table for `outcomes`. An outcome of a later version counts as an HTTP error."""
    return np.array([value_of(outcome) for outcome in (*OUTCOMES, Outcome.HTTP_ERROR)])


def outcomes(traits: Traits) -> Traits:
    """Return the place of each outcome in a table of `by_outcome`."""
    return np.asarray(np.minimum((traits & ~BLOCKED) >> OUTCOME_BIT, len(OUTCOMES)))


def has(traits: Traits, flag: int) -> Flags:
    """Return whether each probe has a flag."""
    return np.asarray(traits & flag != 0)


BUSY_CELL_US = 5 * MINUTE_US


def comparable(traits: Traits, vantage_id: Integers, round_at: Integers) -> Flags:
    """Return whether each probe can be compared with others: neither it nor most probes of its vantage in these five
    minutes lack the trait, because the other ones of a busy machine are late, too.
    """
    is_fine = has(traits, COMPARABLE)
    if is_fine.all():
        return is_fine
    vantage = np.unique(vantage_id, return_inverse=True)[1]
    cell = round_at // BUSY_CELL_US - round_at.min() // BUSY_CELL_US
    place = vantage * (cell.max() + 1) + cell
    is_busy = 2 * np.bincount(place, ~is_fine) > np.bincount(place)
    return np.asarray(is_fine & ~is_busy[place])


def joined(parts: Iterable[Records]) -> Records:
    """Return the probes of all parts."""
    return np.concatenate([np.empty(0, np.uint8), *(part.view(np.uint8) for part in parts)]).view(RECORD)


def selected(records: Records, is_chosen: Flags) -> Records:
    """Return the probes with a flag."""
    return records.view(_BLOCK)[is_chosen].view(RECORD)


MAX_BYTES = 256_000_000
"""Maximum size of the probes of rounds that are not complete: two minutes at 62 000 probes per second."""

_FIELDS = ("target_id", "round_at", "traits", "ttft_us", "tokens_per_second")

Columns = Sequence[NDArray[Any]]
"""An array per name of `_FIELDS`."""

_IS_CUT_OFF = by_outcome((STREAMED & CUT_OFF).__contains__)
_IS_ANSWERED = by_outcome((STREAMED - CUT_OFF).__contains__)
_IS_OK = by_outcome(lambda outcome: outcome is Outcome.OK)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MediansRow:
    """The medians of a target's rounds, NaN without a value; the TTFT of a `ttft_limited` round is a lower bound."""

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
    return _medians_of(region, _columns(records))


def _columns(records: Records) -> Columns:
    # Whole records take several times as long to move.
    return [np.ascontiguousarray(records[name]) for name in _FIELDS]


def _medians_of(region: str, columns: Columns) -> Iterator[MediansRow]:
    order = np.lexsort((columns[1], columns[0]))
    target_id, round_at, traits, value, tokens_per_second = (column[order] for column in columns)
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (np.diff(target_id) != 0) | (np.diff(round_at) != 0)
    (first,) = np.nonzero(is_first)
    rounds, n = np.cumsum(is_first) - 1, len(first)
    outcome, began, is_valid = outcomes(traits), has(traits, FIRST_TOKEN), has(traits, VALID) & has(traits, COMPARABLE)
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
    groups, ordered = group[known], values[known]
    sizes = np.bincount(groups, minlength=n)
    # By value, then by group in the same order. Numbers of two bytes are sorted in a tenth of the time.
    order = np.argsort(ordered)
    order = order[np.argsort(groups[order].astype(np.uint16 if n <= 1 << 16 else np.int64), kind="stable")]
    ordered = ordered[order]
    begin, some = np.cumsum(sizes) - sizes, sizes > 0
    low = ordered[(begin + (sizes - 1) // 2)[some]]
    high = ordered[(begin + sizes // 2)[some]]
    found = np.full(n, np.nan)
    # As `percentile_cont` interpolates.
    found[some] = low + 0.5 * (high - low)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Probes:
    """Probes as columns, and their oldest and newest round."""

    columns: Columns
    oldest_at: int
    newest_at: int

    @classmethod
    def of(cls, columns: Columns) -> "list[_Probes]":
        """Return the probes of some columns, in a list; an empty one if there are none."""
        _, rounds, *_ = columns
        return [cls(columns, int(rounds.min()), int(rounds.max()))] if len(rounds) else []

    def within(self, from_at: int, until_at: float) -> "list[_Probes]":
        """Return the probes of a window. Most are all or none, and are not copied."""
        if from_at <= self.oldest_at and self.newest_at < until_at:
            return [self]
        if self.newest_at < from_at or until_at <= self.oldest_at:
            return []
        _, rounds, *_ = self.columns
        is_chosen = (rounds >= from_at) & (rounds < until_at)
        return self.of([column[is_chosen] for column in self.columns])


class UnsettledRounds:
    """The probes of rounds that are not complete, by region, `max_bytes` at most; what is beyond is missing."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._probes: dict[str, list[_Probes]] = {}
        self._missing: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        """The size of the probes in memory."""
        return sum(column.nbytes for parts in self._probes.values() for part in parts for column in part.columns)

    def add(self, region: str, records: Records) -> None:
        """Add new probes of a region."""
        self._probes.setdefault(region, []).extend(_Probes.of(_columns(records)))

    def miss(self, region: str, newest_round_at: int) -> None:
        """Note that probes of a region are missing, of rounds until `newest_round_at`."""
        self._missing[region] = max(self._missing.get(region, 0), newest_round_at)

    def limit(self) -> None:
        """Drop all probes if there are too many."""
        if self.nbytes > self._max_bytes:
            for region, parts in self._probes.items():
                for part in parts:
                    self.miss(region, part.newest_at)
            self._probes = {}

    def incomplete(self, from_at: int) -> tuple[str, ...]:
        """Return the regions with missing probes in rounds since an instant."""
        return tuple(region for region, newest_at in self._missing.items() if newest_at >= from_at)

    def settle(self, window: Window, target_ids: Collection[int]) -> list[MediansRow]:
        """Forget rounds until a window ends; return the medians of its targets in regions without missing probes."""
        rows: list[MediansRow] = []
        incomplete = self.incomplete(window.from_at)
        for region, parts in self._probes.items():
            self._probes[region] = [one for part in parts for one in part.within(window.until_at, math.inf)]
            settled = [one.columns for part in parts for one in part.within(window.from_at, window.until_at)]
            if settled and region not in incomplete:
                medians = _medians_of(region, [np.concatenate(column) for column in zip(*settled, strict=True)])
                rows += [row for row in medians if row.target_id in target_ids]
        self._missing = {name: newest_at for name, newest_at in self._missing.items() if newest_at >= window.until_at}
        return rows
