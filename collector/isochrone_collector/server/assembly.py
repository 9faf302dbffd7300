from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from isochrone_collector.alerting.service import AlertService, AlertState
from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.auth.enrolment import Enrolment
from isochrone_collector.clock import ClockGuard
from isochrone_collector.grpc_api.services import PushMetrics
from isochrone_collector.ingest.row_encoder import RowEncoder
from isochrone_collector.ingest.service import Ingest
from isochrone_collector.jobs import watches
from isochrone_collector.jobs.registry import Jobs, Notifications
from isochrone_collector.jobs.watches import ClockWatch, DiskWatch
from isochrone_collector.plans.service import Plans
from isochrone_collector.publishing.service import Publishing
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.receivers import Receiver
from isochrone_collector.server.certificates import Certificates
from isochrone_collector.settings import Settings
from isochrone_collector.store import partitions
from isochrone_collector.store.batches import RecentBatches
from isochrone_collector.store.job_state import Channel
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.xds.snapshots import Rejections, Snapshots

if TYPE_CHECKING:
    from isochrone_collector.alerting.delivery import ReceiverDelivery

# For callers without a credential.
_JOIN_CONNECTIONS = 2

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that services and jobs work with; `certificates` only under TLS."""

    clock: ClockGuard
    clock_watch: ClockWatch
    disk_watch: DiskWatch
    database: Database
    plans: Plans
    ingest: Ingest
    query_context: QueryContext
    authenticator: Authenticator
    enrolment: Enrolment
    alerts: AlertService
    alert_state: AlertState
    jobs: Jobs
    notifications: Notifications
    publishing: Publishing
    snapshots: Snapshots
    rejections: Rejections
    push_metrics: PushMetrics
    certificates: Certificates | None


async def assemble(settings: Settings, conninfo: str, stack: AsyncExitStack) -> Parts:
    """Create the parts on a migrated database, and register their cleanup on the stack. Raises `CollectorError`."""
    database = await _opened(Database(conninfo), stack)
    clock = await watches.guard(database)
    plans = Plans(database=database, clock=clock.shared_at)
    await plans.refresh()
    jobs = Jobs(database=database, clock=clock.shared_at)
    notifications = Notifications(database=database)
    recent = RecentBatches()
    publishing = await _publishing(database, plans, jobs, clock, notifications, recent=recent)
    receivers = _receivers(settings.receivers, database, clock, stack)
    alerts = AlertService(database=database, receivers=receivers, clock=clock.shared_at)
    notifications.handle(Channel.ALERTS, alerts.wake)
    # Without a database URL the data folder has the embedded PostgreSQL.
    folder = settings.data_dir if settings.database_url is None else None
    low = settings.disk_low_percent
    disk_watch = DiskWatch(folder=folder, low_percent=low, alerting=alerts, clock=clock.shared_at)
    await disk_watch.run()
    reached = settings.http if settings.http and settings.listen.is_loopback else settings.listen
    certificates = (
        Certificates(settings.tls, data_dir=settings.data_dir, host=reached.host) if settings.tls is not None else None
    )
    authenticator = Authenticator(
        database=database, clock=clock.database_at, required=certificates is not None, proxy=settings.proxy
    )
    await authenticator.refresh()
    join_database = await _opened(Database(conninfo, max_connections=_JOIN_CONNECTIONS), stack)
    # A pool for queries, so that they never keep pushes waiting for a connection.
    query_database = await _opened(Database(conninfo, statement_timeout_us=settings.question_timeout_us), stack)
    return Parts(
        clock=clock,
        clock_watch=ClockWatch(database=database, guard=clock, alerting=alerts),
        disk_watch=disk_watch,
        database=database,
        plans=plans,
        ingest=await _ingest(
            settings,
            stack,
            database=database,
            plans=plans,
            clock=clock,
            disk_watch=disk_watch,
            publishing=publishing,
            recent=recent,
        ),
        query_context=QueryContext(
            database=query_database,
            plans=plans,
            clock=clock.shared_at,
            webhook=bool(settings.receivers),
            paused=lambda: clock.reason,
            certificate=lambda at: certificates.current.expiry_alert(at) if certificates else None,
            region_places=settings.region_places,
        ),
        authenticator=authenticator,
        enrolment=Enrolment(
            database=database,
            join_database=join_database,
            clock=clock.database_at,
            fingerprint=lambda: certificates.current.fingerprint if certificates else b"",
            on_change=authenticator.refresh,
        ),
        alerts=alerts,
        alert_state=AlertState(database=database, plans=plans, clock=clock.shared_at, receivers=settings.receivers),
        jobs=jobs,
        notifications=notifications,
        publishing=publishing,
        snapshots=Snapshots(publisher=publishing.publisher, plans=plans, clock=clock.shared_at),
        rejections=Rejections(),
        push_metrics=PushMetrics(clock=clock.shared_at),
        certificates=certificates,
    )


async def _opened(database: Database, stack: AsyncExitStack) -> Database:
    await database.open()
    stack.push_async_callback(database.close)
    return database


async def _publishing(
    database: Database,
    plans: Plans,
    jobs: Jobs,
    clock: ClockGuard,
    notifications: Notifications,
    *,
    recent: RecentBatches,
) -> Publishing:
    publishing = Publishing(
        database=database,
        plans=plans,
        notifications=notifications,
        is_leader=lambda: jobs.is_leader,
        clock=clock.shared_at,
        is_paused=lambda: bool(clock.reason),
        recent=recent,
    )
    await publishing.publisher.refresh()
    return publishing


async def _ingest(
    settings: Settings,
    stack: AsyncExitStack,
    *,
    database: Database,
    plans: Plans,
    clock: ClockGuard,
    disk_watch: DiskWatch,
    publishing: Publishing,
    recent: RecentBatches,
) -> Ingest:
    """Create the ingest, with a partition for each round that it accepts."""
    keep_us = settings.retention.samples_us
    window = await partitions.ensure(database.patient(), now_at=clock.shared_at(), keep_us=keep_us)
    encoder = RowEncoder(processes=True)
    stack.push_async_callback(encoder.close)
    ingest = Ingest(
        database=database,
        plans=plans,
        window=window,
        clock=clock.shared_at,
        hear_vantage=clock.hear_vantage,
        disk_level=lambda: disk_watch.level,
        on_stored=publishing.stored,
        recent=recent,
        keep_us=keep_us,
        encoder=encoder,
    )
    await ingest.load()
    return ingest


def _receivers(
    chosen: Sequence[Receiver], database: Database, clock: ClockGuard, stack: AsyncExitStack
) -> "list[ReceiverDelivery]":
    if not chosen:
        return []
    from isochrone_collector.alerting.delivery import ReceiverDelivery  # noqa: PLC0415  # httpx, only for receivers

    found = []
    for receiver in chosen:
        _log.info("receiver.set", name=receiver.name, format=receiver.format.value, address=receiver.shown)
        delivery = ReceiverDelivery(receiver, database=database.patient(), clock=clock.shared_at)
        stack.push_async_callback(delivery.close)
        found.append(delivery)
    return found
