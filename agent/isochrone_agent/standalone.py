"""`isochrone-agent run --plan`: an agent without a collector, whose samples are only exported, as metrics and traces.

The spool has the spend of the day, so that budgets and the limits of the policy hold across restarts, and no samples.
"""

import asyncio
from collections.abc import Sequence

import structlog

from isochrone_agent.errors import SettingsError
from isochrone_agent.plan.credentials import load_keyring
from isochrone_agent.plan.plan_file import PlanFile
from isochrone_agent.plan.policy import load_policy
from isochrone_agent.plan.round_runner import RoundRunner
from isochrone_agent.probe.tls import tls_context
from isochrone_agent.runner import (
    GRACE_SECONDS,
    metrics_endpoint,
    new_prober,
    otlp_export,
    reload_files,
    run_until,
)
from isochrone_agent.settings import Settings
from isochrone_agent.spool.async_spool import AsyncSpool
from isochrone_wire.model import Sample, Spend

log = structlog.get_logger()


class _SpendOnly(AsyncSpool):
    """A spool that stores what a sample has cost, and not the sample."""

    async def record(self, sample: Sample, spends: Sequence[Spend] = ()) -> None:  # noqa: ARG002  # see above
        """Add `spends`, the cost of the sample."""
        if spends:
            await self.reserve(spends)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Probe the plan of a file until `stop` is set. Raises `AgentError` when the settings or the plan are not valid."""
    assert settings.plan is not None
    keyring, policy = load_keyring(settings.credentials), load_policy(settings)
    if policy.plan_key is not None:
        raise SettingsError("the policy requires signed plans, and a plan file has no signature", hint="omit --plan")
    tls = tls_context(settings.ca_file)
    async with (
        _SpendOnly(settings.spool_path, limit_bytes=settings.spool_limit_bytes) as spool,
        otlp_export(settings) as export,
    ):
        prober = new_prober(settings, policy, tls, export)
        rounds = RoundRunner(prober, spool, keyring, concurrency=settings.concurrency, policy=policy)
        plan_file = PlanFile(settings.plan, keyring, rounds)
        try:
            await plan_file.load()
            log.info("agent.started", vantage=settings.vantage.name, region=settings.vantage.region, policy=str(policy))
            if settings.metrics is None and export is None:
                hint = "samples are neither stored nor exported: set --metrics-listen or --otlp-endpoint"
                log.warning("metrics.off", hint=hint)
            with metrics_endpoint(settings, rounds, lambda: plan_file.refused, export=export):
                await run_until(stop, rounds.run(), reload_files(settings, keyring, plan_file.reload_if_changed))
            log.info("agent.stopping", in_flight=rounds.in_flight)
        finally:
            await rounds.finish(GRACE_SECONDS)
            await prober.aclose()
            log.info("agent.stopped")
