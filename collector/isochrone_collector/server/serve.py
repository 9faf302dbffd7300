"""The collector process. `serve` starts its parts from top to bottom; on a stop they end in reverse order."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

import grpc.aio
import structlog
from grpc_health.v1 import health, health_pb2
from prometheus_client.core import Metric

from isochrone_collector import process_tuning
from isochrone_collector.errors import DatabaseUnavailable, DatabaseUnreachable, StartError
from isochrone_collector.http_api.listener import serving, serving_socket
from isochrone_collector.http_api.sources import Sources
from isochrone_collector.server import metrics
from isochrone_collector.server.assembly import Parts, assemble
from isochrone_collector.server.certificates import Certificates, OperatorFile
from isochrone_collector.server.grpc_server import bind_front, bind_socket, grpc_server, socket_authenticator
from isochrone_collector.server.listen_check import check_unix_socket
from isochrone_collector.server.periodic_jobs import leader_jobs, local_jobs
from isochrone_collector.settings import Settings
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.connection import unverified_hosts
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_collector.store.postgres.pool import describe
from isochrone_common.address import UNIX, Address
from isochrone_common.cli.service import stop_event
from isochrone_common.credentials import format_fingerprint
from isochrone_common.local_socket import http_socket

_log = structlog.get_logger()

_GRACE_S = 5.0
_DATABASE_WITHIN_S = 30.0
_RETRY_S = 1.0

Value = TypeVar("Value")


async def serve(settings: Settings, announce: Callable[[Mapping[str, str]], None]) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. Raises `CollectorError` when that is not possible here.

    Once it serves, it calls `announce` with the address it listens on (`listen`, with the real port), the URL of `http`
    if that is served, the `socket` likewise, the kind of `database` and, under TLS, the `fingerprint` of its
    certificate and the path of the `operator` file, if it could be written.
    """
    stop_requested = stop_event()
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(_postgres(settings))
        conninfo = postgres.conninfo if postgres else settings.database_url or ""
        for host in unverified_hosts(conninfo):
            hint = "add sslmode=verify-full to the database URL, and sslrootcert=FILE for an authority of your own"
            _log.warning("database.unverified", host=host, hint=hint)
        parts = await _when_available(partial(_prepare, settings, conninfo, stack), stop_requested)
        if parts is None:
            return
        certificates, publisher = parts.certificates, parts.publishing.publisher

        sources = Sources(
            publisher=publisher,
            changes=parts.publishing.changes,
            plans=parts.plans,
            query_context=parts.query_context,
            authenticator=parts.authenticator,
            snapshots=parts.snapshots,
            rejections=parts.rejections,
            clock=parts.clock.shared_at,
            metrics=partial(_metrics, parts),
        )
        http = await stack.enter_async_context(
            serving(
                sources,
                settings.http,
                tls=certificates.context if certificates else None,
                allows_plain_text=not settings.https,
                hosts=settings.http_hosts,
                public_page=settings.public_page,
                public_targets=settings.public_targets,
            )
        )
        http_port = http.port if http else 0
        health_of, own = health.aio.HealthServicer(), socket_authenticator(parts)
        front = bind_front(settings.listen, certificates)
        stack.push_async_callback(front.close)
        address = front.listen
        servers = [
            grpc_server(parts, parts.authenticator, health_of, http_port=http_port, front=front),
            grpc_server(parts, own, health_of, http_port=http_port),
        ]
        local = await _listen_locally(settings, servers[1], replace(sources, authenticator=own), stack)
        operator = OperatorFile(
            data_dir=settings.data_dir, listen=address, http_port=http_port, enrolment=parts.enrolment
        )
        # Only with TLS do operators need a credential; without it, one that is left over would mislead them.
        write = partial(operator.write, certificates) if certificates else operator.remove
        await _when_available(write, stop_requested)
        async with asyncio.TaskGroup() as group:
            parts.jobs.add(*leader_jobs(parts, settings.retention), *local_jobs(parts, postgres, operator))
            works = parts.jobs.run(), parts.notifications.run(), publisher.run()
            tasks = [group.create_task(work) for work in works]
            process_tuning.tune_process()  # after everything that lives as long as the process exists
            for server in servers:
                await server.start()
            front.start()
            await health_of.set("", health_pb2.HealthCheckResponse.SERVING)
            identity = _identity(certificates, operator) | ({"socket": str(local)} if local else {})
            _log.info("collector.started", listen=str(address), **identity)
            urls = {"http": f"{'https' if settings.https else 'http'}://{http}"} if http else {}
            announce({"listen": str(address), "database": "embedded" if postgres else "external", **urls, **identity})

            await stop_requested.wait()
            _log.info("collector.stopping")
            await health_of.enter_graceful_shutdown()
            front.stop_accepting()
            parts.publishing.close()  # ends the watches, which the server would wait for
            await asyncio.gather(*(server.stop(_GRACE_S) for server in servers))
            for task in tasks:
                task.cancel()
    _log.info("collector.stopped")


