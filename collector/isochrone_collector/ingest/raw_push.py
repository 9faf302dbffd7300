"""Decoding of pushes: from the bytes of a request to a `PushBatch`.

The samples of a push are decoded where they are encoded as rows, usually in another process. Everything else is decoded
at once, through an *envelope*: the message class of the request with samples that stay bytes.

Reading each of the forty fields of a sample from a message costs more than all other work on it. So the library ptars
decodes the bytes of all samples at once, into arrays of Apache Arrow.
"""

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from ptars import HandlerPool

from isochrone_collector.analysis.stats.arrays import Flags, Integers
from isochrone_collector.errors import BadRequest
from isochrone_collector.ingest import internal_pb2
from isochrone_collector.ingest.sample_columns import (
    COLUMN,
    ENUMS,
    LIMIT,
    NUMBERS,
    RATES,
    TEXTS,
    UNKNOWN_MEMBER,
    Array,
    SampleColumns,
    derived,
)
from isochrone_collector.ingest.validation import MAX_EPOCHS, MAX_KEPT_RANGES, PushBatch
from isochrone_wire import codec
from isochrone_wire.codec import CodecError
from isochrone_wire.model import BatchRange, Heartbeat, Sample, Vantage
from isochrone_wire.v1 import fleet_pb2, sample_pb2

MAX_SAMPLE_BYTES = 64 << 10
"""Maximum size of an encoded sample; its longest text has a few hundred characters."""


