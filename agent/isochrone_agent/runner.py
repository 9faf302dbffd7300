"""`isochrone-agent run`, from top to bottom: open the spool, get a plan, probe its rounds, deliver the samples.

`ProbeScheduler` turns a round that is due into a task, which ends in one sample (a burst: one per stream) in the spool.
`PushClient` delivers the spool at its own pace. Without a collector the last plan keeps running and the spool fills.
An agent without a plan probes nothing. An agent with `--plan` has no collector, and only exports samples.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from isochrone_agent.collector_client import CollectorClient, ReconnectingChannel
from isochrone_agent.errors import CredentialError, SettingsError, SpoolError
from isochrone_agent.plan.credentials import Keyring, describe_missing, load_keyring
from isochrone_agent.plan.plan_watcher import PlanFile, PlanWatcher, SignedPlans, pinned_key
from isochrone_agent.plan.policy import Policy, describe_refused, load_policy
from isochrone_agent.plan.probe_scheduler import ProbeScheduler
from isochrone_agent.probe.prober import Prober
from isochrone_agent.probe.transport import tls_context
from isochrone_agent.push_client import PushClient
from isochrone_agent.settings import Settings
from isochrone_agent.spool.spool import AsyncSpool
from isochrone_common.files import FileWatch
from isochrone_common.metrics_server import serve_metrics
from isochrone_wire.model import Heartbeat, Sample, Spend

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from isochrone_agent.otlp import OtlpExport

GRACE_SECONDS = 5.0
DRAIN_SECONDS = 3.0
LAST_SECONDS = 1.0
RELOAD_SECONDS = 2.0

log = structlog.get_logger()


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Measure until `stop` is set; then end the probes in flight and deliver the rest. Raises `AgentError`."""
    keyring = load_keyring(settings.credentials)
    policy = load_policy(settings)
    plan_key = policy.plan_key or (settings.identity.plan_key if settings.identity else None)
    signed_plans = SignedPlans(pinned_key(plan_key))
    async with (
        AsyncSpool(
            settings.spool_path,
            limit_bytes=settings.spool_limit_bytes,
            keep_bytes=settings.keep_delivered_bytes,
            drain=settings.drain,
        ) as spool,
        ReconnectingChannel(settings) as connection,
        otlp_export(settings) as export,
        probing(settings, policy, keyring, spool, export) as rounds,
    ):
        collector = CollectorClient(
            channel=lambda: connection.current,
            vantage=settings.vantage,
            on_fingerprints=partial(setattr, connection, "fingerprints"),
        )
        plan_watcher = PlanWatcher(collector, spool, keyring, rounds, signed_plans)
        push_client = PushClient(
            collector,
            spool,
            on_plan=plan_watcher.update_to,
            conditions=partial(_conditions, rounds, plan_watcher),
        )
        log.info("agent.started", vantage=settings.vantage.name, region=settings.vantage.region, policy=str(policy))

        def delivery() -> dict[str, Any]:
            expires_at = connection.identity.expires_at if connection.identity else None
            return {"newest": collector.heartbeat, "pushes": collector.pushes, "expires_at": expires_at}

        with metrics_endpoint(settings, rounds, lambda: plan_watcher.refused, export=export, delivery=delivery):
            await run_until(
                stop,
                # Ends once a plan runs; later versions come with receipts (`on_plan`).
                plan_watcher.wait_for_plan(),
                rounds.run(),
                push_client.run(),
                reload_files(settings, keyring, connection.refresh),
            )
            log.info("agent.stopping", in_flight=rounds.in_flight)
            await rounds.finish(GRACE_SECONDS)
            for ending, seconds in ((push_client.drain, DRAIN_SECONDS), (push_client.announce_stop, LAST_SECONDS)):
                with contextlib.suppress(TimeoutError, SpoolError):
                    await asyncio.wait_for(ending(), seconds)


@contextlib.asynccontextmanager
async def probing(
    settings: Settings, policy: Policy, keyring: Keyring, spool: AsyncSpool, export: "OtlpExport | None"
) -> "AsyncIterator[ProbeScheduler]":
    """Yield the rounds of this agent; at the end wait for the probes in flight, and close the connections."""
    prober = Prober(
        vantage=settings.vantage.name,
        tls=tls_context(settings.ca_file),
        dial_options=settings.dial_options,
        destinations=policy.destinations,
        error_chars=policy.error_chars,
        tls_folder=policy.tls_files or Path(),
        ca_file=settings.ca_file,
        on_probe=export.offer if export else None,
    )
    rounds = ProbeScheduler(prober, spool, keyring, concurrency=settings.concurrency, policy=policy)
    try:
        yield rounds
    finally:
        await rounds.finish(GRACE_SECONDS)  # has nothing to do unless one of the parts failed
        await prober.aclose()
        log.info("agent.stopped", spooled=(await spool.stats()).waiting)


