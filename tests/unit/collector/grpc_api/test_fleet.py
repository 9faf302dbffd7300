"""The service that agents ask: what cannot be decoded is the asker's fault, and is told so."""

from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from isochrone_collector.grpc_api.fleet import FleetService
from isochrone_collector.ingest.raw_push import RawPush
from isochrone_wire import codec
from isochrone_wire.codec import CodecError
from isochrone_wire.model import Batch, Receipt, Vantage, Vitals


class Aborted(Exception):  # noqa: N818  # reads as what happened
    """What gRPC raises when a call is aborted."""


@dataclass(slots=True)
class Call:
    """A call that is under way, as far as the service sees it."""

    status: grpc.StatusCode | None = None
    details: str = ""

    def invocation_metadata(self) -> tuple[()]:
        """Nobody says who asks."""
        return ()

    async def abort(self, status: grpc.StatusCode, details: str, _trailing: Any) -> None:
        """As gRPC's."""
        self.status, self.details = status, details
        raise Aborted


class OpenGate:
    """A gate that lets everybody in."""

    async def bind(self, _metadata: Any, _vantage: Vantage) -> None:
        """Whoever comes is who they say."""


class Ingest:
    """Takes everything."""

    async def push(self, _parcel: Any) -> Receipt:
        """It is committed."""
        return Receipt()


async def test_vitals_that_cannot_be_decoded_are_the_askers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """INVALID_ARGUMENT with the sentence, and not UNKNOWN, which an agent would try again for ever. No field of today's
    vitals can be wrong on the wire, so one of tomorrow's stands in.
    """
    honest = codec.decode

    def decode(cls: Any, message: Any) -> Any:
        if cls is Vitals:
            raise CodecError("Vitals.mood: 7")
        return honest(cls, message)

    request = codec.encode(Batch(vantage=Vantage(name="us-1", region="us-east-2"), epoch=7, seq=0))
    monkeypatch.setattr(codec, "decode", decode)
    nobody: Any = None
    authenticator: Any = OpenGate()
    ingest: Any = Ingest()
    service, call = FleetService(ingest=ingest, plans=nobody, identities=nobody, authenticator=authenticator), Call()
    with pytest.raises(Aborted):
        await service.Push(RawPush(request.SerializeToString()), call)
    assert (call.status, call.details) == (grpc.StatusCode.INVALID_ARGUMENT, "Vitals.mood: 7")