class RawPush:
    """The bytes of a push, decoded on first use: `BadRequest` if they cannot be."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @cached_property
    def envelope(self) -> internal_pb2.PushEnvelope:
        """The request with its samples as bytes. Raises `BadRequest`, also for a huge sample."""
        try:
            envelope = internal_pb2.PushEnvelope.FromString(self._content)
        except DecodeError as error:
            raise BadRequest(f"cannot decode the push: {error}") from error
        if max(map(len, envelope.samples), default=0) > MAX_SAMPLE_BYTES:
            raise BadRequest(f"a sample of this push has more than {MAX_SAMPLE_BYTES} bytes")
        return envelope

    @cached_property
    def _samples(self) -> list[bytes]:
        """The encoded samples; a list, because each access to the message copies them."""
        return [*self.envelope.samples]

    def batch(self, received_at: int) -> PushBatch:
        """Return the push as it arrived at `received_at`, not yet validated. Raises `CodecError` too."""
        return PushBatch(
            vantage=codec.decode(Vantage, self.envelope.vantage),
            epoch=self.envelope.epoch,
            seq=self.envelope.seq,
            sample_count=len(self.envelope.samples),
            content=self._content,
            hash_samples=self._hash_samples,
            decode_columns=self._decode_columns,
            decode_sample=self._decode_sample,
            heartbeat=codec.decode(Heartbeat, self.envelope.heartbeat),
            received_at=received_at,
            sent_at=self.envelope.sent_at,
            epoch_history=tuple(self.envelope.epoch_history[:MAX_EPOCHS]),
            kept=tuple(codec.decode(BatchRange, one) for one in self.envelope.kept[:MAX_KEPT_RANGES]),
        )

    def _hash_samples(self) -> bytes:
        # Joined, because thousands of updates would take longer than the hash.
        return blake2b(b"".join(self._samples), digest_size=16).digest()

    def _decode_columns(self) -> SampleColumns:
        try:
            # The decoder panics on some bytes that protobuf refuses, and overflows the stack on others.
            fleet_pb2.Batch.FromString(self._content)
            return decode(self._samples)
        except (DecodeError, ValueError) as error:
            raise BadRequest(f"cannot decode the push: {error}") from error

    def _decode_sample(self, place: int) -> Sample | str:
        try:
            return codec.decode(Sample, sample_pb2.Sample.FromString(self._samples[place]))
        except CodecError as error:
            return str(error)


def decode_push(content: bytes, received_at: int) -> PushBatch:
    """Return the push that arrived as `content` at `received_at`. Raises `BadRequest` and `CodecError`."""
    return RawPush(content).batch(received_at)


_WIRE_ENUMS: Mapping[str, Any] = {"outcome": sample_pb2.Outcome, "token_source": sample_pb2.TokenSource}
Number = TypeVar("Number", np.int64, np.float64)
_decoder = HandlerPool([sample_pb2.DESCRIPTOR]).get_for_message(sample_pb2.Sample.DESCRIPTOR)
_schema = _decoder.schema()
_LIMITS = _schema.get_field_index("ratelimit")
# Of each column, and then of each field of the rate limits.
_TYPES = {
    **{field.name: field.type for field in _schema},
    **{LIMIT + field.name: field.type for field in _schema.field(_LIMITS).type},
}
_NUMPY_TYPES = {name: _TYPES[name].to_pandas_dtype() for name in (*NUMBERS, *RATES)}


def decode(samples: list[bytes]) -> SampleColumns:
    """Decode encoded samples, without checks of values. Raises `ValueError` if one is not a message."""
    batch = _decoder.list_to_record_batch(samples)
    columns = batch.columns
    arrays = dict(zip(_TYPES, (*columns, *columns[_LIMITS].flatten()), strict=True))
    numbers, present = _table(NUMBERS, arrays, np.int64)
    present[:, COLUMN["token_source"]] = numbers[:, COLUMN["token_source"]] != sample_pb2.TOKEN_SOURCE_UNSPECIFIED
    for name in ENUMS:
        # Integers beyond the table are those of its ends, which are unknown.
        numbers[:, COLUMN[name]] = _places(name).take(numbers[:, COLUMN[name]] + 1, mode="clip")
    rates, rated = _table(RATES, arrays, np.float64)
    texts = tuple(arrays[name].view(pa.binary()) for name in TEXTS)
    traits, answer_from_us = derived(numbers, present, rates, rated)
    return SampleColumns(
        numbers=numbers,
        present=present,
        rates=rates,
        rated=rated,
        texts=texts,
        sizes=_sizes(texts),
        traits=traits,
        answer_from_us=answer_from_us,
    )


def _table(names: Sequence[str], arrays: Mapping[str, Array], kind: type[Number]) -> tuple[NDArray[Number], Flags]:
    """Return the values of arrays as columns of a table, 0 where they are null, and a flag per value: is it present?"""
    buffers = [arrays[name].buffers() for name in names]
    present = _present([validity for validity, _ in buffers], rows=len(arrays[names[0]]))
    values = np.empty(present.shape, kind)
    for own, name, (_, content) in zip(values, names, buffers, strict=True):
        own[:] = np.frombuffer(content or b"", _NUMPY_TYPES[name], len(own))
    return np.where(present, values, kind(0)).T, present.T


def _sizes(texts: Sequence[Array]) -> NDArray[np.int32]:
    """Return a column per array with the numbers of bytes of its texts, -1 where they are null."""
    buffers, rows = [array.buffers() for array in texts], len(texts[0])
    present = _present([validity for validity, *_ in buffers], rows=rows)
    ends = np.array([np.frombuffer(places, np.int32, rows + 1) for _, places, _ in buffers])
    return np.where(present, np.diff(ends), np.int32(-1)).T


def _present(validities: Sequence[Any], *, rows: int) -> Flags:
    """Return a row per array with a flag per value: is it present? Arrow keeps bits, or nothing if all are."""
    size = -(-rows // 8)
    all_set = b"\xff" * size
    bits = b"".join([all_set if validity is None else validity[:size] for validity in validities])
    octets = np.frombuffer(bits, np.uint8).reshape(len(validities), size)
    return np.unpackbits(octets, axis=1, count=rows, bitorder="little").view(np.bool_)


@cache
def _places(name: str) -> Integers:
    enum = _WIRE_ENUMS[name]
    places = np.full(max(enum.values()) + 3, UNKNOWN_MEMBER, np.int64)
    for place, member in enumerate(ENUMS[name]):
        places[enum.Value(f"{name}_{member}".upper()) + 1] = place
    return places
