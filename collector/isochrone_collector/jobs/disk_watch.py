"""The disk watch: measures the free space of the data folder, and raises an alert when there is little.

A remote database has a disk of its own, which is not watched.
"""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import structlog

from isochrone_collector.alerts.message import of_collector
from isochrone_collector.disk_space import DiskLevel, DiskSpace
from isochrone_collector.jobs.alert_delivery import AlertDelivery
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import SECOND_US

EVERY_US = 2 * SECOND_US

_log = structlog.get_logger()


class DiskWatch:
    """The watch over the disk of `folder`; without one, there is always enough room."""

    def __init__(
        self,
        *,
        folder: Path | None,
        low_percent: float,
        alerting: AlertDelivery,
        clock: Callable[[], int],
    ) -> None:
        self._folder = folder
        self._low_percent = low_percent
        self._alerting = alerting
        self._clock = clock
        self._is_raised = False
        self.space: DiskSpace | None = None

    @property
    def level(self) -> DiskLevel:
        """The level as of the last `run`."""
        return self.space.level if self.space else DiskLevel.ENOUGH

    async def run(self) -> None:
        """Measure the free space, and report each change of the level."""
        if self._folder is None:
            return
        before = self.level
        usage = await asyncio.to_thread(shutil.disk_usage, self._folder)
        self.space = DiskSpace(free_bytes=usage.free, size_bytes=usage.total, low_percent=self._low_percent)
        if self.level is not before:
            report = _log.error if self.level else _log.info
            report("disk.level", room=self.level.name.lower(), free=str(self.space), folder=str(self._folder))
        if self.level is DiskLevel.ENOUGH:
            self._is_raised = False
        elif not self._is_raised:
            message = of_collector(AlertKind.DISK_LOW, str(self.space), raised_at=self._clock())
            self._is_raised = await self._alerting.try_raise(message)
