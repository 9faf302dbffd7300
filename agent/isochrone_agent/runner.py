"""`isochrone-agent run`, from top to bottom: open the spool, get a plan, probe its rounds, deliver the samples.

A round that is due becomes a task; the task ends in exactly one sample, which is in the spool before anything else
happens to it. The uplink empties the spool beside it, at its own pace. Without a collector the last plan runs on and
the spool fills; without a plan there is nothing to do but ask for one.
"""

import asyncio
import contextlib

import grpc.aio
import structlog

from isochrone_agent.credentials import load_keyring
from isochrone_agent.errors import CollectorRefused
from isochrone_agent.follower import PlanFollower
from isochrone_agent.keeper import Keeper
from isochrone_agent.prober import Prober
from isochrone_agent.rounds import Rounds
from isochrone_agent.settings import Settings
from isochrone_agent.trust import tls_context
from isochrone_agent.uplink import Collector, Uplink
from isochrone_wire.habits import CLIENT_OPTIONS

GRACE_SECONDS = 5.0
DRAIN_SECONDS = 3.0

log = structlog.get_logger()


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Measure until `stop` is set; then let probes in flight end, deliver what can be delivered, and return.

    Raises `AgentError` when the spool cannot be opened or the collector refuses this agent.
    """
    keyring = load_keyring(settings.credentials)
    tls = tls_context(settings.ca_file)
    async with (
        Keeper(settings.data_dir / "spool.sqlite3") as keeper,
        grpc.aio.insecure_channel(str(settings.collector), options=CLIENT_OPTIONS) as channel,
    ):
        collector = Collector(channel=channel, vantage=settings.vantage)
        prober = Prober(vantage=settings.vantage.name, tls=tls, dialling=settings.dialling)
        rounds = Rounds(prober, keeper, keyring, concurrency=settings.concurrency)
        plans = PlanFollower(collector, keeper, keyring, rounds)
        uplink = Uplink(collector, keeper, on_plan_version=plans.follow)
        log.info("agent.started", vantage=settings.vantage.name, region=settings.vantage.region)
        try:
            await _work_until(stop, plans, rounds, uplink)
        finally:
            log.info("agent.stopping", in_flight=rounds.in_flight)
            await rounds.finish(GRACE_SECONDS)
            await prober.aclose()
            log.info("agent.stopped", spooled=(await keeper.depth()).waiting)


async def _work_until(stop: asyncio.Event, plans: PlanFollower, rounds: Rounds, uplink: Uplink) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            working = [group.create_task(work) for work in (plans.obtain(), rounds.run(), uplink.run())]
            await stop.wait()
            for task in working:
                task.cancel()
    except* CollectorRefused as refused:
        raise refused.exceptions[0] from None
    await rounds.finish(GRACE_SECONDS)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(uplink.drain(), DRAIN_SECONDS)
