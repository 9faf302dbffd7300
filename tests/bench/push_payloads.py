"""Payloads of the ingest benchmark: realistic samples in batches, as request bytes and as table rows."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from isochrone_collector.store.batches import Origin
from isochrone_wire import codec
from isochrone_wire.model import (
    MINUTE_US,
    Batch,
    Heartbeat,
    Outcome,
    Quality,
    RateLimit,
    Sample,
    TokenSource,
    Vantage,
)
from testdata.samples import Row, sample_row

BATCH_SAMPLES = 500
BODIES = 20
_INSTANT = 8
FAILED_SHARE, LIMITED_SHARE = 0.08, 0.5
# Samples are of the last minute, except after an outage; each target has its own phase within it.
EVERY_US = MINUTE_US
HEARTBEAT = Heartbeat(agent_version="bench", plan_version=1, next_heartbeat_us=30_000_000, finished=1)


def bodies(targets: Sequence[int], *, now_at: int, seed: int, samples: int = BATCH_SAMPLES) -> list[tuple[Sample, ...]]:
    """Return lists of samples, one per part of the minute, each with targets whose rounds start in that part."""
    rng = random.Random(seed)
    phased = sorted(targets, key=lambda target_id: target_id % EVERY_US)
    parts = [
        phased[part * len(phased) // BODIES : (part + 1) * len(phased) // BODIES] or phased for part in range(BODIES)
    ]
    return [tuple(_sample(rng, rng.choice(part), now_at) for _ in range(samples)) for part in parts]


def current_body(now_at: int) -> int:
    """Return the index of the list that an agent without a backlog delivers at this instant."""
    return now_at % EVERY_US * BODIES // EVERY_US


def shift_us(made_at: int, now_at: int) -> int:
    """Return the shift, in whole minutes, from the rounds at `made_at` to those at `now_at`."""
    return (now_at // EVERY_US - made_at // EVERY_US) * EVERY_US


class PushBody:
    """The part of a push that does not depend on its number; concatenated protobuf messages are merged.

    The instants of its samples, which are encoded as eight bytes each, can be shifted.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        batch = Batch(vantage=Vantage(name="", region=""), epoch=0, seq=0, samples=tuple(samples))
        content = codec.encode(batch).SerializeToString()
        self._content = np.frombuffer(content, np.uint8).copy()
        self._instants = np.array([at for sample in samples for at in (sample.round_at, sample.dispatched_at)])
        self._places = np.fromiter(_places(content, self._instants.tolist()), np.int64)[:, None] + np.arange(_INSTANT)

    def shifted(self, by_us: int) -> bytes:
        """Return the bytes with every instant `by_us` later."""
        self._content[self._places] = (self._instants + by_us).astype("<i8").view(np.uint8).reshape(-1, _INSTANT)
        return self._content.tobytes()


def _places(content: bytes, instants: Sequence[int]) -> Iterator[int]:
    """Yield the position of each of these numbers, in order."""
    place = 0
    for at in instants:
        place = content.index(at.to_bytes(_INSTANT, "little"), place)
        yield place
        place += _INSTANT


def request_head(vantage: Vantage, *, epoch: int, seq: int) -> bytes:
    """Return the remaining part of the push."""
    return bytes(codec.encode(Batch(vantage=vantage, epoch=epoch, seq=seq, heartbeat=HEARTBEAT)).SerializeToString())


def rows(samples: Sequence[Sample], origin: Origin, seq: int, *, by_us: int = 0) -> list[Row]:
    """Return the samples as rows of `sample`, in column order, with every instant `by_us` later."""
    return [
        sample_row(_shifted(sample, by_us), index, replace(origin, seq=seq)) for index, sample in enumerate(samples)
    ]


def _shifted(sample: Sample, by_us: int) -> Sample:
    return replace(sample, round_at=sample.round_at + by_us, dispatched_at=sample.dispatched_at + by_us)


def _sample(rng: random.Random, target_id: int, now_at: int) -> Sample:
    round_at = now_at // EVERY_US * EVERY_US + target_id % EVERY_US
    rtt_us = rng.randrange(1_000, 250_000)
    common = Sample(
        target_id=target_id,
        round_at=round_at,
        dispatched_at=round_at + rng.randrange(20_000),
        outcome=Outcome.OK,
        late_us=rng.randrange(20_000),
        dns_us=rng.randrange(500, 30_000),
        tcp_us=rtt_us,
        tls_us=2 * rtt_us,
        rtt_us=rtt_us,
        rtt_min_us=rtt_us - 500,
        retransmits=0,
        remote_address=f"203.0.113.{rng.randrange(256)}",
        edge=f"{rng.getrandbits(64):016x}-SIN",
        loop_lag_us=rng.randrange(2_000),
        clock_offset_us=rng.randrange(-3_000, 3_000),
        clock_uncertainty_us=rng.randrange(100_000),
    )
    return _failed(common) if rng.random() < FAILED_SHARE else _answered(common, rng)


def _failed(common: Sample) -> Sample:
    return replace(common, outcome=Outcome.TIMED_OUT, error="no first token within 60 s", timeout_us=60_000_000)


def _answered(common: Sample, rng: random.Random) -> Sample:
    ttft_us, tokens = rng.randrange(150_000, 3_000_000), rng.randrange(20, 400)
    return replace(
        common,
        ttfb_us=ttft_us - 40_000,
        ttft_us=ttft_us,
        ttfat_us=ttft_us + 300,
        e2e_us=ttft_us + 12_000 * tokens,
        tokens_per_second=rng.uniform(20, 200),
        chunk_gap_p50_us=12_000,
        chunk_gap_p99_us=30_000,
        chunk_gap_max_us=90_000,
        stalls=0,
        prompt_tokens=13,
        output_tokens=tokens,
        reasoning_tokens=0,
        cached_tokens=0,
        first_chunk_tokens=1,
        chunks=tokens,
        output_chars=4 * tokens,
        token_source=TokenSource.USAGE,
        provider_us=ttft_us - 100_000,
        request_id=f"req_{rng.getrandbits(96):024x}",
        cost_usd=tokens * 1.1e-6,
        http_status=200,
        quality=Quality.CLEAN,
        ratelimit=_limits(rng) if rng.random() < LIMITED_SHARE else None,
    )


def _limits(rng: random.Random) -> RateLimit:
    return RateLimit(
        limit_requests=10_000,
        remaining_requests=rng.randrange(10_000),
        reset_requests_us=rng.randrange(60_000_000),
        limit_tokens=2_000_000,
        remaining_tokens=rng.randrange(2_000_000),
        reset_tokens_us=rng.randrange(60_000_000),
    )
