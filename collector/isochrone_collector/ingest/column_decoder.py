"""Decoding of the samples of a push into columns.

Reading each of the forty fields of a sample from a message costs more than all other work on it. So the library ptars
decodes the bytes of all samples at once, into arrays of Apache Arrow.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from ptars import HandlerPool

from isochrone_collector.ingest.sample_columns import (
    COLUMN,
    ENUMS,
    LIMIT,
    NUMBERS,
    RATES,
    TEXTS,
    UNKNOWN_MEMBER,
    Array,
    Flags,
    Numbers,
    SampleColumns,
)
from isochrone_wire.v1 import sample_pb2

_WIRE_ENUMS: Mapping[str, Any] = {"outcome": sample_pb2.Outcome, "token_source": sample_pb2.TokenSource}
Number = TypeVar("Number", np.int64, np.float64)
_decoder = HandlerPool([sample_pb2.DESCRIPTOR]).get_for_message(sample_pb2.Sample.DESCRIPTOR)


def decode(samples: list[bytes]) -> SampleColumns:
    """Decode encoded samples, which protobuf must accept. Values are not checked here. Raises `ValueError` if one is
    not a message.
    """
    batch = _decoder.list_to_record_batch(samples)
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    limits = arrays["ratelimit"]
    arrays |= {LIMIT + field.name: array for field, array in zip(limits.type, limits.flatten(), strict=True)}
    numbers, present = _table([arrays[name] for name in NUMBERS], np.int64)
    present[:, COLUMN["token_source"]] = numbers[:, COLUMN["token_source"]] != sample_pb2.TOKEN_SOURCE_UNSPECIFIED
    for name in ENUMS:
        numbers[:, COLUMN[name]] = _enum_places(name, numbers[:, COLUMN[name]])
    rates, rated = _table([arrays[name] for name in RATES], np.float64)
    texts = [arrays[name].cast(pa.binary()) for name in TEXTS]
    return SampleColumns(
        numbers=numbers,
        present=present,
        rates=rates,
        rated=rated,
        texts=tuple(texts),
        sizes=_sizes(texts),
    )


def _table(arrays: Sequence[Array], kind: type[Number]) -> tuple[NDArray[Number], Flags]:
    """Return the values of arrays as columns of a table, 0 where they are null, and a flag per value: is it present?"""
    present = _present(arrays)
    values = np.empty(present.shape, kind)
    for place, array in enumerate(arrays):
        values[place] = np.frombuffer(array.buffers()[1] or b"", array.type.to_pandas_dtype(), len(array))
    return np.where(present, values, kind(0)).T, present.T


def _sizes(texts: Sequence[Array]) -> NDArray[np.int32]:
    """Return a column per array with the numbers of bytes of its texts, -1 where they are null."""
    ends = np.array([np.frombuffer(array.buffers()[1], np.int32, len(array) + 1) for array in texts])
    return np.where(_present(texts), np.diff(ends), np.int32(-1)).T


def _present(arrays: Sequence[Array]) -> Flags:
    """Return a row per array with a flag per value: is it not null? Arrow keeps a bit for each."""
    rows = len(arrays[0])
    size = -(-rows // 8)
    all_set = b"\xff" * size
    bits = b"".join([validity[:size] if (validity := array.buffers()[0]) else all_set for array in arrays])
    octets = np.frombuffer(bits, np.uint8).reshape(len(arrays), size)
    return np.unpackbits(octets, axis=1, count=rows, bitorder="little").view(np.bool_)


def _enum_places(name: str, numbers: Numbers) -> Numbers:
    """Return the places in `ENUMS` of the numbers of an enum."""
    # Numbers beyond the table are those of its ends, which are unknown.
    return _places(name).take(numbers + 1, mode="clip")


@cache
def _places(name: str) -> Numbers:
    enum = _WIRE_ENUMS[name]
    places = np.full(max(enum.values()) + 3, UNKNOWN_MEMBER, np.int64)
    for place, member in enumerate(ENUMS[name]):
        places[enum.Value(f"{name}_{member}".upper()) + 1] = place
    return places
