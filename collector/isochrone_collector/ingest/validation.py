"""Validation of pushes: every sample is accepted as fresh, set aside as late, or rejected with a named reason.

Fast validation accepts nearly all samples of a push at once; only those that fail it are decoded and checked one by
one. A sample that passes has no `rejection_reason`, and this version can decode it; one that fails may still be valid.

The laws:

1. fresh + late + rejected = samples pushed.
2. A reason starts with its name, `out_of_bounds: ttft_us = -5 (0 to 86400000000)`, so that reasons can be counted.
3. Every accepted sample fits the columns of its table: the database never has to refuse a row.

A batch that is invalid as a whole is a `BadRequest`. Heartbeats are cut to what their columns can hold, because an
invalid value must not fail the samples of the same push.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite
from operator import attrgetter

import numpy as np
from pyarrow import compute

from isochrone_collector.analysis.stats.arrays import Flags, Integers
from isochrone_collector.errors import BadRequest, ClockSkew
from isochrone_collector.ingest.sample_columns import COLUMN, ENUMS, LIMIT, NUMBERS, RATES, TEXTS, SampleColumns
from isochrone_wire import durations
from isochrone_wire.answers import Window
from isochrone_wire.durations import MAX_INSTANT_AT
from isochrone_wire.model import DAY_US, BatchRange, Heartbeat, Rejection, Sample, Spend, Vantage

# Of the name, the region and the agent version of a vantage.
MAX_VANTAGE_CHARS = 100
# A clock this far off leaves the round unknown; a smaller error makes it late.
MAX_DISTANCE_US = 400 * DAY_US
MAX_COUNT = 2**31 - 1
MAX_INT64 = 2**63 - 1
# The beginning of the year 2025: a machine whose clock is earlier has not set it since it booted.
MIN_INSTANT_AT = 1_735_689_600_000_000

_MEASURED_FIELDS = {field.name for field in fields(Sample)}
_DURATIONS = {name for name in _MEASURED_FIELDS if name.endswith("_us")}
_COUNTS = (_MEASURED_FIELDS & {"chunks", "output_chars", "frames_unknown", "stalls", "retransmits", "quality"}) | {
    name for name in _MEASURED_FIELDS if name.endswith("_tokens")
}
BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(sorted(_DURATIONS), (0, DAY_US)),
    **dict.fromkeys(sorted(_COUNTS), (0, MAX_COUNT)),
    "late_us": (-DAY_US, DAY_US),
    "clock_offset_us": (-MAX_DISTANCE_US, MAX_DISTANCE_US),
    "http_status": (100, 999),
    # A token takes a day or so at most, like every duration.
    "tokens_per_second": (1e-5, 10**6),
    "cost_usd": (0, 10**6),
}
"""Lowest and highest value of each quantity of a sample."""

LENGTHS: Mapping[str, int] = {"remote_address": 100, "edge": 200, "request_id": 200, "error": 500}
"""Maximum number of characters of each text of a sample."""

LIMIT_BOUNDS: Mapping[str, tuple[float, float]] = {
    "limit_requests": (0, MAX_INT64),
    "remaining_requests": (0, MAX_INT64),
    "reset_requests_us": (0, MAX_DISTANCE_US),
    "limit_tokens": (0, MAX_INT64),
    "remaining_tokens": (0, MAX_INT64),
    "reset_tokens_us": (0, MAX_DISTANCE_US),
    "retry_after_us": (0, MAX_DISTANCE_US),
}
"""Lowest and highest value of each quantity of a `RateLimit`."""


def is_name(text: str) -> bool:
    """Return whether a text is a valid name of a vantage, a region, a provider or a reason."""
    return 0 < len(text) <= MAX_VANTAGE_CHARS and text.isprintable()


_INT64 = np.iinfo(np.int64)
_COLUMN_BOUNDS = {
    **BOUNDS,
    **{LIMIT + name: bounds for name, bounds in LIMIT_BOUNDS.items()},
    **{name: (0, len(members) - 1) for name, members in ENUMS.items()},
}
_NUMBER_BOUNDS = [_COLUMN_BOUNDS.get(name, (_INT64.min, _INT64.max)) for name in NUMBERS]
_LOWEST = np.array([low for low, _ in _NUMBER_BOUNDS], np.int64)
_HIGHEST = np.array([high for _, high in _NUMBER_BOUNDS], np.int64)
_LOWEST_RATE, _HIGHEST_RATE = (np.array([BOUNDS[name][end] for name in RATES]) for end in (0, 1))
_LONGEST = np.array([LENGTHS[name] for name in TEXTS])
_INSTANTS = [COLUMN["round_at"], COLUMN["dispatched_at"]]


def fails_fast_validation(columns: SampleColumns, *, now_at: int) -> Flags:
    """Return a flag per sample. `now_at` is the collector's clock, in microseconds since the epoch."""
    beyond = ((columns.numbers < _LOWEST) | (columns.numbers > _HIGHEST)) & columns.present
    # NaN compares false with both bounds, so test for "not within" instead of "beyond".
    within = (columns.rates >= _LOWEST_RATE) & (columns.rates <= _HIGHEST_RATE)
    instants = columns.numbers[:, _INSTANTS]
    absurd = (instants < now_at - MAX_DISTANCE_US) | (instants > now_at + MAX_DISTANCE_US)
    # A text has at least as many bytes as characters.
    bad = _in_any(columns.sizes > _LONGEST)
    for column in columns.texts:
        if b"\0" in column.buffers()[2].to_pybytes():
            bad |= compute.match_substring(column, "\0").fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return _in_any(beyond) | _in_any(~within & columns.rated) | _in_any(absurd) | bad


