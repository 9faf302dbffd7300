"""Decoding of pushes: from the bytes of a request to a `PushBatch`.

The samples of a push are decoded where they are packed, usually in another process. Everything else is decoded at once,
through an *envelope*: the message class of the request with samples that stay bytes.
"""

from functools import cached_property
from hashlib import blake2b

from google.protobuf.message import DecodeError

from isochrone_collector.errors import BadRequest
from isochrone_collector.ingest import column_decoder, internal_pb2
from isochrone_collector.ingest.sample_columns import SampleColumns
from isochrone_collector.ingest.validation import MAX_KEPT_RANGES, MAX_LINEAGE, PushBatch
from isochrone_wire import codec
from isochrone_wire.codec import CodecError
from isochrone_wire.model import BatchRange, Heartbeat, Sample, Vantage
from isochrone_wire.v1 import fleet_pb2, sample_pb2

MAX_SAMPLE_BYTES = 64 << 10
"""Maximum size of an encoded sample; its longest text has a few hundred characters."""

_HASH_BYTES = 16


class RawPush:
    """The bytes of a push, decoded on first use. Every property and method raises `BadRequest` for bytes that cannot be
    decoded.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content

    @cached_property
    def envelope(self) -> internal_pb2.PushEnvelope:
        """The request as a message whose samples are bytes. Raises `BadRequest` for a huge sample too, before it is
        decoded.
        """
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
        """Return the push, not yet validated, that arrived at `received_at` of the collector's clock. Raises
        `CodecError` too.
        """
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
            lineage=tuple(self.envelope.lineage[:MAX_LINEAGE]),
            protocol=self.envelope.protocol,
            kept=tuple(codec.decode(BatchRange, one) for one in self.envelope.kept[:MAX_KEPT_RANGES]),
        )

    def _hash_samples(self) -> bytes:
        # Joined, because thousands of updates would take longer than the hash.
        return blake2b(b"".join(self._samples), digest_size=_HASH_BYTES).digest()

    def _decode_columns(self) -> SampleColumns:
        try:
            # The decoder panics on some bytes that protobuf refuses, and overflows the stack on others.
            fleet_pb2.PushRequest.FromString(self._content)
            return column_decoder.decode(self._samples)
        except (DecodeError, ValueError) as error:
            raise BadRequest(f"cannot decode the push: {error}") from error

    def _decode_sample(self, place: int) -> Sample | str:
        try:
            return codec.decode(Sample, sample_pb2.Sample.FromString(self._samples[place]))
        except CodecError as error:
            return str(error)


def decode_push(content: bytes, received_at: int) -> PushBatch:
    """Return the batch of a push that arrived as `content` at `received_at` of the collector's clock. Raises
    `BadRequest` and `CodecError`.
    """
    return RawPush(content).batch(received_at)
