"""A synthetic month of a fleet, as the bytes of binary COPY: many regions and targets, one probe of each in every
round.

The model: each target has its own speed and location; a region is far from some locations and near to others; a
target's load follows a first-order autoregressive process over the rounds (the same for all vantages) and the time of
day; each probe varies independently (log-normal). Some probes fail, some time out, some are throttled.

Rows of one outcome have equal length, because every text has a fixed length, so that numpy creates them all at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.probe_records import COMPARABLE, FIRST_TOKEN, OUTCOME_BIT, VALID
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_collector.store.postgres.values import POSTGRES_EPOCH_AT
from isochrone_collector.store.samples import COLUMNS
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Outcome

EVERY_US = 12 * MINUTE_US
TIMEOUT_US = 60 * SECOND_US
# Delay of a push after its rounds.
PUSHED_AFTER_US = 20 * SECOND_US
PERSISTENCE, NOISE, SCATTER, DAYTIME = 0.85, 0.12, 0.25, 0.15
HTTP_ERROR, TIMED_OUT, THROTTLED, RATE_LIMITED = 0.005, 0.003, 0.005, 0.5


_TYPES = {"int8": ">i8", "int4": ">i4", "float8": ">f8", "timestamptz": ">i8"}
_EVERY = (
    "target_id round_at vantage_id epoch seq idx region received_at outcome dispatched_at late_us chunks output_chars"
    " frames_unknown"
    " quality dns_us tcp_us tls_us rtt_us rtt_min_us retransmits remote_address edge loop_lag_us clock_offset_us"
    " clock_uncertainty_us traits"
)
_ANSWER = (
    " ttfb_us ttft_us ttfat_us e2e_us tokens_per_second chunk_gap_p50_us chunk_gap_p99_us chunk_gap_max_us stalls"
    " prompt_tokens output_tokens reasoning_tokens cached_tokens first_chunk_tokens token_source provider_us request_id"
    " cost_usd http_status answer_from_us"
)
_LIMITS = (
    " ratelimit_limit_requests ratelimit_remaining_requests ratelimit_reset_requests_us ratelimit_limit_tokens"
    " ratelimit_remaining_tokens ratelimit_reset_tokens_us"
)
# Kind → its outcome, and the columns that are not NULL.
_KINDS: dict[str, tuple[str, str]] = {
    "ok": ("ok", _EVERY + _ANSWER),
    "limited": ("ok", _EVERY + _ANSWER + _LIMITS),
    "http_error": ("http_error", _EVERY + " http_status error"),
    "timed_out": ("timed_out", _EVERY + " error timeout_us"),
    "throttled": ("throttled", _EVERY + " http_status ratelimit_retry_after_us"),
}
_KEYS = tuple(_KINDS)
_SHARES = (HTTP_ERROR, TIMED_OUT, THROTTLED)
_TEXTS = {
    "remote_address": b"203.0.113.117",
    "edge": b"8f2c1a7be09d4c55-SIN",
    "token_source": b"usage",
    "error": b"the server was busy and said so after a while",
}
_REQUEST_ID_BYTES = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A vantage and its region, whose name has the same number of bytes at every site."""

    vantage_id: int
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRows:
    """The rows of one round as the content of a COPY of `COLUMNS`; those of a site are one batch."""

    rows: int
    content: bytes
    seq: int
    from_at: int
    until_at: int


