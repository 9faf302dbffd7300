"""Decoding of the samples of a push into columns.

Reading each of the forty fields of a sample from a message costs more than all other work on it. So the bytes of the
request are parsed a second time as a *projection*: message classes with the same field numbers that declare the varint
fields only. Serialised again, a projection consists of varints, which are decoded as arrays.
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

_PACKAGE = "isochrone.projection"
_VARINTS = {
    FieldDescriptor.TYPE_INT64: FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT32: FieldDescriptor.TYPE_UINT32,
    # The enum number of a newer version must be passed on unchanged.
    FieldDescriptor.TYPE_ENUM: FieldDescriptor.TYPE_INT32,
}
_SAMPLES = fleet_pb2.PushRequest.DESCRIPTOR.fields_by_name["samples"].number
_LIMITS = sample_pb2.Sample.DESCRIPTOR.fields_by_name["ratelimit"].number
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
    places = _places(name)
    return np.where(
        (numbers >= 0) & (numbers < len(places)), places[np.clip(numbers, 0, len(places) - 1)], UNKNOWN_MEMBER
    )


@cache
def _places(name: str) -> Numbers:
    enum = _WIRE_ENUMS[name]
    places = np.full(max(enum.values()) + 1, UNKNOWN_MEMBER, np.int64)
    for place, member in enumerate(ENUMS[name]):
        places[enum.Value(f"{name}_{member}".upper())] = place
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
