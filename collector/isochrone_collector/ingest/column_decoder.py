"""Decoding of the samples of a push into columns.

Reading each of the forty fields of a sample from a message costs more than all other work on it. So the bytes of the
request are parsed a second time as a `PushProjection`, which declares the varint fields only. Serialised again, it
consists of varints, which are decoded as arrays.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from isochrone_collector.ingest import internal_pb2, varints
from isochrone_collector.ingest.sample_columns import (
    COLUMN,
    ENUMS,
    INSTANTS,
    LIMIT,
    RATES,
    TEXTS,
    UNKNOWN_MEMBER,
    Flags,
    Keys,
    Numbers,
    SampleColumns,
    scatter,
)
from isochrone_wire.v1 import fleet_pb2, sample_pb2

_SAMPLES = internal_pb2.PushProjection.SAMPLES_FIELD_NUMBER
_LIMITS = internal_pb2.SampleProjection.RATELIMIT_FIELD_NUMBER
_WIRE_ENUMS: Mapping[str, Any] = {"outcome": sample_pb2.Outcome, "token_source": sample_pb2.TokenSource}
# Fields that are not varints, read in one call per sample: each sample is far away in memory.
_OTHER_FIELDS = (*INSTANTS, *RATES, *TEXTS)
_get_others = attrgetter(*_OTHER_FIELDS)
Number = TypeVar("Number", np.int64, np.float64)


def decode(request: fleet_pb2.PushRequest, content: bytes) -> SampleColumns:
    """Decode the samples of a request that arrived as `content`. Values are not checked here."""
    samples = list(request.samples)
    columns: list[Sequence[Any]] = list(zip(*map(_get_others, samples), strict=True)) or [()] * len(_OTHER_FIELDS)
    values = dict(zip(_OTHER_FIELDS, columns, strict=True))
    numbers, present = scatter(_project(content), _keys(), _array(values, INSTANTS, np.int64))
    present[:, COLUMN["token_source"]] = numbers[:, COLUMN["token_source"]] != sample_pb2.TOKEN_SOURCE_UNSPECIFIED
    for name in ENUMS:
        numbers[:, COLUMN[name]] = _enum_places(name, numbers[:, COLUMN[name]])
    rates = _array(values, RATES, np.float64)
    return SampleColumns(
        numbers=numbers,
        present=present,
        rates=rates,
        rated=_rated(samples, rates),
        texts=tuple(_texts(samples, name, values[name]) for name in TEXTS),
    )


def _array(values: Mapping[str, Sequence[Any]], names: Sequence[str], kind: type[Number]) -> NDArray[Number]:
    return np.array([values[name] for name in names], kind).T


def _rated(samples: Sequence[Message], rates: NDArray[np.float64]) -> Flags:
    """Return a flag per rate: is it present? Only a zero can be absent, so only zeros are looked up."""
    rated: Flags = rates != 0
    for row, column in np.argwhere(~rated).tolist():
        rated[row, column] = samples[row].HasField(RATES[column])
    return rated


def _texts(samples: Sequence[Message], name: str, texts: Sequence[str]) -> list[str | None]:
    """Return a column of texts. Only an empty text can be absent, so only empty ones are looked up."""
    if "" not in texts:
        return [*texts]
    return [text or ("" if sample.HasField(name) else None) for sample, text in zip(samples, texts, strict=True)]


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


def _project(content: bytes) -> bytes:
    projected = internal_pb2.PushProjection.FromString(content)
    projected.DiscardUnknownFields()
    return projected.SerializeToString()


@cache
def _keys() -> Keys:
    own = internal_pb2.SampleProjection.DESCRIPTOR.fields_by_name
    of_limits = internal_pb2.RateLimitProjection.DESCRIPTOR.fields_by_name
    size = 1 + max(varints.key(field.number, 7) for field in own.values())
    return Keys(
        sample=varints.key(_SAMPLES, varints.WIRE_BYTES),
        limits=varints.key(_LIMITS, varints.WIRE_BYTES),
        own=_table(size, {field.number: COLUMN[name] for name, field in own.items() if name in COLUMN}),
        of_limits=_table(size, {field.number: COLUMN[LIMIT + name] for name, field in of_limits.items()}),
    )


def _table(size: int, columns: dict[int, int]) -> Numbers:
    table = np.full(size, -1, np.int64)
    for number, column in columns.items():
        table[varints.key(number, varints.WIRE_VARINT)] = column
    return table
