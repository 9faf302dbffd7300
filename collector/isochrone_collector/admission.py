"""What may come in: every sample of a push is admitted, set aside as late, or rejected with a named reason.

The laws:

1. fresh + late + rejected = samples pushed.
2. A reason starts with its name, `out_of_bounds: ttft_us = -5 (0 to 86400000000)`, so that reasons can be counted.
3. Whatever is admitted fits the columns it goes to: the database never has to refuse a row.

A batch that is broken as a whole is a `BadRequest`; vitals that are nonsense are trimmed, because no sample should be
lost over them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from operator import attrgetter

from isochrone_collector.errors import BadRequest
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, RateLimit, Rejection, Sample, Vantage, Vitals

MAX_SAMPLES = 10_000
MAX_NAME_CHARS = 100
# A clock this far off tells nothing about rounds; less is merely late.
MAX_DISTANCE_US = 400 * DAY_US

_MAX_COUNT = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_MAX_DROP_REASONS = 50
# The end of the year 9999, well inside what PostgreSQL's timestamptz holds.
_MAX_INSTANT_AT = 253_402_300_799_000_000

_MEASURED_FIELDS = {field.name for field in fields(Sample)}
_DURATIONS = {name for name in _MEASURED_FIELDS if name.endswith("_us")}
_COUNTS = (_MEASURED_FIELDS & {"chunks", "output_chars", "stalls", "retransmits", "quality"}) | {
    name for name in _MEASURED_FIELDS if name.endswith("_tokens")
}
_NUMBERS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(sorted(_DURATIONS), (0, DAY_US)),
    **dict.fromkeys(sorted(_COUNTS), (0, _MAX_COUNT)),
    "late_us": (-DAY_US, DAY_US),
    "clock_offset_us": (-MAX_DISTANCE_US, MAX_DISTANCE_US),
    "http_status": (100, 999),
    "tokens_per_second": (0, 1e6),
    "cost_usd": (0, 1e6),
}
_TEXTS: Mapping[str, int] = {"remote_address": 100, "edge": 200, "request_id": 200, "error": 500}
_LIMITS: Mapping[str, tuple[float, float]] = {
    "limit_requests": (0, _MAX_INT64),
    "remaining_requests": (0, _MAX_INT64),
    "reset_requests_us": (0, MAX_DISTANCE_US),
    "limit_tokens": (0, _MAX_INT64),
    "remaining_tokens": (0, _MAX_INT64),
    "reset_tokens_us": (0, MAX_DISTANCE_US),
    "retry_after_us": (0, MAX_DISTANCE_US),
}
_numbers = attrgetter(*_NUMBERS)
_texts = attrgetter(*_TEXTS)
_limits = attrgetter(*_LIMITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A push as it arrived. A sample that this version cannot read is the sentence that says why."""

    vantage: Vantage
    epoch: int
    seq: int
    samples: tuple[Sample | str, ...]
    vitals: Vitals

    @property
    def is_heartbeat(self) -> bool:
        """Whether it only says how the agent is."""
        return self.seq == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The samples of a parcel by where they go, each with its place in the parcel; late ones with the reason."""

    fresh: tuple[tuple[int, Sample], ...] = ()
    late: tuple[tuple[int, Sample, str], ...] = ()
    rejections: tuple[Rejection, ...] = ()


def check_parcel(parcel: Parcel) -> None:
    """Raise `BadRequest` when the parcel is broken as a whole."""
    for broken, message in _parcel_faults(parcel):
        if broken:
            raise BadRequest(message)


def _parcel_faults(parcel: Parcel) -> Iterator[tuple[bool, str]]:
    samples = len(parcel.samples)
    yield not _is_name(parcel.vantage.name), f"vantage.name must be printable, 1 to {MAX_NAME_CHARS} characters"
    yield not _is_name(parcel.vantage.region), f"vantage.region must be printable, 1 to {MAX_NAME_CHARS} characters"
    yield parcel.seq < 0, f"seq is {parcel.seq}; sealed batches count from 1, and 0 is a heartbeat"
    yield parcel.seq == 0 and samples > 0, f"seq 0 is a heartbeat, and this one carries {samples} samples"
    yield parcel.seq > 0 and samples == 0, f"batch {parcel.seq} carries no samples"
    yield parcel.seq > 0 and parcel.epoch == 0, "epoch is not set"
    yield samples > MAX_SAMPLES, f"{samples} samples in one batch; at most {MAX_SAMPLES}, so split it"


def admit(parcel: Parcel, *, now_at: int, known_targets: Collection[int], window: Window) -> Admitted:
    """Judge every sample. `window` is the span of rounds that can be stored; `now_at` the collector's clock."""
    fresh: list[tuple[int, Sample]] = []
    late: list[tuple[int, Sample, str]] = []
    rejections: list[Rejection] = []
    for index, sample in enumerate(parcel.samples):
        if isinstance(sample, str):
            rejections.append(Rejection(index=index, reason=f"unreadable: {sample}"))
        elif reason := why_rejected(sample, now_at=now_at, known_targets=known_targets):
            rejections.append(Rejection(index=index, reason=reason))
        elif reason := why_late(sample.round_at, window):
            late.append((index, sample, reason))
        else:
            fresh.append((index, sample))
    return Admitted(fresh=tuple(fresh), late=tuple(late), rejections=tuple(rejections))