def _in_any(columns: Flags) -> Flags:
    flags: Flags = np.logical_or.reduce(columns, axis=1)
    return flags


MAX_SAMPLES = 10_000
MAX_EPOCHS = 32
MAX_KEPT_RANGES = 64
MAX_CLOCK_DISTANCE_US = DAY_US
"""Samples of an agent are refused while its clock is further from the collector's, in microseconds."""

_numbers = attrgetter(*BOUNDS)
_texts = attrgetter(*LENGTHS)
_limits = attrgetter(*LIMIT_BOUNDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushBatch:
    """A push that arrived at `received_at` of the collector's clock; its samples are not decoded yet.

    `content` is the whole request as protobuf bytes. `hash_samples` returns the hash of the encoded samples, which are
    the same in every retry. `decode_columns` decodes all samples. `decode_sample` decodes the sample at an index, or
    returns the reason why this version cannot. `sent_at` is the wall clock of the agent. For `kept`,
    see `isochrone_wire.model.Batch`.
    """

    vantage: Vantage
    epoch: int
    seq: int
    sample_count: int
    content: bytes
    hash_samples: Callable[[], bytes]
    decode_columns: Callable[[], SampleColumns]
    decode_sample: Callable[[int], Sample | str]
    heartbeat: Heartbeat
    received_at: int
    sent_at: int = 0
    epoch_history: tuple[int, ...] = ()
    kept: tuple[BatchRange, ...] = ()

    @property
    def is_heartbeat(self) -> bool:
        """True for a push that carries a heartbeat and no samples."""
        return self.seq == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """The outcome of validation, by index of the sample in its batch; late samples with their reason."""

    fresh: Integers
    late: tuple[tuple[int, str], ...]
    rejections: tuple[Rejection, ...]


def check_batch(batch: PushBatch) -> None:
    """Raise `BadRequest` when the batch is invalid as a whole."""
    for is_fault, message in _faults_of(batch):
        if is_fault:
            raise BadRequest(message)


def check_clock(batch: PushBatch) -> None:
    """Raise `ClockSkew` when the clock of the agent is so far away that all its samples would be dated wrong."""
    ahead_us = batch.sent_at - batch.received_at
    if batch.sent_at and abs(ahead_us) > MAX_CLOCK_DISTANCE_US:
        direction = "ahead of" if ahead_us > 0 else "behind"
        raise ClockSkew(
            f"the clock of {batch.vantage.name!r} is {durations.rough(abs(ahead_us))} {direction} the "
            "collector's: correct the wrong one; until then the samples stay in the spool"
        )


def _faults_of(batch: PushBatch) -> Iterator[tuple[bool, str]]:
    samples = batch.sample_count
    yield not is_name(batch.vantage.name), f"vantage.name must be 1 to {MAX_VANTAGE_CHARS} printable characters"
    yield not is_name(batch.vantage.region), f"vantage.region must be 1 to {MAX_VANTAGE_CHARS} printable characters"
    yield batch.seq < 0, f"seq is {batch.seq}: it must be 1 or more for a sealed batch, 0 for a heartbeat"
    yield batch.seq == 0 and samples > 0, f"a heartbeat (seq 0) must not carry samples, and this one carries {samples}"
    yield batch.seq > 0 and samples == 0, f"batch {batch.seq} carries no samples"
    yield batch.seq > 0 and batch.epoch == 0, "epoch is not set"
    yield samples > MAX_SAMPLES, f"the batch has {samples} samples, and the limit is {MAX_SAMPLES}: split it"


def validate(batch: PushBatch, columns: SampleColumns, *, window: Window) -> Validated:
    """Check every sample of a batch, decoded as `columns`. `window` is the span of rounds that have a partition."""
    fails = fails_fast_validation(columns, now_at=batch.received_at)
    rejections = tuple(_rejections(batch, np.flatnonzero(fails).tolist()))
    is_accepted = np.ones(len(columns), np.bool_)
    is_accepted[[rejection.index for rejection in rejections]] = False
    rounds = columns.numbers[:, COLUMN["round_at"]]
    on_time = (rounds >= window.from_at) & (rounds < window.until_at)
    late = np.flatnonzero(is_accepted & ~on_time).tolist()
    return Validated(
        fresh=np.flatnonzero(is_accepted & on_time),
        late=tuple((index, late_reason(int(rounds[index]), window, now_at=batch.received_at) or "") for index in late),
        rejections=rejections,
    )


def _rejections(batch: PushBatch, places: Iterable[int]) -> Iterator[Rejection]:
    for index in places:
        sample = batch.decode_sample(index)
        if isinstance(sample, str):
            yield Rejection(index=index, reason=f"unreadable: {sample}")
        elif reason := rejection_reason(sample, now_at=batch.received_at):
            yield Rejection(index=index, reason=reason)


def rejection_reason(sample: Sample, *, now_at: int) -> str | None:
    """Return the named reason why a sample is rejected, or `None`."""
    for field, instant in (("round_at", sample.round_at), ("dispatched_at", sample.dispatched_at)):
        if abs(instant - now_at) > MAX_DISTANCE_US:
            return f"absurd_time: {field} = {instant} is more than {MAX_DISTANCE_US // DAY_US} days from now"
    limits = sample.ratelimit
    bad_limit = _bad_number(LIMIT_BOUNDS, _limits(limits)) if limits else None
    return _bad_number(BOUNDS, _numbers(sample)) or _bad_text(sample) or bad_limit


def late_reason(round_at: int, window: Window, *, now_at: int) -> str | None:
    """Return why a round is set aside, or `None`. `no_partition`: that of a current round could not be created."""
    if window.from_at <= round_at < window.until_at:
        return None
    if round_at > now_at:
        return "in_the_future"
    return "too_old" if round_at < window.from_at < window.until_at else "no_partition"


def _bad_number(bounds: Mapping[str, tuple[float, float]], values: Iterable[float | None]) -> str | None:
    for (field, (low, high)), value in zip(bounds.items(), values, strict=True):
        if value is not None and not low <= value <= high:
            name = "out_of_bounds" if isfinite(value) else "not_finite"
            return f"{name}: {field} = {value} ({low} to {high})"
    return None


def _bad_text(sample: Sample) -> str | None:
    for (field, longest), text in zip(LENGTHS.items(), _texts(sample), strict=True):
        if text is not None and len(text) > longest:
            return f"too_long: {field} has {len(text)} characters, at most {longest}"
        if text is not None and "\0" in text:
            return f"control_character: {field} holds a NUL"
    return None


_MAX_REASON_CHARS = 500
_MAX_DROP_REASONS = 50
_MAX_SPEND_LINES = 100
_MAX_USD = 1e9
_HEARTBEAT_COUNTS = ("plan_version", "spool_depth", "finished", "stored", "quarantined", "rounds_missed")


def trimmed(heartbeat: Heartbeat) -> Heartbeat:
    """Return a heartbeat that fits its columns."""
    return replace(
        heartbeat,
        **{name: _count(getattr(heartbeat, name)) for name in _HEARTBEAT_COUNTS},  # type: ignore[arg-type]  # all counts
        agent_version=_printable(heartbeat.agent_version)[:MAX_VANTAGE_CHARS],
        spool_oldest_at=heartbeat.spool_oldest_at if _is_instant(heartbeat.spool_oldest_at) else 0,
        dropped={name: _count(n) for name, n in list(heartbeat.dropped.items())[:_MAX_DROP_REASONS] if is_name(name)},
        next_heartbeat_us=_duration(heartbeat.next_heartbeat_us) or 0,
        clock_offset_us=None
        if heartbeat.clock_offset_us is None
        else min(max(heartbeat.clock_offset_us, -MAX_DISTANCE_US), MAX_DISTANCE_US),
        clock_uncertainty_us=_duration(heartbeat.clock_uncertainty_us),
        loop_lag_us=_duration(heartbeat.loop_lag_us),
        refused_plan_version=None if heartbeat.refused_plan_version is None else _count(heartbeat.refused_plan_version),
        refused_plan_reason=_sentence(heartbeat.refused_plan_reason),
        missing_keys=_sentence(heartbeat.missing_keys),
        refused_targets=_sentence(heartbeat.refused_targets),
        spend=tuple(_spend(heartbeat.spend)),
    )


def _spend(lines: Iterable[Spend]) -> Iterable[Spend]:
    for line in list(lines)[:_MAX_SPEND_LINES]:
        if is_name(line.provider) and _is_instant(line.day_at):
            usd = min(max(line.usd, 0.0), _MAX_USD) if isfinite(line.usd) else 0.0
            yield replace(line, usd=usd, tokens=_count(line.tokens), requests=_count(line.requests))


def _count(number: int) -> int:
    return min(max(number, 0), MAX_INT64)


def _duration(us: int | None) -> int | None:
    return None if us is None else min(_count(us), MAX_DISTANCE_US)


def _is_instant(at: int) -> bool:
    return 0 <= at <= MAX_INSTANT_AT


def _printable(text: str) -> str:
    return "".join(filter(str.isprintable, text))


def _sentence(text: str | None) -> str | None:
    return None if text is None else _printable(text)[:_MAX_REASON_CHARS]
