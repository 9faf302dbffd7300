"""Records of probes: what drift detection, incident detection and route tables need of each new sample. Pure.

Ingest makes them of the columns of a push, and the statement `probe_records` of stored rows, with the same bits.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.probes import Flags
from isochrone_wire.model import Outcome

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

VALID, PUNCTUAL, FIRST_TOKEN, OUTCOME_BIT = 1, 2, 4, 3
"""The values are those of the model; the probe began in time to be compared with its round; it has a first token."""

OUTCOMES = tuple(Outcome)

# numpy moves the fields of a structure one by one, and keeps Python's lock meanwhile.
_BLOCK = np.dtype((np.void, RECORD.itemsize))

Records = NDArray[np.void]
Traits = NDArray[np.int16]


def by_outcome(value_of: Callable[[Outcome], Any]) -> NDArray[Any]:
    """Return a lookup table for `outcomes`. An outcome of a later version counts as an HTTP error."""
    return np.array([value_of(outcome) for outcome in (*OUTCOMES, Outcome.HTTP_ERROR)])


def outcomes(traits: Traits) -> Traits:
    """Return the place of each outcome in a table of `by_outcome`."""
    return np.asarray(traits >> OUTCOME_BIT)


def has(traits: Traits, flag: int) -> Flags:
    """Return whether each probe has a flag."""
    return np.asarray(traits & flag != 0)


def joined(parts: Iterable[Records]) -> Records:
    """Return the probes of all parts."""
    return np.concatenate([np.empty(0, np.uint8), *(part.view(np.uint8) for part in parts)]).view(RECORD)


def selected(records: Records, is_chosen: Flags) -> Records:
    """Return the probes with a flag."""
    return records.view(_BLOCK)[is_chosen].view(RECORD)
