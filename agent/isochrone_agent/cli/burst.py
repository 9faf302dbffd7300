"""Throughput of a burst: many concurrent streams, measured as published batch throughput figures are. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from isochrone_wire.model import SECOND_US, Outcome, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """The result of a burst. `tokens_per_second` is the total of all streams: the output tokens of the successful ones
    divided by the time from the first request sent to the last token. `slowest`, `median` and `fastest` refer to single
    streams.
    """

    streams: int
    succeeded: int
    tokens_per_second: float | None
    slowest_tokens_per_second: float | None
    median_tokens_per_second: float | None
    fastest_tokens_per_second: float | None
    ttft_median_us: float | None
    ttft_max_us: int | None


def summarise(samples: Sequence[Sample]) -> Burst:
    """Summarise one burst; a figure is `None` if no stream succeeded or none has a speed."""
    succeeded_samples = [sample for sample in samples if sample.outcome is Outcome.OK]
    speeds = sorted(sample.tokens_per_second for sample in succeeded_samples if sample.tokens_per_second is not None)
    firsts = [sample.ttft_us for sample in succeeded_samples if sample.ttft_us is not None]
    return Burst(
        streams=len(samples),
        succeeded=len(succeeded_samples),
        tokens_per_second=_throughput(succeeded_samples),
        slowest_tokens_per_second=speeds[0] if speeds else None,
        median_tokens_per_second=median(speeds) if speeds else None,
        fastest_tokens_per_second=speeds[-1] if speeds else None,
        ttft_median_us=median(firsts) if firsts else None,
        ttft_max_us=max(firsts, default=None),
    )


def _throughput(succeeded_samples: Sequence[Sample]) -> float | None:
    if not succeeded_samples:
        return None
    # All times are from one machine's wall clock: the only place where wall times are subtracted, to the millisecond.
    sent_at = [sample.dispatched_at + (sample.connect_us or 0) for sample in succeeded_samples]
    end_at = [at + (sample.e2e_us or 0) for at, sample in zip(sent_at, succeeded_samples, strict=True)]
    span_us = max(end_at) - min(sent_at)
    tokens = sum(sample.output_tokens or 0 for sample in succeeded_samples)
    return tokens * SECOND_US / span_us if span_us > 0 else None
