"""What a client says of its requests, and how wrong it is: claims against the truth, summed up as a row."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.truth import Truth, true_tokens_per_second, true_ttft_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a client reports of one request, with the id that finds the truth of it."""

    request_id: str
    ttft_us: float
    tokens_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One client at one load: errors of TTFT in microseconds, of tokens/s in per cent; CPU in milliseconds per probe
    and the share flagged `lagged`, where they are known.
    """

    client: str
    in_flight: int
    probes: int
    ttft_error_p50_us: float
    ttft_error_p99_us: float
    tps_error_pct: float
    cpu_ms: float | None = None
    lagged: float | None = None


def compare(
    client: str,
    claims: Sequence[Claim],
    truth: Truth,
    *,
    in_flight: int,
    cpu_ms: float | None = None,
    lagged: float | None = None,
) -> Row:
    """The errors of these claims, request by request."""
    pairs = [(claim, truth[claim.request_id]) for claim in claims]
    ttft = [abs(claim.ttft_us - true_ttft_us(record)) for claim, record in pairs]
    tps = [abs(claim.tokens_per_second / true_tokens_per_second(record) - 1) * 100 for claim, record in pairs]
    return Row(
        client=client,
        in_flight=in_flight,
        probes=len(claims),
        ttft_error_p50_us=statistics.median(ttft),
        ttft_error_p99_us=percentile(ttft, 0.99),
        tps_error_pct=statistics.median(tps),
        cpu_ms=cpu_ms,
        lagged=lagged,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