@contextlib.asynccontextmanager
async def otlp_export(settings: Settings) -> "AsyncIterator[OtlpExport | None]":
    """Export probes over OTLP during the block, if the settings ask for it and the extra is installed."""
    if settings.otlp_endpoint is None:
        yield None
        return
    try:
        from isochrone_agent.otlp import OtlpExport  # noqa: PLC0415  # imports the SDK, an extra
    except ImportError as error:
        log.warning("otlp.unavailable", reason=str(error), hint="pip install 'isochrone[otel]'")
        yield None
        return
    export = OtlpExport(settings.otlp_endpoint, settings.vantage)
    try:
        yield export
    finally:
        await asyncio.to_thread(export.close)


def _conditions(rounds: ProbeScheduler, plan_watcher: PlanWatcher) -> Heartbeat:
    refused_version, refused_reason = plan_watcher.refused or (None, None)
    return Heartbeat(
        plan_version=rounds.plan.version,
        rounds_missed=rounds.missed,
        refused_plan_version=refused_version,
        refused_plan_reason=refused_reason,
        missing_keys=describe_missing(rounds.missing_keys) or None,
        refused_targets=describe_refused(rounds.refused_targets) or None,
    )


@contextlib.contextmanager
def metrics_endpoint(
    settings: Settings,
    rounds: ProbeScheduler,
    refused: Callable[[], tuple[int, str] | None],
    *,
    export: "OtlpExport | None" = None,
    delivery: Callable[[], dict[str, Any]] | None = None,
) -> Iterator[None]:
    """Serve metrics during the block, if the settings ask for them. A port that is in use is logged, not an error."""
    if settings.metrics is None:
        yield
        return
    from isochrone_agent import metrics  # noqa: PLC0415  # imports prometheus_client, a tenth of the agent's memory

    def families() -> "Iterator[Metric]":
        dropped, refused_version = export.dropped if export else None, (refused() or (0, ""))[0]
        yield from metrics.families(settings.vantage, rounds, refused_version=refused_version, export_dropped=dropped)
        if delivery:
            yield from metrics.delivery_families(spool=settings.spool_path, **delivery())

    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(serve_metrics(settings.metrics, families))
            log.info("metrics.started", listen=str(address))
            if not address.is_loopback:
                hint = "machines that reach this port can read names and latencies of targets: limit it by a firewall"
                log.warning("metrics.exposed", listen=str(address), hint=hint)
        except OSError as error:
            log.warning("metrics.unavailable", listen=str(settings.metrics), reason=str(error))
        yield


async def reload_files(settings: Settings, keyring: Keyring, others: Callable[[], Awaitable[None]]) -> None:
    """Load the credentials file again when it changes, and call `others`, which does that for other files."""
    credentials = FileWatch([settings.credentials] if settings.credentials else [])
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        if credentials.changed():
            # If the file is not valid, the previous credentials stay.
            try:
                keyring.credentials = load_keyring(settings.credentials).credentials
                log.info("credentials.renewed", known=sorted(keyring.credentials))
            except CredentialError as error:
                log.error("credentials.unusable", reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback
        await others()


async def run_until(stop: asyncio.Event, *parts: Coroutine[Any, Any, None]) -> None:
    """Run all `parts` concurrently until `stop` is set, or until one of them raises."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part) for part in parts]
        await stop.wait()
        for task in tasks:
            task.cancel()


class _SpendOnly(AsyncSpool):
    """A spool that stores what a sample has cost, and not the sample."""

    async def record(self, sample: Sample, spends: Sequence[Spend] = ()) -> None:  # noqa: ARG002  # see above
        """Add `spends`, the cost of the sample."""
        if spends:
            await self.reserve(spends)


async def run_standalone(settings: Settings, stop: asyncio.Event) -> None:
    """Probe the plan of a file until `stop` is set. Raises `AgentError` when the settings or the plan are not valid."""
    assert settings.plan is not None
    keyring, policy = load_keyring(settings.credentials), load_policy(settings)
    if policy.plan_key is not None:
        raise SettingsError("the policy requires signed plans, and a plan file has no signature", hint="omit --plan")
    async with (
        _SpendOnly(settings.spool_path, limit_bytes=settings.spool_limit_bytes) as spool,
        otlp_export(settings) as export,
        probing(settings, policy, keyring, spool, export) as rounds,
    ):
        plan_file = PlanFile(settings.plan, keyring, rounds)
        await plan_file.load()
        log.info("agent.started", vantage=settings.vantage.name, region=settings.vantage.region, policy=str(policy))
        if settings.metrics is None and export is None:
            hint = "samples are neither stored nor exported: set --metrics-listen or --otlp-endpoint"
            log.warning("metrics.off", hint=hint)
        with metrics_endpoint(settings, rounds, lambda: plan_file.refused, export=export):
            await run_until(stop, rounds.run(), reload_files(settings, keyring, plan_file.reload_if_changed))
        log.info("agent.stopping", in_flight=rounds.in_flight)
