"""What may come in: every sample of a push is admitted, set aside as late, or rejected with a named reason.

Nearly all samples are beyond suspicion, which `screening` finds out for a whole push at once; only a suspect is made a
value and judged here, by name.

The laws:

1. fresh + late + rejected = samples pushed.
2. A reason starts with its name, `out_of_bounds: ttft_us = -5 (0 to 86400000000)`, so that reasons can be counted.
3. Whatever is admitted fits the columns it goes to: the database never has to refuse a row.

A batch that is broken as a whole is a `BadRequest`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import isfinite
from operator import attrgetter

import numpy as np

from isochrone_collector.errors import BadRequest
from isochrone_collector.ingest import prefilter
from isochrone_collector.ingest.limits import BOUNDS, LENGTHS, LIMIT_BOUNDS, MAX_DISTANCE_US, MAX_NAME_CHARS, is_name
from isochrone_collector.ingest.sample_columns import COLUMN, Numbers, SampleColumns
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, RateLimit, Rejection, Sample, Vantage, Vitals

MAX_SAMPLES = 10_000

_numbers = attrgetter(*BOUNDS)
_texts = attrgetter(*LENGTHS)
_limits = attrgetter(*LIMIT_BOUNDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushBatch:
    """A push as it arrived, at `received_at` of the collector's clock.

    `content` is all of it as protobuf bytes. `sheet` lays its samples out in columns. `read` makes one of them, by its
    place, a value; or, when this version cannot read it, the sentence that says why.
    """

    vantage: Vantage
    epoch: int
    seq: int
    samples: int
    content: bytes
    sheet: Callable[[], SampleColumns]
    read: Callable[[int], Sample | str]
    vitals: Vitals
    received_at: int

    @property
    def is_heartbeat(self) -> bool:
        """Whether it only says how the agent is."""
        return self.seq == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The samples of a parcel by where they go, as places in the parcel; late ones with the reason."""

    fresh: Numbers
    late: tuple[tuple[int, str], ...]
    rejections: tuple[Rejection, ...]


def check_parcel(parcel: PushBatch) -> None:
    """Raise `BadRequest` when the parcel is broken as a whole."""
    for broken, message in _parcel_faults(parcel):
        if broken:
            raise BadRequest(message)


def _parcel_faults(parcel: PushBatch) -> Iterator[tuple[bool, str]]:
    samples = parcel.samples
    yield not is_name(parcel.vantage.name), f"vantage.name must be printable, 1 to {MAX_NAME_CHARS} characters"
    yield not is_name(parcel.vantage.region), f"vantage.region must be printable, 1 to {MAX_NAME_CHARS} characters"
    yield parcel.seq < 0, f"seq is {parcel.seq}; sealed batches count from 1, and 0 is a heartbeat"
    yield parcel.seq == 0 and samples > 0, f"seq 0 is a heartbeat, and this one carries {samples} samples"
    yield parcel.seq > 0 and samples == 0, f"batch {parcel.seq} carries no samples"
    yield parcel.seq > 0 and parcel.epoch == 0, "epoch is not set"
    yield samples > MAX_SAMPLES, f"{samples} samples in one batch; at most {MAX_SAMPLES}, so split it"


def admit(parcel: PushBatch, sheet: SampleColumns, *, known_targets: AbstractSet[int], window: Window) -> Admitted:
    """Judge every sample of a parcel and its sheet. `window` is the span of rounds that can be stored."""
    suspects = prefilter.suspects(sheet, now_at=parcel.received_at, known_targets=known_targets)
    rejections = tuple(_rejections(parcel, np.flatnonzero(suspects).tolist(), known_targets))
    welcome = np.ones(len(sheet), np.bool_)
    welcome[[rejection.index for rejection in rejections]] = False
    rounds = sheet.numbers[:, COLUMN["round_at"]]
    on_time = (rounds >= window.from_at) & (rounds < window.until_at)
    late = np.flatnonzero(welcome & ~on_time).tolist()
    return Admitted(
        fresh=np.flatnonzero(welcome & on_time),
        late=tuple((index, why_late(int(rounds[index]), window, now_at=parcel.received_at) or "") for index in late),
        rejections=rejections,
    )


def _rejections(parcel: PushBatch, suspects: Iterable[int], known_targets: Collection[int]) -> Iterator[Rejection]:
    for index in suspects:
        sample = parcel.read(index)
        if isinstance(sample, str):
            yield Rejection(index=index, reason=f"unreadable: {sample}")
        elif reason := why_rejected(sample, now_at=parcel.received_at, known_targets=known_targets):
            yield Rejection(index=index, reason=reason)


def why_rejected(sample: Sample, *, now_at: int, known_targets: Collection[int]) -> str | None:
    """The named reason why a sample cannot be taken, or `None`."""
    if sample.target_id not in known_targets:
        return f"unknown_target: {sample.target_id}"
    for field, instant in (("round_at", sample.round_at), ("dispatched_at", sample.dispatched_at)):
        if abs(instant - now_at) > MAX_DISTANCE_US:
            return f"absurd_time: {field} = {instant} is more than {MAX_DISTANCE_US // DAY_US} days from now"
    return _bad_number(BOUNDS, _numbers(sample)) or _bad_text(sample) or _bad_limit(sample.ratelimit)


def why_late(round_at: int, window: Window, *, now_at: int) -> str | None:
    """Why a round cannot be stored with the others, or `None`. A round that is neither old nor to come has no partition
    because none could be made.
    """
    if window.from_at <= round_at < window.until_at:
        return None
    if round_at > now_at:
        return "in_the_future"
    return "too_old" if round_at < window.from_at < window.until_at else "no_partition"


def _bad_number(bounds: Mapping[str, tuple[float, float]], values: Iterable[float | None]) -> str | None:
    for (field, (low, high)), value in zip(bounds.items(), values, strict=True):
        if value is not None and not low <= value <= high:
            name = "out_of_bounds" if isfinite(value) else "not_finite"
            return f"{name}: {field} = {value} ({low:.0f} to {high:.0f})"
    return None


def _bad_text(sample: Sample) -> str | None:
    for (field, longest), text in zip(LENGTHS.items(), _texts(sample), strict=True):
        if text is not None and len(text) > longest:
            return f"too_long: {field} has {len(text)} characters, at most {longest}"
        if text is not None and "\0" in text:
            return f"control_character: {field} holds a NUL"
    return None


def _bad_limit(ratelimit: RateLimit | None) -> str | None:
    return _bad_number(LIMIT_BOUNDS, _limits(ratelimit)) if ratelimit else None
