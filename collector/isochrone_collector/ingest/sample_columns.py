"""The samples of one push as columns, so that thousands of rows need no object each. Pure.

The columns hold what was sent, before validation: a quantity may be out of bounds, an outcome unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.probe_records import COMPARABLE, FIRST_TOKEN, OUTCOME_BIT, VALID
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals
from isochrone_wire.model import SECOND_US, Outcome, Quality, RateLimit, Sample, TokenSource

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
    of `TEXTS`, and `sizes` a column with the numbers of bytes, -1 where the text is absent. For `traits` and
    `answer_from_us`, see `derived`.
    """

    numbers: Integers
    present: Flags
    rates: NDArray[np.float64]
    rated: Flags
    texts: tuple[Array, ...]
    sizes: NDArray[np.int32]
    traits: Integers
    answer_from_us: Reals

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
            traits=self.traits[chosen],
            answer_from_us=self.answer_from_us[chosen],
        )

    def value(self, name: str) -> NDArray[Any]:
        """Return a column, NaN where it is absent, or the traits."""
        if name == "traits":
            return self.traits
        return _known(name, self.numbers, self.present, self.rates, self.rated)

    def targets(self) -> set[int]:
        """Return the ids of the targets of these samples."""
        return set(self.numbers[:, COLUMN["target_id"]].tolist())


MAX_LATE_US = 6 * SECOND_US
"""A probe that began later after its planned start, because it waited for a slot, is not compared with its round. The
grace for a round whose previous probe is about to end is 5 s.
"""
MAX_WAIT_US = 20_000
"""A probe whose received bytes waited longer for the agent is not compared: its machine was so busy that the answer or
the request may have been late, too. Differences below this are too small to matter for a first token.
"""

_OK = ENUMS["outcome"].index(Outcome.OK)
_SAME_US = 1000


def derived(numbers: Integers, present: Flags, rates: Reals, rated: Flags) -> tuple[Integers, Reals]:
    """Return what queries need of each sample and do not derive again: its traits (`analysis.probe_records`), and the
    time from the request to the chunk at which the measurement of the speed began, in microseconds, NaN without one.

    That is the first chunk, or the first of the answer if the reasoning was only summarised: then the tokens of the
    answer, at the speed, take from there to the end.
    """
    ttft_us, ttfat_us, e2e_us, output_tokens, first_tokens, speed = (
        _known(name, numbers, present, rates, rated)
        for name in ("ttft_us", "ttfat_us", "e2e_us", "output_tokens", "first_chunk_tokens", "tokens_per_second")
    )
    outcome, quality = numbers[:, COLUMN["outcome"]], numbers[:, COLUMN["quality"]]
    # Otherwise the values are not those of the model: most of the prompt came from a cache, or the wall clock stepped
    # while the timestamps of the kernel were converted. Such a probe is a success without values.
    is_cached = 2 * numbers[:, COLUMN["cached_tokens"]] >= numbers[:, COLUMN["prompt_tokens"]]
    is_valid = (quality & Quality.CLOCK_STEPPED.value == 0) & ~((quality & Quality.CACHED.value != 0) & is_cached)
    late_us, waited_us = numbers[:, COLUMN["late_us"]], numbers[:, COLUMN["loop_lag_us"]]
    is_comparable = (late_us <= MAX_LATE_US) & (waited_us <= MAX_WAIT_US)
    traits = (outcome << OUTCOME_BIT) + VALID * is_valid + COMPARABLE * is_comparable + FIRST_TOKEN * ~np.isnan(ttft_us)
    tokens = output_tokens - numbers[:, COLUMN["reasoning_tokens"]] - first_tokens
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        begins_later = np.abs(e2e_us - ttfat_us - tokens / speed * 1e6) < _SAME_US
    has_speed = (outcome == _OK) & is_valid & (speed > 0)
    return traits, np.where(has_speed, np.where(begins_later, ttfat_us, ttft_us), np.nan)


def _known(name: str, numbers: Integers, present: Flags, rates: Reals, rated: Flags) -> Reals:
    if name in RATES:
        return np.where(rated[:, RATES.index(name)], rates[:, RATES.index(name)], np.nan)
    return np.where(present[:, COLUMN[name]], numbers[:, COLUMN[name]], np.nan)
