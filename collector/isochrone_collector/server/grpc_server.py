"""The gRPC servers: their services, and the addresses they listen on.

The Unix socket has its own server, because an interceptor does not see how a call came in.
"""

import os
import pwd
from collections.abc import Mapping, Sequence
from functools import partial

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from isochrone_collector.alerting.service import SilenceService
from isochrone_collector.auth.authenticator import Authenticator, Principal
from isochrone_collector.errors import StartError
from isochrone_collector.grpc_api.discovery import DiscoveryServices
from isochrone_collector.grpc_api.front import Front
from isochrone_collector.grpc_api.guards import AuthInterceptor
from isochrone_collector.grpc_api.services import FleetService, Work, add_to_server
from isochrone_collector.queries.fleet import vantage_list
from isochrone_collector.server.assembly import Parts
from isochrone_collector.server.certificates import Certificates, KeyPair
from isochrone_collector.server.listen_check import check_unix_socket
from isochrone_collector.store import audit
from isochrone_common.address import UNIX, Address
from isochrone_common.channel import SERVER_OPTIONS
from isochrone_common.files import private_files
from isochrone_wire.operations import Role


def grpc_server(
    parts: Parts,
    authenticator: Authenticator,
    health_of: health.aio.HealthServicer,
    *,
    http_port: int,
    front: Front | None = None,
) -> grpc.aio.Server:
    """Create a server with every service, behind a front if given; `http_port` is the port of HTTP, or 0."""
    on_admitted = front.admit if front else lambda _peer: None
    server = grpc.aio.server(
        interceptors=[
            AuthInterceptor(authenticator, on_refused=parts.push_metrics.count_refused, on_admitted=on_admitted)
        ],
        options=SERVER_OPTIONS,
    )
    if front:
        bind_socket(server, front.address)
    health_pb2_grpc.add_HealthServicer_to_server(health_of, server)
    fleet = FleetService(
        ingest=parts.ingest,
        plans=parts.plans,
        enrolment=parts.enrolment,
        authenticator=authenticator,
        clock=parts.clock.shared_at,
        certificates=lambda: [pair.certificate for pair in _announced(parts)],
        fingerprints=lambda: [pair.fingerprint for pair in _announced(parts)],
        http_port=http_port,
    )
    discovery = DiscoveryServices(
        snapshots=parts.snapshots, publisher=parts.publishing.publisher, rejections=parts.rejections
    )
    discovery.add_to_server(server)
    ours = add_to_server(server, fleet, _operations(parts), parts.push_metrics)
    reflection.enable_server_reflection([*ours, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    return server


def _operations(parts: Parts) -> Mapping[str, Work]:
    """Return the work of each method for operators."""
    silencing = SilenceService(database=parts.database, alerting=parts.alerts, clock=parts.clock.shared_at)
    return {
        "ListVantages": partial(vantage_list, parts.query_context),
        "ApplyPlan": parts.plans.apply,
        "ListPlans": parts.plans.history,
        "GetPlan": parts.plans.document,
        "RollBackPlan": parts.plans.roll_back,
        "Invite": parts.enrolment.invite,
        "ListAccess": parts.enrolment.list_access,
        "Revoke": parts.enrolment.revoke,
        "RecordRestore": parts.enrolment.record_restore,
        "ListAudit": partial(audit.trail, parts.database),
        "TestAlert": parts.alerts.test,
        "AddSilence": silencing.add,
        "AcknowledgeAlert": silencing.acknowledge,
        "EndSilence": silencing.end,
        "ListSilences": silencing.listed,
    }


def socket_authenticator(parts: Parts) -> Authenticator:
    """Create the authenticator of the Unix sockets, on which every caller is the operator of this process's user."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = str(os.geteuid())
    user = Principal(role=Role.OPERATOR, name=f"{UNIX}{name}", has_credential=False)
    found = Authenticator(database=parts.database, clock=parts.clock.database_at, required=False, local=user)
    # A link that is asked for here begins a session there.
    found.sessions = parts.authenticator.sessions
    return found


def _announced(parts: Parts) -> Sequence[KeyPair]:
    return parts.certificates.announced() if parts.certificates else ()


def bind_front(listen: Address, certificates: Certificates | None) -> Front:
    """Bind the public address. Raises `StartError`."""
    try:
        return Front(listen, tls=partial(certificates.context, "h2") if certificates else None)
    except OSError as error:
        raise StartError(
            f"cannot listen on {listen}", hint="another collector may be running; choose another address"
        ) from error


def bind_socket(server: grpc.aio.Server, address: Address) -> None:
    """Bind the server to a Unix socket. Raises `StartError`."""
    check_unix_socket(address)
    try:
        with private_files():
            server.add_insecure_port(str(address))
    except RuntimeError as error:
        raise StartError(f"cannot listen on {address}", hint="choose another --unix-socket") from error
