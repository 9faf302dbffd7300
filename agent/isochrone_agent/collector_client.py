"""The client of the collector: its calls for agents, the channel, and the renewal of the identity."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import grpc
import grpc.aio
import structlog

from isochrone_agent.clock import now_at
from isochrone_agent.errors import CollectorRefused, SettingsError
from isochrone_agent.settings import Settings, read_identity
from isochrone_common import identity_file
from isochrone_common.address import Address
from isochrone_common.channel import open_aio_channel
from isochrone_common.credentials import fingerprint_of, format_fingerprint
from isochrone_common.files import FileWatch
from isochrone_common.identity_file import Identity
from isochrone_common.trust import PLAIN
from isochrone_wire import codec
from isochrone_wire.model import Batch, Heartbeat, Plan, Vantage
from isochrone_wire.operations import Receipt
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc

CALL_SECONDS = 30
RENEWAL_RETRY_SECONDS = 15.0
_RENEWAL_CALL_SECONDS = 10.0
# The time for which calls in flight may continue on a channel that has a successor.
_GRACE_SECONDS = 30.0

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class CollectorClient:
    """The collector's calls for agents; `pushes` by gRPC status, and the newest `heartbeat`, even if it failed."""

    channel: Callable[[], grpc.aio.Channel]
    vantage: Vantage
    on_fingerprints: Callable[[Sequence[bytes]], None] = lambda _fingerprints: None
    pushes: Counter[str] = field(default_factory=Counter)
    heartbeat: Heartbeat = field(default_factory=Heartbeat)

    async def fetch_plan(self, running: int | None, content_hash: bytes = b"") -> Plan | None:
        """The plan in force, or `None` if it is version `running` with this content. Raises `grpc.aio.AioRpcError`."""
        vantage = codec.encode(self.vantage)
        request = fleet_pb2.FetchPlanRequest(vantage=vantage, if_version=running, if_content_hash=content_hash)
        response = await fleet_pb2_grpc.FleetStub(self.channel()).FetchPlan(request, timeout=CALL_SECONDS)
        return codec.decode(Plan, response.plan) if response.HasField("plan") else None

    async def push(self, batch: Batch, content: bytes = b"") -> Receipt:
        """Push one batch; a receipt means commit. `content`: its encoded field `samples`, which is appended."""
        push: grpc.aio.UnaryUnaryMultiCallable[bytes, fleet_pb2.Receipt] = self.channel().unary_unary(
            "/isochrone.v1.Fleet/Push", response_deserializer=fleet_pb2.Receipt.FromString
        )
        compression = grpc.Compression.Gzip if content or batch.samples else None
        request = codec.encode(batch).SerializeToString() + content
        self.heartbeat = batch.heartbeat
        call = push(request, timeout=CALL_SECONDS, compression=compression)
        try:
            response: fleet_pb2.Receipt | None = await call
        finally:
            self.pushes[(await call.code()).name] += 1
        if response is None:  # gRPC's answer when the deserializer fails
            raise CollectorRefused("the receipt cannot be decoded")
        self.on_fingerprints(response.fingerprints)
        try:
            return codec.decode(Receipt, response)
        except codec.CodecError as error:
            raise CollectorRefused(f"the receipt cannot be decoded: {error}") from error


class ReconnectingChannel:
    """The channel to the collector, opened again when the agent's identity changes; the calls in flight end on the old
    one. It renews the credential and the pinned certificates in the identity file.

    Use `async with`, take `current` for every call, and call `refresh` periodically. `identity` is the one in use, and
    `fingerprints` are those of the newest receipt. Raises `SettingsError`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.current = open_collector_channel(settings.collector, settings.identity)
        self.identity = settings.identity
        self.fingerprints: Sequence[bytes] = ()
        self._watch = FileWatch(_files(settings, settings.identity))
        self._closing: set[asyncio.Task[None]] = set()
        self._renew_not_before = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_failure: object) -> None:
        for task in self._closing:
            task.cancel()
        await self.current.close()

    async def refresh(self) -> None:
        """Renew the identity if that is due, and open the channel again if its files have changed. Logs failures."""
        if self.identity is not None and time.monotonic() >= self._renew_not_before:
            is_due = identity_file.is_due(self.identity, now_at=now_at())
            if is_due or identity_file.has_other_pins(self.identity, self.fingerprints):
                self._renew_not_before = time.monotonic() + RENEWAL_RETRY_SECONDS
                await self._renew(self.identity)
        if self._watch.changed():
            try:
                self._reopen(read_identity(self._settings.identity_path))
            except SettingsError as error:
                log.error("identity.unusable", reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback

    def _reopen(self, identity: Identity | None) -> None:
        vantage, first = self._settings.vantage, self._settings.identity
        if identity is None or (identity.name, identity.region) != (vantage.name, vantage.region):
            log.error("identity.ignored", hint="it is missing or belongs to another vantage: restart this agent")
            return
        # The address of the identity, unless the settings named another one at the start.
        is_explicit = first is None or first.address != self._settings.collector
        address = self._settings.collector if is_explicit else identity.address
        old, self.current = self.current, open_collector_channel(address, identity)
        self.identity = identity
        self._watch = FileWatch(_files(self._settings, identity))
        task = asyncio.get_running_loop().create_task(old.close(_GRACE_SECONDS))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        log.info("identity.renewed", collector=str(address))

    async def _renew(self, identity: Identity) -> None:
        path = self._settings.identity_path
        try:
            request = fleet_pb2.RenewRequest(credential=identity_file.is_due(identity, now_at=now_at()))
            response = await fleet_pb2_grpc.FleetStub(self.current).Renew(request, timeout=_RENEWAL_CALL_SECONDS)
            later = identity_file.renewed(identity, response)
            identity_file.store(path, identity, later)
        except grpc.aio.AioRpcError as error:
            log.warning("identity.not_renewed", status=error.code().name, details=error.details())
        except (OSError, ValueError) as error:
            log.error("identity.not_renewed", reason=str(error), hint=f"make {path} writable")  # noqa: TRY400  # no traceback
        else:
            pins = [format_fingerprint(fingerprint_of(pin)) for pin in later.trust.pins]
            log.info("identity.stored", credential=later.credential != identity.credential, certificates=pins)


def open_collector_channel(address: Address, identity: Identity | None) -> grpc.aio.Channel:
    """Open a channel with this identity. Raises `SettingsError`."""
    trust, credential = (identity.trust, identity.credential) if identity else (PLAIN, None)
    try:
        return open_aio_channel(address, trust, credential)
    except ValueError as error:
        raise SettingsError(str(error), hint="join again: isochrone-agent join") from error


def _files(settings: Settings, identity: Identity | None) -> list[Path]:
    client = identity.trust.client if identity else None
    return [settings.identity_path, *((client.certificate, client.key) if client else ())]
