"""The service for agents: a request that cannot be decoded is INVALID_ARGUMENT."""

from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from isochrone_collector.grpc_api.services import FleetService
from isochrone_collector.ingest.raw_push import RawPush
from isochrone_wire import codec
from isochrone_wire.codec import CodecError
from isochrone_wire.model import Batch, Heartbeat, Vantage
from isochrone_wire.operations import Receipt


class Aborted(Exception):  # noqa: N818  # reads as what happened
    """Raised by gRPC when a call is aborted."""


@dataclass(slots=True)
class Call:
    """A call in progress, with the parts of a context that the service uses."""

    status: grpc.StatusCode | None = None
    details: str = ""

    def invocation_metadata(self) -> tuple[()]:
        """No credential."""
        return ()

    async def abort(self, status: grpc.StatusCode, details: str, _trailing: Any) -> None:
        """Record the status, as gRPC does."""
        self.status, self.details = status, details
        raise Aborted


class OpenAuthenticator:
    """An authenticator that accepts every caller."""

    async def require_vantage(self, _metadata: Any, _vantage: Vantage) -> None:
        """Accept."""


class Ingest:
    """An ingest that accepts every push."""

    async def push(self, raw_push: RawPush, received_at: int) -> Receipt:
        """Decode the push, and return an empty receipt."""
        raw_push.batch(received_at)
        return Receipt()


async def test_a_heartbeat_that_cannot_be_decoded_is_an_invalid_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """INVALID_ARGUMENT with the reason, and not UNKNOWN, which an agent would retry for ever. No field of the current
    heartbeat can be invalid on the wire, so the test invents a value.
    """
    honest = codec.decode

    def decode(cls: Any, message: Any) -> Any:
        if cls is Heartbeat:
            raise CodecError("Heartbeat.mood: 7")
        return honest(cls, message)

    request = codec.encode(Batch(vantage=Vantage(name="us-1", region="us-east-2"), epoch=7, seq=0))
    monkeypatch.setattr(codec, "decode", decode)
    unused: Any = None
    authenticator: Any = OpenAuthenticator()
    ingest: Any = Ingest()
    service, call = (
        FleetService(
            ingest=ingest, plans=unused, enrolment=unused, authenticator=authenticator, clock=lambda: 1_000_000
        ),
        Call(),
    )
    with pytest.raises(Aborted):
        await service.Push(RawPush(request.SerializeToString()), call)
    assert (call.status, call.details) == (grpc.StatusCode.INVALID_ARGUMENT, "Heartbeat.mood: 7")
