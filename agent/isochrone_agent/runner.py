"""`isochrone-agent run`, from top to bottom: open the spool, get a plan, probe its rounds, deliver the samples.

A round that is due becomes a task; the task ends in exactly one sample, which is in the spool before anything else
happens to it. The uplink empties the spool beside it, at its own pace. Without a collector the last plan runs on and
the spool fills; without a plan there is nothing to do but ask for one.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from functools import partial

import structlog

from isochrone_agent.delivery.push_metrics import PushMetrics
from isochrone_agent.delivery.reconnecting_channel import ReconnectingChannel
from isochrone_agent.delivery.uplink import CollectorClient, Uplink
from isochrone_agent.delivery.vitals import Conditions
from isochrone_agent.errors import CredentialError, SpoolError
from isochrone_agent.file_watch import FileWatch
from isochrone_agent.plan.credentials import Keyring, load_keyring
from isochrone_agent.plan.round_runner import RoundRunner
from isochrone_agent.plan.watcher import PlanWatcher
from isochrone_agent.probe.prober import Prober
from isochrone_agent.probe.tls import tls_context
from isochrone_agent.settings import Settings
from isochrone_agent.spool.async_spool import AsyncSpool
from isochrone_wire.metrics_endpoint import serve_metrics

GRACE_SECONDS = 5.0
DRAIN_SECONDS = 3.0
WATCH_SECONDS = 2.0

log = structlog.get_logger()


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Measure until `stop` is set; then let probes in flight end, deliver what can be delivered, and return.

    Raises `AgentError` when the settings do not hold or the spool cannot be opened; a collector that refuses this agent
    only stops the pushing.
    """
    keyring = load_keyring(settings.credentials)
    tls = tls_context(settings.ca_file)
    async with (
        _opened_spool(settings) as spool,
        ReconnectingChannel(settings) as line,
        contextlib.AsyncExitStack() as doors,
    ):
        meter = PushMetrics(line.channel)
        collector = CollectorClient(
            channel=meter.channel if settings.metrics else line.channel, vantage=settings.vantage
        )
        prober = Prober(vantage=settings.vantage.name, tls=tls, dial_options=settings.dial_options)
        rounds = RoundRunner(prober, spool, keyring, concurrency=settings.concurrency)
        plan_watcher = PlanWatcher(collector, spool, keyring, rounds)
        uplink = Uplink(
            collector,
            spool,
            on_plan_version=plan_watcher.update_to,
            conditions=partial(_conditions, rounds, plan_watcher),
        )
        log.info("agent.started", vantage=settings.vantage.name, region=settings.vantage.region)
        doors.enter_context(_scraped(settings, meter, rounds))
        try:
            await _work_until(stop, plan_watcher, rounds, uplink, _watch(settings, line, keyring))
        finally:
            log.info("agent.stopping", in_flight=rounds.in_flight)
            await rounds.finish(GRACE_SECONDS)
            await prober.aclose()
            log.info("agent.stopped", spooled=(await spool.stats()).waiting)


def _opened_spool(settings: Settings) -> AsyncSpool:
    path = settings.data_dir / "spool.sqlite3"
    return AsyncSpool(path, limit_bytes=settings.spool_limit_bytes, drain=settings.drain)


def _conditions(rounds: RoundRunner, plan_watcher: PlanWatcher) -> Conditions:
    return Conditions(plan_version=rounds.plan_version, rounds_missed=rounds.missed, refused_plan=plan_watcher.refused)


@contextlib.contextmanager
def _scraped(settings: Settings, meter: PushMetrics, rounds: RoundRunner) -> Iterator[None]:
    """Metrics, if they are wanted; that nobody can read them is no reason not to measure."""
    if settings.metrics is None:
        yield
        return
    from isochrone_agent import metrics  # noqa: PLC0415  # brings a library that an agent without metrics need not carry

    families = partial(
        metrics.families,
        settings.vantage,
        vitals=lambda: meter.vitals,
        probes=rounds.outcomes,
        pushes=meter.pushes,
        missed=lambda: rounds.missed,
        spool=settings.data_dir / "spool.sqlite3",
    )
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(serve_metrics(settings.metrics, families))
            log.info("metrics.started", listen=str(address))
        except OSError as error:
            log.warning("metrics.unavailable", listen=str(settings.metrics), reason=str(error))
        yield


async def _watch(settings: Settings, line: ReconnectingChannel, keyring: Keyring) -> None:
    """Take up the identity and the credentials file when they change; the next push looks at a refused plan again."""
    keys = FileWatch([settings.credentials] if settings.credentials else [])
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        line.refresh()
        if keys.changed():
            try:
                keyring.renew(load_keyring(settings.credentials))
                log.info("credentials.renewed", known=sorted(keyring.credentials))
            except CredentialError as error:
                log.error("credentials.unusable", reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback


async def _work_until(
    stop: asyncio.Event,
    plan_watcher: PlanWatcher,
    rounds: RoundRunner,
    uplink: Uplink,
    watching: Coroutine[None, None, None],
) -> None:
    async with asyncio.TaskGroup() as group:
        working = [
            group.create_task(work) for work in (plan_watcher.wait_for_plan(), rounds.run(), uplink.run(), watching)
        ]
        await stop.wait()
        for task in working:
            task.cancel()
    await rounds.finish(GRACE_SECONDS)
    with contextlib.suppress(TimeoutError, SpoolError):
        await asyncio.wait_for(uplink.drain(), DRAIN_SECONDS)
