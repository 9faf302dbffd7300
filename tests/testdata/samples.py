"""Realistic samples of a working agent, and their rows of the table `sample`, made one by one."""

from dataclasses import asdict
from random import Random
from typing import Any

from isochrone_collector.store.batches import Origin
from isochrone_collector.store.samples import COLUMNS
from isochrone_common.probe_metrics import is_valid
from isochrone_wire.model import SECOND_US, Outcome, RateLimit, Sample, TokenSource

_TARGETS = 20
_START_AT = 1_795_000_000_000_000


def realistic_sample(number: int) -> Sample:
    """Return the sample of the second `number`, always the same."""
    rng = Random(number)
    ttft_us = int(rng.lognormvariate(13, 0.3))
    tokens = rng.randint(150, 200)
    round_at = _START_AT + number * 1_000_000
    late_us = rng.randint(300, 4000)
    return Sample(
        target_id=Random(number % _TARGETS).getrandbits(62),
        round_at=round_at,
        outcome=Outcome.OK,
        dispatched_at=round_at + late_us,
        late_us=late_us,
        dns_us=rng.randint(200, 30_000),
        tcp_us=rng.randint(1000, 220_000),
        tls_us=rng.randint(2000, 400_000),
        ttfb_us=ttft_us - rng.randint(0, 1000),
        ttft_us=ttft_us,
        ttfat_us=ttft_us + rng.randint(0, 100_000),
        e2e_us=ttft_us + rng.randint(10**6, 5 * 10**6),
        tokens_per_second=rng.uniform(30, 200),
        chunk_gap_p50_us=rng.randint(5000, 20_000),
        chunk_gap_p99_us=rng.randint(20_000, 90_000),
        chunk_gap_max_us=rng.randint(90_000, 300_000),
        stalls=0,
        prompt_tokens=12,
        output_tokens=tokens,
        reasoning_tokens=0,
        cached_tokens=0,
        first_chunk_tokens=1,
        chunks=tokens,
        output_chars=rng.randint(600, 900),
        token_source=TokenSource.USAGE,
        rtt_us=rng.randint(1000, 220_000),
        rtt_min_us=rng.randint(1000, 220_000),
        retransmits=0,
        provider_us=rng.randint(10_000, 300_000),
        remote_address=f"104.18.{rng.randint(0, 40)}.{rng.randint(1, 254)}:443",
        edge="SIN",
        request_id=f"req_{rng.randbytes(16).hex()}",
        ratelimit=RateLimit(
            limit_requests=10_000,
            remaining_requests=rng.randint(9000, 9999),
            reset_requests_us=rng.randint(1, 10**7),
            limit_tokens=2_000_000,
            remaining_tokens=rng.randint(1_900_000, 1_999_999),
            reset_tokens_us=rng.randint(1, 10**6),
        ),
        loop_lag_us=rng.randint(50, 900),
        clock_offset_us=rng.randint(-3000, -2900),
        clock_uncertainty_us=rng.randint(15_000, 15_200),
        cost_usd=tokens * 6e-7,
        http_status=200,
    )


Row = tuple[Any, ...]


def sample_row(sample: Sample, idx: int, origin: Origin) -> Row:
    """Return a sample as a row of `sample`, in the order of `COLUMNS`. `idx` is its index in the batch."""
    limits = {f"ratelimit_{name}": value for name, value in asdict(sample.ratelimit or RateLimit()).items()}
    derived = {"traits": _traits(sample), "answer_from_us": _answer_from_us(sample)}
    values = {**asdict(sample), **limits, **asdict(origin), **derived, "idx": idx}
    return tuple(values[name] for name in COLUMNS)


def _traits(sample: Sample) -> int:
    """Return the bits of the column `traits`."""
    is_comparable = sample.late_us <= 6 * SECOND_US and (sample.loop_lag_us or 0) <= 20_000
    has_token = sample.ttft_us is not None
    return list(Outcome).index(sample.outcome) * 8 + has_token * 4 + is_comparable * 2 + is_valid(sample)


def _answer_from_us(sample: Sample) -> int | None:
    """Return the time to the chunk at which the measurement of the speed began, in microseconds."""
    speed, first = sample.tokens_per_second, sample.first_chunk_tokens
    if sample.outcome is not Outcome.OK or not is_valid(sample) or not speed:
        return None
    if None not in (sample.e2e_us, sample.ttfat_us, sample.output_tokens, first):
        tokens = (sample.output_tokens or 0) - (sample.reasoning_tokens or 0) - (first or 0)
        if abs((sample.e2e_us or 0) - (sample.ttfat_us or 0) - tokens / speed * 1e6) < 1000:
            return sample.ttfat_us
    return sample.ttft_us
