"""Pushes as they came over the wire, as parcels.

Of a push everything but its samples is read at once, through an *envelope*: its message class with samples that are
bytes. The samples are read by whoever seals them, which is mostly another process.
"""

from functools import cache, cached_property
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.message import DecodeError, Message

from isochrone_collector.errors import BadRequest
from isochrone_collector.ingest import column_decoder
from isochrone_collector.ingest.sample_columns import SampleColumns
from isochrone_collector.ingest.validation import PushBatch
from isochrone_wire import codec
from isochrone_wire.codec import CodecError
from isochrone_wire.model import Sample, Vantage, Vitals
from isochrone_wire.v1 import fleet_pb2

_PACKAGE = "isochrone.envelope"
Kind = TypeVar("Kind", bound=Message)


class RawPush:
    """A push as it came, of which nothing is read before it is asked for. What is read raises `BadRequest` when it is
    not what it should be.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content

    @cached_property
    def envelope(self) -> Any:  # noqa: ANN401  # its class is made at run time
        """A `PushRequest` whose samples are bytes."""
        return _parsed(_envelope(), self._content)

    def parcel(self, received_at: int) -> PushBatch:
        """The push, not yet looked at, that came at `received_at` of the collector's clock. Raises `CodecError` too."""
        return PushBatch(
            vantage=codec.decode(Vantage, self.envelope.vantage),
            epoch=self.envelope.epoch,
            seq=self.envelope.seq,
            samples=len(self.envelope.samples),
            content=self._content,
            sheet=self._sheet,
            read=self._sample,
            vitals=codec.decode(Vitals, self.envelope.vitals),
            received_at=received_at,
        )

    def _sheet(self) -> SampleColumns:
        return column_decoder.read(self._request, self._content)

    def _sample(self, place: int) -> Sample | str:
        try:
            return codec.decode(Sample, self._request.samples[place])
        except CodecError as error:
            return str(error)

    @cached_property
    def _request(self) -> fleet_pb2.PushRequest:
        return _parsed(fleet_pb2.PushRequest, self._content)


def parcel_of(content: bytes, received_at: int) -> PushBatch:
    """The parcel that came as these bytes at `received_at` of the collector's clock. Raises `BadRequest` and
    `CodecError`.
    """
    return RawPush(content).parcel(received_at)


def _parsed(kind: type[Kind], content: bytes) -> Kind:
    try:
        return kind.FromString(content)
    except DecodeError as error:
        raise BadRequest(f"this is no push: {error}") from error


@cache
def _envelope() -> type[Message]:
    declared = descriptor_pb2.DescriptorProto()
    fleet_pb2.PushRequest.DESCRIPTOR.CopyToProto(declared)
    (samples,) = (field for field in declared.field if field.name == "samples")
    samples.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
    samples.ClearField("type_name")
    of = fleet_pb2.DESCRIPTOR
    file = descriptor_pb2.FileDescriptorProto(
        name="envelope.proto", package=_PACKAGE, syntax="proto3", dependency=[of.name], message_type=[declared]
    )
    of.pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(of.pool.FindMessageTypeByName(f"{_PACKAGE}.{declared.name}"))