class Month:
    """The rounds of [from_at, until_at) in which `sites` probe `targets`, each target at its own phase."""

    def __init__(
        self, sites: Sequence[Site], targets: Sequence[int], *, from_at: int, until_at: int, every_us: int = EVERY_US
    ) -> None:
        self._sites = sites
        self._targets = np.array(targets, np.int64)
        self._rng = np.random.default_rng(7)
        self._phases = self._targets % every_us
        # The last round ends before `until_at` for every phase.
        self.rounds = range(from_at - from_at % every_us, until_at - every_us, every_us)
        self._rtt_us = self._rng.lognormal(np.log(60e3), 0.9, (len(sites), len(targets))).clip(800, 320e3)
        self._server_us = self._rng.lognormal(np.log(450e3), 0.5, len(targets))
        self._speed = self._rng.uniform(25, 180, len(targets))
        self._load = np.zeros(len(targets))
        shape = (len(sites), len(targets))
        self._vantage_ids = np.broadcast_to(np.array([[site.vantage_id] for site in sites], np.int64), shape).ravel()
        self._regions = np.repeat(np.array([site.region.encode() for site in sites]), len(targets))
        self._places = np.broadcast_to(np.arange(len(targets)), shape).ravel()

    def rounds_of_rows(self) -> Iterator[RoundRows]:
        for seq, round_at in enumerate(self.rounds, 1):
            yield self._round(seq, round_at)

    def _round(self, seq: int, round_at: int) -> RoundRows:
        values = self._values(seq, round_at + self._phases[self._places])
        kinds = self._draw(len(self._places))
        parts = [self._records(values, kinds == place, key) for place, key in enumerate(_KEYS)]
        span = {"from_at": round_at + int(self._phases.min()), "until_at": round_at + int(self._phases.max())}
        return RoundRows(rows=len(self._places), content=b"".join(parts), seq=seq, **span)

    def _draw(self, rows: int) -> Integers:
        """Return the index in `_KINDS` of each row."""
        plain = np.where(self._rng.random(rows) < RATE_LIMITED, 1, 0)
        failed = np.searchsorted(np.cumsum(_SHARES), self._rng.random(rows), side="right")
        return np.where(failed < len(_SHARES), 2 + failed, plain)

    def _values(self, seq: int, rounds: Integers) -> dict[str, NDArray[np.generic]]:
        """Return every column of every row of a round, for any outcome."""
        rows = len(self._places)
        server_us = self._waits(rounds)
        since_2000 = rounds - POSTGRES_EPOCH_AT
        rtt_us = self._rtt_us.ravel() * self._rng.lognormal(0, 0.04, rows)
        tokens = self._rng.integers(80, 200, rows)
        speed = self._speed[self._places] * self._rng.lognormal(0, 0.1, rows)
        ttft_us = server_us + rtt_us
        few = self._rng.integers(0, 20_000, rows)
        values: dict[str, NDArray[np.generic]] = {
            "target_id": self._targets[self._places],
            "round_at": since_2000,
            "vantage_id": self._vantage_ids,
            "epoch": np.full(rows, 1),
            "seq": np.full(rows, seq),
            "idx": self._places,
            "region": self._regions,
            "received_at": since_2000 + PUSHED_AFTER_US + few,
            "dispatched_at": since_2000 + few,
            "late_us": few,
            "dns_us": 500 + few,
            "tcp_us": rtt_us,
            "tls_us": 1.1 * rtt_us + 1_500,
            "rtt_us": rtt_us,
            "rtt_min_us": 0.98 * rtt_us,
            "ttfb_us": 0.95 * ttft_us,
            "ttft_us": ttft_us,
            "ttfat_us": ttft_us + 300,
            "answer_from_us": ttft_us + 300,
            "e2e_us": ttft_us + tokens / speed * 1e6,
            "tokens_per_second": speed,
            "provider_us": 0.9 * server_us,
            "chunk_gap_p50_us": 1e6 / speed,
            "chunk_gap_p99_us": 3e6 / speed,
            "chunk_gap_max_us": 8e6 / speed,
            "output_tokens": tokens,
            "chunks": tokens,
            "output_chars": 4 * tokens,
            "cost_usd": tokens * 1.1e-6,
            "request_id": np.frombuffer(
                self._rng.bytes(rows * _REQUEST_ID_BYTES // 2).hex().encode(), f"S{_REQUEST_ID_BYTES}"
            ),
            "http_status": np.full(rows, 200),
            "timeout_us": np.full(rows, TIMEOUT_US),
        }
        return values

    def _waits(self, rounds: Integers) -> Reals:
        """Return the server time to first token of each probe, in microseconds."""
        drift = self._rng.normal(0, NOISE, len(self._load))
        self._load = PERSISTENCE * self._load + np.sqrt(1 - PERSISTENCE**2) * drift
        daytime = DAYTIME * np.sin(2 * np.pi * (rounds % DAY_US) / DAY_US)
        usual = (self._server_us * np.exp(self._load))[self._places] * np.exp(daytime)
        waits: Reals = usual * self._rng.lognormal(0, SCATTER, len(self._places))
        return waits

    def _records(self, values: dict[str, NDArray[np.generic]], chosen: NDArray[np.bool_], key: str) -> bytes:
        word, named = _KINDS[key]
        known = frozenset(named.split())
        texts = _TEXTS | {"outcome": word.encode()}
        fields: list[tuple[str, str]] = [("count", ">i2")]
        for name, kind in COLUMNS.items():
            fields.append((f"{name} length", ">i4"))
            if name in known:
                fields.append((name, _TYPES[kind] if kind in _TYPES else f"S{_length(name, values, texts)}"))
        records = np.empty(np.count_nonzero(chosen), np.dtype(fields))
        records["count"] = len(COLUMNS)
        for name in COLUMNS:
            records[f"{name} length"] = records.dtype[name].itemsize if name in known else -1
            if name in known:
                records[name] = values[name][chosen] if name in values else texts.get(name, 0)
        first_token = FIRST_TOKEN if "ttft_us" in known else 0
        records["traits"] = (list(Outcome).index(Outcome(word)) << OUTCOME_BIT) + VALID + COMPARABLE + first_token
        return records.tobytes()


def _length(name: str, values: dict[str, NDArray[np.generic]], texts: dict[str, bytes]) -> int:
    return values[name].dtype.itemsize if name in values else len(texts[name])
