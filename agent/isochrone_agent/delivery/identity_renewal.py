"""Renewal of the agent's identity: the successor of its credential, and the collector's next certificate.

The new identity is written to the identity file, which the channel is then opened with.
"""

import time
from collections.abc import Sequence

import grpc
import grpc.aio
import structlog

from isochrone_agent.clock import now_at
from isochrone_agent.delivery.reconnecting_channel import ReconnectingChannel
from isochrone_agent.settings import Settings
from isochrone_common import renewal
from isochrone_common.credentials import fingerprint_of, format_fingerprint
from isochrone_common.identity_file import Identity
from isochrone_wire.v1 import fleet_pb2_grpc

RETRY_SECONDS = 15.0
_CALL_SECONDS = 10.0

log = structlog.get_logger()


class IdentityRenewal:
    """Call `note` with the fingerprints of every receipt, and `run_if_due` periodically."""

    def __init__(self, settings: Settings, connection: ReconnectingChannel) -> None:
        self._path = settings.identity_path
        self._connection = connection
        self._fingerprints: tuple[bytes, ...] = ()
        self._not_before = 0.0

    def note(self, fingerprints: Sequence[bytes]) -> None:
        """Keep the fingerprints of the certificates that the collector presents now and next."""
        self._fingerprints = tuple(fingerprints)

    async def run_if_due(self) -> None:
        """Renew the identity if that is due. A failure is logged, and the call repeated later."""
        identity = self._connection.identity
        if identity is None or time.monotonic() < self._not_before:
            return
        if renewal.is_due(identity, now_at=now_at()) or renewal.has_other_pins(identity, self._fingerprints):
            self._not_before = time.monotonic() + RETRY_SECONDS
            await self._renew(identity)

    async def _renew(self, identity: Identity) -> None:
        try:
            stub = fleet_pb2_grpc.FleetStub(self._connection.current)
            response = await stub.Renew(renewal.request_of(identity, now_at=now_at()), timeout=_CALL_SECONDS)
            later = renewal.renewed(identity, response)
            renewal.store(self._path, identity, later)
        except grpc.aio.AioRpcError as error:
            log.warning("identity.not_renewed", status=error.code().name, details=error.details())
        except (OSError, ValueError) as error:
            log.error("identity.not_renewed", reason=str(error), hint=f"make {self._path} writable")  # noqa: TRY400  # no traceback
        else:
            pins = [format_fingerprint(fingerprint_of(pin)) for pin in later.trust.pins]
            log.info("identity.stored", credential=later.credential != identity.credential, certificates=pins)
