"""The periodic jobs of a collector: everything that is repeated while it serves, with its interval."""

import asyncio

import structlog

from isochrone_collector.alerting import service
from isochrone_collector.jobs import drift_detection, incident_detection, registry, retention, rollup, watches
from isochrone_collector.jobs.drift_detection import DriftDetection
from isochrone_collector.jobs.incident_detection import IncidentDetection
from isochrone_collector.jobs.registry import Job, JobHealthCheck
from isochrone_collector.jobs.retention import Retention
from isochrone_collector.jobs.rollup import Rollup
from isochrone_collector.jobs.watches import FleetWatch, RouteWatch
from isochrone_collector.server.assembly import Parts
from isochrone_collector.server.certificates import OperatorFile
from isochrone_collector.settings import RetentionPeriods
from isochrone_collector.store import partitions
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_wire.model import SECOND_US

_log = structlog.get_logger()

_ACCESS_REFRESH_US = SECOND_US


def leader_jobs(parts: Parts, periods: RetentionPeriods) -> list[Job]:
    """Return the jobs that one collector does for all on the database: storage, alerts and route tables."""
    database, alerts, now_at = parts.database.patient(), parts.alerts, parts.clock.shared_at
    recent = parts.ingest.recent
    drift = DriftDetection(database=database, plans=parts.plans, alerting=alerts, clock=now_at, recent=recent)
    fleet = FleetWatch(database=database, plans=parts.plans, alerting=alerts, clock=now_at)
    incidents = IncidentDetection(
        database=database, plans=parts.plans, alerting=alerts, fleet=fleet, clock=now_at, recent=recent
    )
    routes = RouteWatch(database=database, alerting=alerts, clock=now_at)
    kept = Retention(database=database, clock=now_at, periods=periods)
    health = JobHealthCheck(database=database, health=parts.jobs.health, alerting=alerts, clock=now_at)
    guarded = parts.clock_watch.guarded

    async def make_partitions() -> None:
        parts.ingest.window = await partitions.ensure(database, now_at=now_at(), keep_us=periods.samples_us)

    parts.clock_watch.on_step = make_partitions
    return [
        Job(name="partitions", every_us=3600 * SECOND_US, work=make_partitions),
        guarded(Job(name="rollup", every_us=rollup.EVERY_US, work=Rollup(database=database, clock=now_at).run)),
        guarded(Job(name="retention", every_us=retention.EVERY_US, work=kept.run)),
        guarded(Job(name="absences", every_us=service.ABSENCE_CHECK_EVERY_US, work=alerts.check_absences)),
        Job(name="duplicate_agents", every_us=service.ABSENCE_CHECK_EVERY_US, work=alerts.check_duplicate_agents),
        Job(name="lost batches", every_us=service.ABSENCE_CHECK_EVERY_US, work=alerts.check_lost_batches),
        guarded(Job(name="incidents", every_us=incident_detection.EVERY_US, work=incidents.run)),
        guarded(Job(name="route alerts", every_us=watches.ROUTE_EVERY_US, work=routes.run)),
        guarded(Job(name="fleet", every_us=watches.FLEET_EVERY_US, work=fleet.run)),
        guarded(Job(name="drift", every_us=drift_detection.EVERY_US, work=drift.run)),
        Job(name="job health", every_us=registry.CHECK_EVERY_US, work=health.run),
        *(
            Job(name=f"alerts to {one.name}", every_us=one.EVERY_US, work=one.run, woken=one.woken)
            for one in alerts.receivers
        ),
        *parts.publishing.leader_jobs(),  # pause themselves
    ]


def local_jobs(parts: Parts, postgres: EmbeddedPostgres | None, operator: OperatorFile) -> list[Job]:
    """Return the jobs that every collector does for itself."""

    async def restart_postgres() -> None:
        if postgres is not None and await asyncio.to_thread(postgres.restart_if_gone):
            _log.error("postgres.restarted", pid=postgres.pid)

    async def reload_certificate() -> None:
        if parts.certificates is not None:
            await asyncio.to_thread(parts.certificates.refresh)
            await operator.write_if_changed(parts.certificates)

    async def check_certificate() -> None:
        held = parts.certificates
        message = held.current.expiry_alert(parts.clock.shared_at()) if held else None
        if message is not None:
            await parts.alerts.try_raise(message)

    works = (
        ("disk", watches.DISK_EVERY_US, parts.disk_watch.run),
        ("clock", watches.CLOCK_EVERY_US, parts.clock_watch.check),
        ("partition window", 60 * SECOND_US, parts.ingest.refresh_window),
        ("alert state", service.STATE_EVERY_US, parts.alert_state.run),
        ("plan", 2 * SECOND_US, parts.publishing.follow_plan),
        ("samples of the leader", SECOND_US, parts.publishing.follow_leader),
        ("embedded PostgreSQL", SECOND_US // 2, restart_postgres),
        ("access", _ACCESS_REFRESH_US, parts.authenticator.refresh),
        ("invitations", _ACCESS_REFRESH_US, parts.enrolment.refresh),
        ("certificate", 2 * SECOND_US, reload_certificate),
        ("certificate expiry", 600 * SECOND_US, check_certificate),
    )
    return [Job(name=name, every_us=every_us, work=work, leader_only=False) for name, every_us, work in works]
