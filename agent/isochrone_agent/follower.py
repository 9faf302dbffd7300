"""Following the plan: fetch the version in force, keep it on disk, refuse one this agent cannot run."""

import asyncio

import grpc.aio
import structlog

from isochrone_agent.credentials import Keyring
from isochrone_agent.dialects import DIALECTS
from isochrone_agent.errors import PlanRefused
from isochrone_agent.keeper import Keeper
from isochrone_agent.rounds import Rounds
from isochrone_agent.uplink import Collector
from isochrone_wire.model import Plan, Target

ASK_FOR_PLAN_SECONDS = 2.0

log = structlog.get_logger()


class PlanFollower:
    """Gets the plan in force, keeps it for a start without a collector, and refuses one it cannot run."""

    def __init__(self, collector: Collector, keeper: Keeper, keyring: Keyring, rounds: Rounds) -> None:
        self._collector = collector
        self._keeper = keeper
        self._keyring = keyring
        self._rounds = rounds
        self._refused_version: int | None = None

    async def obtain(self) -> None:
        """Take up the last good plan, if any, then ask the collector until it has answered with one."""
        last = await self._keeper.last_plan()
        if last is not None:
            self._rounds.take_up(last)
        while not await self._fetch():
            await asyncio.sleep(ASK_FOR_PLAN_SECONDS)

    async def follow(self, version: int) -> int:
        """Fetch the plan if `version` is not the one running; returns the version that runs now."""
        if version not in (0, self._rounds.plan_version, self._refused_version):
            await self._fetch()
        return self._rounds.plan_version

    async def _fetch(self) -> bool:
        try:
            plan = await self._collector.fetch_plan(self._rounds.plan_version or None)
        except grpc.aio.AioRpcError as error:
            log.warning("plan.unavailable", status=error.code().name, details=error.details())
            return False
        if plan is None or plan.version == 0:
            return bool(self._rounds.plan_version)
        try:
            check_plan(plan, self._keyring)
        except PlanRefused as error:
            self._refused_version = plan.version
            log.error("plan.refused", version=plan.version, reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback
            return False
        await self._keeper.keep_plan(plan)
        self._rounds.take_up(plan)
        return True


def check_plan(plan: Plan, keyring: Keyring) -> None:
    """Whether this agent can run `plan`. Raises `PlanRefused` naming every target it cannot probe, and why."""
    problems = [problem for target in plan.targets if (problem := _problem(target, keyring))]
    if problems:
        raise PlanRefused("; ".join(problems), hint="correct the plan, or this agent's credentials.toml")


def _problem(target: Target, keyring: Keyring) -> str | None:
    if target.dialect not in DIALECTS:
        return f"{target.name} speaks {target.dialect!r}, which this agent does not"
    credential = keyring.credentials.get(target.credential or "")
    if credential is not None and not credential.may_go_to(target):
        return f"{target.name} would send the credential {credential.name!r} to {target.base_url}"
    return None
