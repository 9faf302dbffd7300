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

from isochrone_collector.analysis.stats.arrays import Flags, Integers
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
)
from isochrone_wire.v1 import sample_pb2

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
    """Decode encoded samples, which protobuf must accept. Values are not checked here. Raises `ValueError` if one is
    not a message.
    """
    batch = _decoder.list_to_record_batch(samples)
    columns = batch.columns
    arrays = dict(zip(_TYPES, (*columns, *columns[_LIMITS].flatten()), strict=True))
    numbers, present = _table(NUMBERS, arrays, np.int64)
    present[:, COLUMN["token_source"]] = numbers[:, COLUMN["token_source"]] != sample_pb2.TOKEN_SOURCE_UNSPECIFIED
    for name in ENUMS:
        numbers[:, COLUMN[name]] = _enum_places(name, numbers[:, COLUMN[name]])
    rates, rated = _table(RATES, arrays, np.float64)
    texts = tuple(arrays[name].view(pa.binary()) for name in TEXTS)
    return SampleColumns(numbers=numbers, present=present, rates=rates, rated=rated, texts=texts, sizes=_sizes(texts))


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
    """Return a row per array with a flag per value: is it not null? Arrow keeps a bit for each, or nothing if all are
    present.
    """
    size = -(-rows // 8)
    all_set = b"\xff" * size
    bits = b"".join([all_set if validity is None else validity[:size] for validity in validities])
    octets = np.frombuffer(bits, np.uint8).reshape(len(validities), size)
    return np.unpackbits(octets, axis=1, count=rows, bitorder="little").view(np.bool_)


def _enum_places(name: str, numbers: Integers) -> Integers:
    """Return the places in `ENUMS` of the numbers of an enum."""
    # Integers beyond the table are those of its ends, which are unknown.
    return _places(name).take(numbers + 1, mode="clip")


@cache
def _places(name: str) -> Integers:
    enum = _WIRE_ENUMS[name]
    places = np.full(max(enum.values()) + 3, UNKNOWN_MEMBER, np.int64)
    for place, member in enumerate(ENUMS[name]):
        places[enum.Value(f"{name}_{member}".upper()) + 1] = place
    return places