def why_rejected(sample: Sample, *, now_at: int, known_targets: Collection[int]) -> str | None:
    """The named reason why a sample cannot be taken, or `None`."""
    if sample.target_id not in known_targets:
        return f"unknown_target: {sample.target_id}"
    for field, instant in (("round_at", sample.round_at), ("dispatched_at", sample.dispatched_at)):
        if abs(instant - now_at) > MAX_DISTANCE_US:
            return f"absurd_time: {field} = {instant} is more than {MAX_DISTANCE_US // DAY_US} days from now"
    return _bad_number(_NUMBERS, _numbers(sample)) or _bad_text(sample) or _bad_limit(sample.ratelimit)


def why_late(round_at: int, window: Window) -> str | None:
    """Why a round cannot be stored with the others, or `None`."""
    if round_at < window.from_at:
        return "too_old"
    return "in_the_future" if round_at >= window.until_at else None


def trimmed(vitals: Vitals) -> Vitals:
    """Vitals that fit their columns."""
    return Vitals(
        agent_version="".join(filter(str.isprintable, vitals.agent_version))[:MAX_NAME_CHARS],
        plan_version=_count(vitals.plan_version),
        spool_depth=_count(vitals.spool_depth),
        spool_oldest_at=vitals.spool_oldest_at if 0 <= vitals.spool_oldest_at <= _MAX_INSTANT_AT else 0,
        dropped={name: _count(n) for name, n in list(vitals.dropped.items())[:_MAX_DROP_REASONS] if _is_name(name)},
        next_heartbeat_us=min(_count(vitals.next_heartbeat_us), MAX_DISTANCE_US),
    )


def _bad_number(bounds: Mapping[str, tuple[float, float]], values: Iterable[float | None]) -> str | None:
    for (field, (low, high)), value in zip(bounds.items(), values, strict=True):
        if value is not None and not low <= value <= high:
            name = "out_of_bounds" if isfinite(value) else "not_finite"
            return f"{name}: {field} = {value} ({low:.0f} to {high:.0f})"
    return None


def _bad_text(sample: Sample) -> str | None:
    for (field, longest), text in zip(_TEXTS.items(), _texts(sample), strict=True):
        if text is not None and len(text) > longest:
            return f"too_long: {field} has {len(text)} characters, at most {longest}"
        if text is not None and "\0" in text:
            return f"control_character: {field} holds a NUL"
    return None


def _bad_limit(ratelimit: RateLimit | None) -> str | None:
    return _bad_number(_LIMITS, _limits(ratelimit)) if ratelimit else None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME_CHARS and text.isprintable()


def _count(number: int) -> int:
    return min(max(number, 0), _MAX_INT64)
