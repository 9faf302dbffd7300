"""The internal message declares the fields of the public one: a field added to `fleet.proto` is not forgotten."""

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from isochrone_collector.ingest import internal_pb2
from isochrone_wire.v1 import fleet_pb2

Fields = dict[str, tuple[int, int]]


def fields_of(message: Descriptor) -> Fields:
    return {field.name: (field.number, field.type) for field in message.fields}


def test_the_envelope_is_a_request_with_samples_as_bytes() -> None:
    """Every field of a request has its name, number and type in the envelope, except that samples are bytes."""
    request = fields_of(fleet_pb2.Batch.DESCRIPTOR)
    request["samples"] = (request["samples"][0], FieldDescriptor.TYPE_BYTES)
    assert fields_of(internal_pb2.PushEnvelope.DESCRIPTOR) == request
