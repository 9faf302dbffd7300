"""The collector, put together. Read `serve` from top to bottom: that is the order in which things happen."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from isochrone_collector.clock import now_at
from isochrone_collector.errors import StartError
from isochrone_collector.ingest import Ingest
from isochrone_collector.observe import Observatory
from isochrone_collector.plans import Plans
from isochrone_collector.services.fleet import FleetService
from isochrone_collector.services.observatory import ObservatoryService
from isochrone_collector.services.operations import OperationsService
from isochrone_collector.settings import Settings
from isochrone_collector.store import partitions, schema
from isochrone_collector.store.embedded import EmbeddedPostgres
from isochrone_collector.store.pool import Database, describe
from isochrone_wire.address import Address
from isochrone_wire.habits import SERVER_OPTIONS
from isochrone_wire.v1 import (
    fleet_pb2,
    fleet_pb2_grpc,
    observatory_pb2,
    observatory_pb2_grpc,
    operations_pb2,
    operations_pb2_grpc,
)

_log = structlog.get_logger()

_GRACE_S = 5.0
_PLAN_REFRESH_S = 2.0
_PARTITIONS_S = 3600.0
_WATCH_POSTGRES_S = 0.5


async def serve(settings: Settings, announce: Callable[[Mapping[str, str]], None]) -> None:
    """Serve until SIGTERM or SIGINT. Raises `StartError` when that is not possible here.

    Once it serves, `announce` is told the address to `listen` on, with its real port, and whose `database` it uses.
    """
    stopped = _on_signals()
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(_postgres(settings))
        conninfo = postgres.conninfo if postgres else settings.database_url or ""
        before, after = await asyncio.to_thread(schema.migrate, conninfo)
        _log.info("database.ready", address=describe(conninfo), revision=after, migrated=before != after)

        database = Database(conninfo)
        await database.open()
        stack.push_async_callback(database.close)
        window = await partitions.ensure(database, now_at=now_at())
        plans = Plans(database=database, clock=now_at)
        await plans.refresh()
        ingest = Ingest(database=database, plans=plans, window=window, clock=now_at)
        observatory = Observatory(database=database, plans=plans, clock=now_at)

        async def make_partitions() -> None:
            ingest.window = await partitions.ensure(database, now_at=now_at())

        async def watch_postgres() -> None:
            if postgres is not None and await asyncio.to_thread(postgres.restart_if_gone):
                _log.error("postgres.restarted", pid=postgres.pid)

        server, health_of = _grpc_server(ingest=ingest, plans=plans, observatory=observatory)
        address = _bind(server, settings.listen)
        async with asyncio.TaskGroup() as chores:
            tasks = [
                chores.create_task(_again_and_again(_PARTITIONS_S, make_partitions)),
                chores.create_task(_again_and_again(_PLAN_REFRESH_S, plans.refresh)),
                chores.create_task(_again_and_again(_WATCH_POSTGRES_S, watch_postgres)),
            ]
            await server.start()
            await health_of.set("", health_pb2.HealthCheckResponse.SERVING)
            _log.info("collector.started", listen=str(address))
            announce({"listen": str(address), "database": "embedded" if postgres else "external"})

            await stopped.wait()
            _log.info("collector.stopping")
            await health_of.enter_graceful_shutdown()
            await server.stop(_GRACE_S)
            for task in tasks:
                task.cancel()
    _log.info("collector.stopped")


def _on_signals() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


@asynccontextmanager
async def _postgres(settings: Settings) -> AsyncIterator[EmbeddedPostgres | None]:
    """The embedded server while it is needed; `None` when the operator brought a database."""
    if settings.database_url is not None:
        yield None
        return
    postgres = EmbeddedPostgres(settings.data_dir)
    await asyncio.to_thread(postgres.start)
    _log.info("postgres.started", pid=postgres.pid, data_dir=str(settings.data_dir))
    try:
        yield postgres
    finally:
        await asyncio.to_thread(postgres.stop)


def _grpc_server(
    *, ingest: Ingest, plans: Plans, observatory: Observatory
) -> tuple[grpc.aio.Server, health.aio.HealthServicer]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    health_of = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_of, server)
    fleet = FleetService(ingest=ingest, plans=plans)  # type: ignore[abstract]  # gRPC itself answers UNIMPLEMENTED for the rest
    fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
    operations = OperationsService(plans=plans)  # type: ignore[abstract]  # gRPC itself answers UNIMPLEMENTED for the rest
    operations_pb2_grpc.add_OperationsServicer_to_server(operations, server)
    readers = ObservatoryService(observatory=observatory)  # type: ignore[abstract]  # gRPC itself answers UNIMPLEMENTED for the rest
    observatory_pb2_grpc.add_ObservatoryServicer_to_server(readers, server)
    ours = [
        module.DESCRIPTOR.services_by_name[name].full_name
        for module, name in ((fleet_pb2, "Fleet"), (operations_pb2, "Operations"), (observatory_pb2, "Observatory"))
    ]
    reflection.enable_server_reflection([*ours, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    return server, health_of


def _bind(server: grpc.aio.Server, listen: Address) -> Address:
    try:
        port = server.add_insecure_port(str(listen))
    except RuntimeError as error:
        raise StartError(
            f"cannot listen on {listen}", hint="another collector may be running; choose another --listen"
        ) from error
    return Address(listen.host, port)


async def _again_and_again(pause_s: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(pause_s)
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # a chore that failed once must not end the collector; it comes again
            _log.warning("chore.failed", chore=work.__name__, reason=str(error))
