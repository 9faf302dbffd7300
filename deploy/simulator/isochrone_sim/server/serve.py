"""Composition of the simulator: a world, one socket per region, and the ground truth of all exchanges."""

import asyncio
import gc
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from isochrone_common.address import Address
from isochrone_sim.certificates import server_context
from isochrone_sim.errors import ListenError
from isochrone_sim.server.connection import Connection, JobQueue, ServerState, StampingListener
from isochrone_sim.server.ground_truth import GroundTruth
from isochrone_sim.server.service import Service
from isochrone_sim.settings import Settings

_ACCEPT_BACKLOG = 1024
# Time limit for the closing handshake of TLS.
_TLS_SHUTDOWN_SECONDS = 2.0


async def serve(settings: Settings, *, ready: Callable[[dict[str, str]], None], stop: asyncio.Event) -> None:
    """Serve until `stop` is set. `ready` is called once with the base URLs by region when all sockets listen.

    Raises `ListenError` and `SettingsError`.
    """
    tls = server_context(settings.certificate) if settings.certificate else None
    ground_truth = GroundTruth(settings.truth_file)
    state = ServerState(
        service=Service(settings.world, api_key=settings.api_key),
        ground_truth=ground_truth,
        job_queue=JobQueue(),
        log_requests=settings.log_requests,
    )
    writing = asyncio.create_task(ground_truth.flush_periodically())
    servers: list[asyncio.Server] = []
    try:
        endpoints = {}
        for region, address in settings.listens.items():
            listener = _listener(address)
            server = await asyncio.get_running_loop().create_server(
                partial(Connection, region, state, listener),
                sock=listener,
                backlog=_ACCEPT_BACKLOG,
                ssl=tls,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_SECONDS if tls else None,
            )
            servers.append(server)
            bound = Address(address.host, listener.getsockname()[1])
            endpoints[region] = f"{'https' if tls else 'http'}://{bound}/v1"
        # What exists until now is exempt from garbage collection, which would delay tokens.
        gc.collect()
        gc.freeze()
        ready(endpoints)
        await stop.wait()
    finally:
        for server in servers:
            server.close()
        for connection in list(state.connections):
            connection.abort()
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
        ground_truth.close()


def _listener(address: Address) -> StampingListener:
    try:
        family, kind, *_, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        listener = StampingListener(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        hint = "port 0 selects a free port: --listen 127.0.0.1:0"
        raise ListenError(f"cannot listen on {address}: {error.strerror or error}", hint=hint) from error
    return listener
