"""Records of the probes of a batch, made of its columns. The law: they are those of the statement `probe_records`."""

import numpy as np

from isochrone_collector.analysis.probe_records import FIRST_TOKEN, OUTCOME_BIT, OUTCOMES, PUNCTUAL, RECORD, Records
from isochrone_collector.ingest.probe_counts import values_are_valid
from isochrone_collector.ingest.sample_columns import COLUMN, RATES, SampleColumns
from isochrone_collector.store.probe_queries import MAX_LATE_US
from isochrone_wire.model import Outcome

_NAMES = (
    "ttft_us",
    "timeout_us",
    "rtt_us",
    "first_chunk_tokens",
    "ttfat_us",
    "e2e_us",
    "output_tokens",
)
_COLUMNS = [COLUMN[name] for name in _NAMES]
_SPEED = RATES.index("tokens_per_second")
_OK = OUTCOMES.index(Outcome.OK)
_SAME_US = 1000


def probe_records(columns: SampleColumns, vantage_id: int) -> Records:
    """Return a record for each probe of a vantage; all of them must be valid."""
    numbers, present = columns.numbers, columns.present[:, _COLUMNS]
    values = np.where(present, numbers[:, _COLUMNS], np.nan)
    ttft_us, timeout_us, rtt_us, first_tokens, ttfat_us, e2e_us, output_tokens = values.T
    speed = np.where(columns.rated[:, _SPEED], columns.rates[:, _SPEED], np.nan)
    valid, outcome = values_are_valid(numbers), numbers[:, COLUMN["outcome"]]
    # As `ANSWER_FROM` in `store.probe_queries`; absent reasoning tokens are 0.
    tokens = output_tokens - numbers[:, COLUMN["reasoning_tokens"]] - first_tokens
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        begins_later = np.abs(e2e_us - ttfat_us - tokens / speed * 1e6) < _SAME_US
    is_answer = (outcome == _OK) & valid & (speed > 0)
    began = present[:, _NAMES.index("ttft_us")]
    punctual = numbers[:, COLUMN["late_us"]] <= MAX_LATE_US
    records = np.empty(len(columns), RECORD)
    records["vantage_id"] = vantage_id
    records["target_id"] = numbers[:, COLUMN["target_id"]]
    records["round_at"] = numbers[:, COLUMN["round_at"]]
    records["traits"] = (outcome << OUTCOME_BIT) + FIRST_TOKEN * began + PUNCTUAL * punctual + valid
    records["ttft_us"] = np.where(began, ttft_us, timeout_us)
    records["tokens_per_second"] = speed
    records["rtt_us"] = rtt_us
    records["answer_from_us"] = np.where(is_answer, np.where(begins_later, ttfat_us, ttft_us), np.nan)
    records["first_chunk_tokens"] = first_tokens
    return records
