"""Enrolment: exchange a one-time join token for a credential.

The certificate that the collector presents is compared with the fingerprint in the token before anything is sent, and
the token is sent over a connection that accepts this certificate only.
"""

import hmac
import random
import secrets
import time
from dataclasses import replace
from typing import Any

import grpc

from isochrone_common.address import Address
from isochrone_common.channel import hint_of, open_channel
from isochrone_common.credentials import CLIENT_KEY_BYTES, JoinToken, format_fingerprint, parse_join_token
from isochrone_common.identity_file import Identity
from isochrone_common.trust import PLAIN, ClientCertificate, Trust, presented_certificate
from isochrone_wire import codec
from isochrone_wire.errors import IsochroneError
from isochrone_wire.operations import Joined
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc

_CALL_SECONDS = 15.0
_ATTEMPTS = 8
# The others are refusals. A collector that does not answer is reported after few attempts.
_ATTEMPTS_OF = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: _ATTEMPTS,
    grpc.StatusCode.UNAVAILABLE: 2,
    grpc.StatusCode.DEADLINE_EXCEEDED: 2,
}
_PAUSE_SECONDS = 2.0
_ANOTHER_TOKEN = "ask an operator for a new token: `isochrone-collector vantage add`, `vantage rotate` or `access add`"


class EnrolmentError(IsochroneError):
    """Enrolment failed; `unreachable` if the collector did not answer. Action: the user, following `hint`."""

    def __init__(self, message: str, *, hint: str = "", unreachable: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.unreachable = unreachable
        self.exit_code = 3 if unreachable else 1


def join(
    address: Address,
    token_text: str,
    *,
    version: str,
    authorities: Trust | None = None,
    client: ClientCertificate | None = None,
) -> Identity:
    """Exchange a join token for an identity. `version` is that of the calling program, for the collector's log.

    Later connections verify the collector against `authorities`, or, without them, against its present certificate.
    Raises `EnrolmentError`; if the fingerprint does not match, nothing has been sent.
    """
    try:
        token = parse_join_token(token_text)
    except ValueError as error:
        raise EnrolmentError(str(error), hint="copy the complete token and nothing else") from None
    trust = replace(_verified_trust(address, token), client=client)
    try:
        with open_channel(address, trust) as channel:
            joined = _request_credential(channel, address, str(token), version)
    except ValueError as error:
        raise EnrolmentError(str(error)) from error
    lasting_trust = replace(authorities, client=client) if authorities and trust.tls else trust
    return Identity(
        address=address,
        name=joined.name,
        role=joined.role,
        region=joined.region,
        trust=lasting_trust,
        credential=joined.credential,
        expires_at=joined.expires_at,
        renew_at=joined.renew_at,
        http_port=joined.http_port,
    )


def _verified_trust(address: Address, token: JoinToken) -> Trust:
    if not token.fingerprint:
        if address.is_loopback:
            return PLAIN
        raise EnrolmentError(
            f"the token comes from a collector in plain text on loopback, and {address} is another machine",
            hint="serve on an address that other machines can reach, or with --tls, and create a new token",
        )
    try:
        presented = presented_certificate(address)
    except ValueError as error:
        raise EnrolmentError(str(error), hint="check that this is the address of an Isochrone collector") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise EnrolmentError(f"no collector answers at {address}: {reason}", unreachable=True) from error
    if not hmac.compare_digest(presented.fingerprint, token.fingerprint):
        actual, expected = format_fingerprint(presented.fingerprint), format_fingerprint(token.fingerprint)
        raise EnrolmentError(
            f"{address} is not the collector that created the token: its certificate is {actual}, the token expects "
            f"{expected}; nothing has been sent",
            hint=f"check the address and that no proxy intercepts TLS; if the certificate is new, {_ANOTHER_TOKEN}",
        )
    return presented.pinned


def _request_credential(channel: grpc.Channel, address: Address, token: str, version: str) -> Joined:
    # With the same key the collector repeats a reply that was lost.
    client_key = secrets.token_bytes(CLIENT_KEY_BYTES)
    request = fleet_pb2.JoinRequest(token=token, version=version, client_key=client_key)
    stub = fleet_pb2_grpc.FleetStub(channel)
    for attempt in range(_ATTEMPTS):
        try:
            return codec.decode(Joined, stub.Join(request, timeout=_CALL_SECONDS))
        except grpc.RpcError as error:
            # An RpcError is also the call with its status, which its type stubs do not declare.
            call: Any = error
            if attempt >= _ATTEMPTS_OF.get(call.code(), 1) - 1:
                raise _enrolment_error(call, address) from error
        time.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311  # jitter, not a secret
    raise AssertionError("the last attempt returns or raises")


def _enrolment_error(call: Any, address: Address) -> EnrolmentError:  # noqa: ANN401  # see _request_credential
    status, details = call.code(), call.details() or call.code().name.lower()
    if (hint := hint_of(call)) is not None:
        return EnrolmentError(f"the collector at {address} failed: {details}", hint=hint, unreachable=True)
    if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return EnrolmentError(f"no collector answers at {address}: {details}", unreachable=True)
    hint = _ANOTHER_TOKEN if status is grpc.StatusCode.UNAUTHENTICATED else ""
    return EnrolmentError(f"{address} refused: {details}", hint=hint)
