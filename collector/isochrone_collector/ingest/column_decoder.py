"""Samples as they came over the wire, as a sheet of columns.

Asking a message for each of its forty fields costs more than everything else that happens to a sample. So the request's
own bytes are read a second time through a *projection*: message classes with the same field numbers that know only the
varint fields. What the projection writes again is nothing but varints, and those are read as arrays.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from numpy.typing import NDArray

from isochrone_collector.ingest import varints
from isochrone_collector.ingest.sample_columns import (
    COLUMN,
    INSTANTS,
    LIMIT,
    RATES,
    TEXTS,
    UNKNOWN_WORD,
    WORDS,
    Flags,
    Keys,
    Numbers,
    SampleColumns,
    scatter,
)
from isochrone_wire.v1 import fleet_pb2, sample_pb2

_PACKAGE = "isochrone.projection"
_VARINTS = {
    FieldDescriptor.TYPE_INT64: FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT32: FieldDescriptor.TYPE_UINT32,
    # An enum's number of a newer version must come through as it is.
    FieldDescriptor.TYPE_ENUM: FieldDescriptor.TYPE_INT32,
}
_SAMPLES = fleet_pb2.PushRequest.DESCRIPTOR.fields_by_name["samples"].number
_LIMITS = sample_pb2.Sample.DESCRIPTOR.fields_by_name["ratelimit"].number
_ENUMS: Mapping[str, Any] = {"outcome": sample_pb2.Outcome, "token_source": sample_pb2.TokenSource}
# What is no varint, asked for in one go: each sample is far away in memory.
_PLAIN = (*INSTANTS, *RATES, *TEXTS)
_plain = attrgetter(*_PLAIN)
Number = TypeVar("Number", np.int64, np.float64)


def read(request: fleet_pb2.PushRequest, content: bytes) -> SampleColumns:
    """The samples of a request that came as `content`. Nothing in them is refused here."""
    samples = list(request.samples)
    columns: list[Sequence[Any]] = list(zip(*map(_plain, samples), strict=True)) or [()] * len(_PLAIN)
    told = dict(zip(_PLAIN, columns, strict=True))
    numbers, present = scatter(_project(content), _keys(), _array(told, INSTANTS, np.int64))
    present[:, COLUMN["token_source"]] = numbers[:, COLUMN["token_source"]] != sample_pb2.TOKEN_SOURCE_UNSPECIFIED
    for name in WORDS:
        numbers[:, COLUMN[name]] = _words(name, numbers[:, COLUMN[name]])
    rates = _array(told, RATES, np.float64)
    return SampleColumns(
        numbers=numbers,
        present=present,
        rates=rates,
        rated=_rated(samples, rates),
        texts=tuple(_texts(samples, name, told[name]) for name in TEXTS),
    )


def _array(told: Mapping[str, Sequence[Any]], names: Sequence[str], kind: type[Number]) -> NDArray[Number]:
    return np.array([told[name] for name in names], kind).T


def _rated(samples: Sequence[Message], rates: NDArray[np.float64]) -> Flags:
    """Which rates are known. Only a zero can be an unknown one, so only zeros are looked up."""
    rated: Flags = rates != 0
    for row, column in np.argwhere(~rated).tolist():
        rated[row, column] = samples[row].HasField(RATES[column])
    return rated


def _texts(samples: Sequence[Message], name: str, texts: Sequence[str]) -> list[str | None]:
    """A column of texts. Only an empty one can be an unknown one, so only those are looked up."""
    if "" not in texts:
        return [*texts]
    return [text or ("" if sample.HasField(name) else None) for sample, text in zip(samples, texts, strict=True)]


def _words(name: str, spoken: Numbers) -> Numbers:
    """Places in `WORDS` of an enum's numbers."""
    places = _places(name)
    return np.where((spoken >= 0) & (spoken < len(places)), places[np.clip(spoken, 0, len(places) - 1)], UNKNOWN_WORD)


@cache
def _places(name: str) -> Numbers:
    enum = _ENUMS[name]
    places = np.full(max(enum.values()) + 1, UNKNOWN_WORD, np.int64)
    for place, word in enumerate(WORDS[name]):
        places[enum.Value(f"{name}_{word}".upper())] = place
    return places


def _project(content: bytes) -> bytes:
    projected = _projection().FromString(content)
    projected.DiscardUnknownFields()
    return projected.SerializeToString()


@cache
def _projection() -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(name="projection.proto", package=_PACKAGE, syntax="proto2")
    _declare(file, fleet_pb2.PushRequest.DESCRIPTOR, within={"samples"}, varints=False)
    _declare(file, sample_pb2.Sample.DESCRIPTOR, within={"ratelimit"})
    _declare(file, sample_pb2.RateLimit.DESCRIPTOR)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.PushRequest"))


def _declare(
    file: descriptor_pb2.FileDescriptorProto,
    original: Descriptor,
    *,
    within: Collection[str] = (),
    varints: bool = True,
) -> None:
    """A message with the `varints` of the original and the messages `within` it."""
    declared = descriptor_pb2.DescriptorProto()
    original.CopyToProto(declared)
    message = file.message_type.add(name=original.name)
    for field in declared.field:
        if field.name in within:
            kind, type_name = field.type, f".{_PACKAGE}.{field.type_name.rpartition('.')[2]}"
            message.field.add(name=field.name, number=field.number, label=field.label, type=kind, type_name=type_name)
        elif varints and field.type in _VARINTS:
            message.field.add(name=field.name, number=field.number, label=field.label, type=_VARINTS[field.type])


@cache
def _keys() -> Keys:
    own, of_limits = sample_pb2.Sample.DESCRIPTOR.fields, sample_pb2.RateLimit.DESCRIPTOR.fields
    size = 1 + max(varints.key(field.number, 7) for field in own)
    return Keys(
        sample=varints.key(_SAMPLES, varints.WIRE_BYTES),
        limits=varints.key(_LIMITS, varints.WIRE_BYTES),
        own=_table(size, {field.number: COLUMN[field.name] for field in own if field.type in _VARINTS}),
        of_limits=_table(size, {field.number: COLUMN[LIMIT + field.name] for field in of_limits}),
    )


def _table(size: int, columns: dict[int, int]) -> Numbers:
    table = np.full(size, -1, np.int64)
    for number, column in columns.items():
        table[varints.key(number, varints.WIRE_VARINT)] = column
    return table