async def _listen_locally(
    settings: Settings, server: grpc.aio.Server, sources: Sources, stack: AsyncExitStack
) -> Address | None:
    """Listen on the Unix sockets of gRPC and HTTP; return the first one's address. Raises `StartError` if required."""
    address = settings.unix_socket
    if address is None:
        return None
    path = Path(address.host.removeprefix(UNIX))
    http = Address(f"{UNIX}{http_socket(path)}", 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_unix_socket(http)
        bind_socket(server, address)
        await stack.enter_async_context(serving_socket(sources, http))
    except (OSError, StartError) as error:
        if settings.unix_socket_required:
            raise
        _log.warning("unix_socket.unavailable", listen=str(address), reason=str(error), hint="set --unix-socket PATH")
        return None
    return address


async def _prepare(settings: Settings, conninfo: str, stack: AsyncExitStack) -> Parts:
    """Migrate the database, and assemble the parts."""
    async with AsyncExitStack() as attempt:
        done = await asyncio.to_thread(schema.migrate, conninfo)
        if done.distributed:
            _log.info("database.distributed", tables=", ".join(done.distributed))
        migrated = done.before != done.after
        _log.info("database.ready", address=describe(conninfo), revision=done.after, migrated=migrated)
        parts = await assemble(settings, conninfo, attempt)
        stack.push_async_callback(attempt.pop_all().aclose)
        return parts


async def _when_available(work: Callable[[], Awaitable[Value]], stop_requested: asyncio.Event) -> Value | None:
    """Do what needs the database once it is there; `None` if a stop is requested meanwhile."""
    deadline = time.monotonic() + _DATABASE_WITHIN_S
    while not stop_requested.is_set():
        try:
            return await work()
        except (DatabaseUnavailable, DatabaseUnreachable) as error:
            if not error.is_passing or time.monotonic() > deadline:
                raise
            _log.warning("database.waiting", reason=str(error))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop_requested.wait(), _RETRY_S)
    return None


@asynccontextmanager
async def _postgres(settings: Settings) -> AsyncIterator[EmbeddedPostgres | None]:
    """Run the embedded server for the length of the block; yield `None` when the operator configured a database."""
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


def _metrics(parts: Parts) -> Iterator[Metric]:
    """Return the metrics of now. What the event loop changes is read at once."""
    publisher, totals = parts.publishing.publisher, parts.ingest.probe_totals
    return chain(
        metrics.families(
            parts.push_metrics.registry,
            series=list(totals.series()),
            left_out=dict(totals.left_out),
            plan_version=parts.plans.version,
            pool=parts.database.statistics(),
            jobs=parts.jobs.health(),
            clock=parts.clock,
            expiring=parts.authenticator.expiring(),
            disk=parts.disk_watch.space,
            alerts=parts.alert_state,
            deliveries={one.name: one.results for one in parts.alerts.receivers},
        ),
        metrics.table_families(
            publisher.in_force(),
            switches=publisher.switches,
            rejections=parts.rejections.counts,
            watchers=publisher.watchers,
            now_at=parts.clock.shared_at(),
        ),
    )


def _identity(certificates: Certificates | None, operator: OperatorFile) -> dict[str, str]:
    if certificates is None:
        return {}
    written = {"operator": str(operator.path)} if operator.path.exists() else {}
    return {"fingerprint": format_fingerprint(certificates.current.fingerprint), **written}
