"""A load of a thousand samples per second, pushed by two agents, while something is measured."""

import time
from collections.abc import Callable
from typing import TypeVar

from bench import ingest
from bench.ingest import PusherPool
from bench.pusher import LoadSpec, Report
from bench.query_dataset import log

PUSHED_PER_SECOND = 1_000
AGENTS, BATCH_SAMPLES = 2, 100

Result = TypeVar("Result")


class BackgroundIngest:
    """The load of these `AGENTS`, of which the pushes are prepared at once, and the collector has settled then."""

    def __init__(self, agents: PusherPool) -> None:
        self._agents = agents
        self.reports: list[Report] = []
        agents.run_load(LoadSpec(samples=BATCH_SAMPLES, begin_at=ingest.start_time(), seconds=1, per_second=1))

    def during(self, work: Callable[[], Result], *, seconds: float) -> Result:
        """Push while `work` runs, which should take at most `seconds`, and return its result."""
        per_second = PUSHED_PER_SECOND / BATCH_SAMPLES / AGENTS
        self._agents.send(
            LoadSpec(samples=BATCH_SAMPLES, begin_at=ingest.start_time(), seconds=seconds, per_second=per_second)
        )
        begun = time.monotonic()
        result = work()
        took = time.monotonic() - begun
        self.reports += self._agents.reports()
        if took > seconds:
            log(f"samples arrived during {seconds:.0f} of {took:.0f} s")
        return result

    @property
    def per_second(self) -> float:
        """Samples stored per second, from the first push of each period to its last reply."""
        spans: dict[float, float] = {}
        for report in self.reports:
            begun_at = round(report.begun_at)
            spans[begun_at] = max(spans.get(begun_at, 0.0), report.ended_at - report.begun_at)
        return sum(report.stored for report in self.reports) / sum(spans.values())
