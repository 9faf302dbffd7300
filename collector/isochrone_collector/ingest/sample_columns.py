"""The samples of one push as columns: what thousands of rows are judged and packed from without a value each. Pure.

A sheet says what the samples say, before anybody judged it: a quantity may be out of bounds, an outcome unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.ingest import varints
from isochrone_wire.model import Outcome, RateLimit, Sample, TokenSource

LIMIT = "ratelimit_"

TEXTS = ("remote_address", "edge", "request_id", "error")
RATES = ("tokens_per_second", "cost_usd")
INSTANTS = ("target_id", "round_at", "dispatched_at")
"""Numbers that travel in eight bytes."""

COUNTED = tuple(field.name for field in fields(Sample) if field.name not in {*TEXTS, *RATES, *INSTANTS, "ratelimit"})
LIMITS = tuple(LIMIT + field.name for field in fields(RateLimit))
NUMBERS = (*INSTANTS, *COUNTED, *LIMITS)
"""Every whole number of a sample in the order of `SampleColumns.numbers`. A word is its place in `WORDS`."""

WORDS: Mapping[str, tuple[str, ...]] = {"outcome": tuple(Outcome), "token_source": tuple(TokenSource)}
UNKNOWN_WORD = -1

COLUMN: Mapping[str, int] = {name: column for column, name in enumerate(NUMBERS)}
ALWAYS = (*INSTANTS, "outcome", "late_us", "chunks", "output_chars", "quality")
"""Numbers that every sample has: when nothing was said they are 0."""

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumns:
    """A row per sample. `numbers` has a column per name of `NUMBERS` and `rates` one per name of `RATES`, 0 where
    `present` and `rated` say that nothing is known; `texts` has a list per name of `TEXTS`.
    """

    numbers: Numbers
    present: Flags
    rates: NDArray[np.float64]
    rated: Flags
    texts: tuple[list[str | None], ...]

    def __len__(self) -> int:
        return len(self.numbers)

    def targets(self) -> set[int]:
        """The ids of the targets it names."""
        return set(self.numbers[:, COLUMN["target_id"]].tolist())


@dataclass(frozen=True, slots=True)
class Keys:
    """Where the numbers of a sample are in a run of varint pairs: the keys of the sample itself and of its rate limits,
    and by their keys the columns of a sample's own numbers and of its limits (-1: none).
    """

    sample: int
    limits: int
    own: Numbers
    of_limits: Numbers


def scatter(run: bytes, keys: Keys, instants: Numbers) -> tuple[Numbers, Flags]:
    """`SampleColumns.numbers` and `SampleColumns.present` from the pairs and `instants` of a push."""
    numbers = np.zeros((len(instants), len(NUMBERS)), np.int64)
    present = np.zeros(numbers.shape, np.bool_)
    numbers[:, : len(INSTANTS)] = instants
    pairs = varints.read(run)
    is_sample = pairs.keys == keys.sample
    columns = keys.own.take(pairs.keys)
    (of_limits,) = np.nonzero(pairs.inside(keys.limits))
    columns[of_limits] = keys.of_limits.take(pairs.keys.take(of_limits))
    (told,) = np.nonzero(columns >= 0)
    places = (np.cumsum(is_sample)[told] - 1) * len(NUMBERS) + columns[told]
    numbers.reshape(-1)[places] = pairs.values[told]
    present.reshape(-1)[places] = True
    present[:, [COLUMN[name] for name in ALWAYS]] = True
    return numbers, present
