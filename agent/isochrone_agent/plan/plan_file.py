"""A plan in a file, for an agent without a collector."""

import asyncio
from pathlib import Path

import structlog

from isochrone_agent.errors import AgentError, SettingsError
from isochrone_agent.file_watch import FileWatch
from isochrone_agent.plan.credentials import Keyring
from isochrone_agent.plan.round_runner import RoundRunner
from isochrone_agent.plan.watcher import check_plan
from isochrone_wire.model import Plan

log = structlog.get_logger()


class PlanFile:
    """Keeps the rounds running on the plan of a file. Its versions count from 1. If a changed file cannot be run, the
    previous plan stays in force, and `refused` is the version of the file and the reason.
    """

    def __init__(self, path: Path, keyring: Keyring, rounds: RoundRunner) -> None:
        self._path = path
        self._keyring = keyring
        self._rounds = rounds
        self._version = 0
        self._watch = FileWatch([path])
        self.refused: tuple[int, str] | None = None

    async def load(self) -> None:
        """Run the plan of the file. Raises `SettingsError` and `PlanRefused`."""
        self._version += 1
        plan = await asyncio.to_thread(read_plan, self._path, self._version)
        check_plan(plan, self._keyring)
        self._rounds.apply_plan(plan)
        self.refused = None

    async def reload_if_changed(self) -> None:
        """Run the plan of the file again if it was changed."""
        if not self._watch.changed():
            return
        try:
            await self.load()
        except AgentError as error:
            self.refused = (self._version, str(error))
            log.error("plan.refused", version=self._version, reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback


def read_plan(path: Path, version: int) -> Plan:
    """Return the plan of a file. Raises `SettingsError` with all problems of its text."""
    try:
        # Only an agent without a collector needs pydantic and PyYAML.
        from isochrone_wire.plan_document.document import load  # noqa: PLC0415
    except ImportError as error:
        hint = "install the extra `standalone`: pip install 'isochrone[standalone]'"
        raise SettingsError(f"plan files cannot be read without the package {error.name}", hint=hint) from error
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}", hint="see isochrone-agent run --help") from error
    reading = load(text, version=version)
    if reading.plan is None:
        raise SettingsError(f"{path}: {'; '.join(reading.problems)}", hint="see docs/collector.md, Plans")
    return reading.plan
