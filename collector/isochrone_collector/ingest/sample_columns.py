"""The samples of one push as columns, so that thousands of rows need no object each. Pure.

The columns hold what was sent, before validation: a quantity may be out of bounds, an outcome unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.stats.arrays import Flags, Integers
from isochrone_wire.model import Outcome, RateLimit, Sample, TokenSource

LIMIT = "ratelimit_"

TEXTS = ("remote_address", "edge", "request_id", "error")
RATES = ("tokens_per_second", "cost_usd")
NUMBERS = (
    *(field.name for field in fields(Sample) if field.name not in {*TEXTS, *RATES, "ratelimit"}),
    *(LIMIT + field.name for field in fields(RateLimit)),
)
"""Every whole number of a sample in the order of `SampleColumns.numbers`. An enum member is its place in `ENUMS`."""

ENUMS: Mapping[str, tuple[str, ...]] = {"outcome": tuple(Outcome), "token_source": tuple(TokenSource)}
UNKNOWN_MEMBER = -1

COLUMN: Mapping[str, int] = {name: column for column, name in enumerate(NUMBERS)}

Array = Any  # pyarrow.Array, which has no types


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumns:
    """One row per sample. `numbers` has a column per name of `NUMBERS` and `rates` one per name of `RATES`; `present`
    and `rated` are False, and the value is 0, where the field is absent. `texts` has a binary array in UTF-8 per name
    of `TEXTS`, and `sizes` a column with the numbers of bytes, -1 where the text is absent.
    """

    numbers: Integers
    present: Flags
    rates: NDArray[np.float64]
    rated: Flags
    texts: tuple[Array, ...]
    sizes: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.numbers)

    def select(self, chosen: Integers) -> "SampleColumns":
        """Return the `chosen` rows in their order; without a copy if they are all, as nearly always."""
        if np.array_equal(chosen, np.arange(len(self))):
            return self
        return SampleColumns(
            numbers=self.numbers[chosen],
            present=self.present[chosen],
            rates=self.rates[chosen],
            rated=self.rated[chosen],
            texts=tuple(column.take(chosen) for column in self.texts),
            sizes=self.sizes[chosen],
        )

    def targets(self) -> set[int]:
        """Return the ids of the targets of these samples."""
        return set(self.numbers[:, COLUMN["target_id"]].tolist())
