"""The collector, put together. Read `serve` from top to bottom: that is the order in which things happen."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from isochrone_collector import memory, metrics
from isochrone_collector.clock import now_at
from isochrone_collector.errors import StartError
from isochrone_collector.gate import Gate
from isochrone_collector.identity import Identities
from isochrone_collector.ingest import Ingest
from isochrone_collector.observe.desk import Desk
from isochrone_collector.operatorfile import OperatorFile
from isochrone_collector.plans import Plans
from isochrone_collector.services.fleet import FleetService
from isochrone_collector.services.guard import Guard
from isochrone_collector.services.meter import Meter
from isochrone_collector.services.observatory import ObservatoryService
from isochrone_collector.services.operations import OperationsService
from isochrone_collector.settings import Settings
from isochrone_collector.store import partitions, schema
from isochrone_collector.store.embedded import EmbeddedPostgres
from isochrone_collector.store.pool import Database, describe
from isochrone_collector.tally import Tally
from isochrone_collector.tls import Certificates
from isochrone_wire.access import shown_fingerprint
from isochrone_wire.address import Address
from isochrone_wire.habits import SERVER_OPTIONS
from isochrone_wire.scraping import scraped
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
_ACCESS_REFRESH_S = 1.0
_CERTIFICATE_S = 2.0
_PARTITIONS_S = 3600.0
_WATCH_POSTGRES_S = 0.5


async def serve(settings: Settings, announce: Callable[[Mapping[str, str]], None]) -> None:
    """Serve until SIGTERM or SIGINT. Raises `StartError` when that is not possible here.

    Once it serves, `announce` is told the address to `listen` on, with its real port, whose `database` it uses and,
    under TLS, the `fingerprint` of its certificate and the `operator` file.
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
        tally = Tally()
        ingest = Ingest(database=database, plans=plans, window=window, clock=now_at)
        desk = Desk(database=database, plans=plans, clock=now_at)
        certificates = _certificates(settings)
        gate = Gate(database=database, clock=now_at, required=certificates is not None)
        await gate.refresh()
        identities = Identities(
            database=database,
            clock=now_at,
            fingerprint=lambda: certificates.current.fingerprint if certificates else b"",
            changed=gate.refresh,
        )

        async def make_partitions() -> None:
            ingest.window = await partitions.ensure(database, now_at=now_at())

        async def watch_postgres() -> None:
            if postgres is not None and await asyncio.to_thread(postgres.restart_if_gone):
                _log.error("postgres.restarted", pid=postgres.pid)

        async def keep_certificate() -> None:
            if certificates is not None:
                await asyncio.to_thread(certificates.refresh)
                await operator.follow(certificates)

        server, health_of = _grpc_server(
            ingest=ingest, plans=plans, desk=desk, gate=gate, identities=identities, tally=tally
        )
        address = _bind(server, settings.listen, certificates)
        operator = OperatorFile(data_dir=settings.data_dir, listen=address, identities=identities)
        await (operator.keep(certificates) if certificates else operator.drop())
        stack.enter_context(_scraped(settings, tally, plans, database))
        async with asyncio.TaskGroup() as chores:
            tasks = [
                chores.create_task(_again_and_again(_PARTITIONS_S, make_partitions)),
                chores.create_task(_again_and_again(_PLAN_REFRESH_S, plans.refresh)),
                chores.create_task(_again_and_again(_WATCH_POSTGRES_S, watch_postgres)),
                chores.create_task(_again_and_again(_ACCESS_REFRESH_S, gate.refresh)),
                chores.create_task(_again_and_again(_CERTIFICATE_S, keep_certificate)),
            ]
            memory.settle()
            await server.start()
            await health_of.set("", health_pb2.HealthCheckResponse.SERVING)
            known_by = _known_by(certificates, operator)
            _log.info("collector.started", listen=str(address), **known_by)
            announce({"listen": str(address), "database": "embedded" if postgres else "external", **known_by})

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
    *, ingest: Ingest, plans: Plans, desk: Desk, gate: Gate, identities: Identities, tally: Tally
) -> tuple[grpc.aio.Server, health.aio.HealthServicer]:
    server = grpc.aio.server(interceptors=[Meter(tally, clock=now_at), Guard(gate)], options=SERVER_OPTIONS)
    health_of = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_of, server)
    fleet = FleetService(ingest=ingest, plans=plans, identities=identities, gate=gate)
    fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
    operations = OperationsService(plans=plans, identities=identities)
    operations_pb2_grpc.add_OperationsServicer_to_server(operations, server)
    readers = ObservatoryService(desk)
    observatory_pb2_grpc.add_ObservatoryServicer_to_server(readers, server)
    ours = [
        module.DESCRIPTOR.services_by_name[name].full_name
        for module, name in ((fleet_pb2, "Fleet"), (operations_pb2, "Operations"), (observatory_pb2, "Observatory"))
    ]
    reflection.enable_server_reflection([*ours, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    return server, health_of


@contextmanager
def _scraped(settings: Settings, tally: Tally, plans: Plans, database: Database) -> Iterator[None]:
    """Metrics as long as they are wanted; that nobody can read them is no reason not to collect samples."""
    if settings.metrics is None:
        yield
        return
    families = partial(metrics.families, tally, plan_version=lambda: plans.version, pool=database.statistics)
    with ExitStack() as stack:
        try:
            address = stack.enter_context(scraped(settings.metrics, families))
            _log.info("metrics.started", listen=str(address))
        except OSError as error:
            _log.warning("metrics.unavailable", listen=str(settings.metrics), reason=str(error))
        yield


def _certificates(settings: Settings) -> Certificates | None:
    if settings.tls is None:
        return None
    return Certificates(settings.tls, data_dir=settings.data_dir, host=settings.listen.host)


def _known_by(certificates: Certificates | None, operator: OperatorFile) -> dict[str, str]:
    if certificates is None:
        return {}
    return {"fingerprint": shown_fingerprint(certificates.current.fingerprint), "operator": str(operator.path)}


def _bind(server: grpc.aio.Server, listen: Address, certificates: Certificates | None) -> Address:
    try:
        if certificates is None:
            port = server.add_insecure_port(str(listen))
        else:
            port = server.add_secure_port(str(listen), certificates.credentials())
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
