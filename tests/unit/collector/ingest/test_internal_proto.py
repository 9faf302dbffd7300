"""The internal messages declare the fields of the public ones: a field added to `sample.proto` is not forgotten."""

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from isochrone_collector.ingest import internal_pb2
from isochrone_wire.v1 import fleet_pb2, sample_pb2

VARINTS = {
    FieldDescriptor.TYPE_INT64: FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT32: FieldDescriptor.TYPE_UINT32,
    FieldDescriptor.TYPE_ENUM: FieldDescriptor.TYPE_INT32,
}
Fields = dict[str, tuple[int, int]]


def fields_of(message: Descriptor) -> Fields:
    """Number and type of each field, by name."""
    return {field.name: (field.number, field.type) for field in message.fields}


def projection_of(message: Descriptor) -> Fields:
    """The varint fields of a public message as a projection declares them."""
    return {field.name: (field.number, VARINTS[field.type]) for field in message.fields if field.type in VARINTS}


def test_the_envelope_is_a_request_with_samples_as_bytes() -> None:
    """Every field of a request has its name, number and type in the envelope, except that samples are bytes."""
    request = fields_of(fleet_pb2.PushRequest.DESCRIPTOR)
    request["samples"] = (request["samples"][0], FieldDescriptor.TYPE_BYTES)
    assert fields_of(internal_pb2.PushEnvelope.DESCRIPTOR) == request


def test_the_projection_has_every_varint_of_a_sample() -> None:
    """A projection declares all varint fields and the messages around them, and an enum as its number."""
    samples = fleet_pb2.PushRequest.DESCRIPTOR.fields_by_name["samples"]
    limits = sample_pb2.Sample.DESCRIPTOR.fields_by_name["ratelimit"]
    assert fields_of(internal_pb2.PushProjection.DESCRIPTOR) == {"samples": (samples.number, samples.type)}
    assert fields_of(internal_pb2.SampleProjection.DESCRIPTOR) == {
        **projection_of(sample_pb2.Sample.DESCRIPTOR),
        "ratelimit": (limits.number, limits.type),
    }
    assert fields_of(internal_pb2.RateLimitProjection.DESCRIPTOR) == projection_of(sample_pb2.RateLimit.DESCRIPTOR)


def test_every_projected_field_has_presence() -> None:
    """A zero that was sent explicitly is written again, so that it is known to be present."""
    for message in (internal_pb2.SampleProjection, internal_pb2.RateLimitProjection):
        assert [field.name for field in message.DESCRIPTOR.fields if not field.has_presence] == []
