"""When the builder decides: at the end of a burst of pushes, or after a moment of many."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from fixtures.inprocess_collector import InProcessCollector
from isochrone_collector.ingest.service import Ingest
from isochrone_collector.publishing import builder as builder_module
from isochrone_collector.publishing.builder import RouteBuilder
from isochrone_wire.model import SECOND_US, Vantage

US = Vantage(name="us-1", region="us")
NOW_AT = 1_795_276_800_000_000


class CountingBuilder(RouteBuilder):
    decisions = 0

    async def _build_once(self) -> None:
        self.decisions += 1


@pytest.fixture
async def builder(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CountingBuilder]:
    """A running builder that has decided once, and decides again only when it is woken."""
    monkeypatch.setattr(builder_module, "_POLL_US", 60 * SECOND_US)
    builder = CountingBuilder(
        database=local.database, plans=local.plans, clock=local.clock, code_version="1", on_published=lambda _: None
    )
    task = asyncio.create_task(builder.build())
    await until_decided(builder, 1)
    yield builder
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until_decided(builder: CountingBuilder, times: int) -> None:
    async with asyncio.timeout(30):
        while builder.decisions < times:
            await asyncio.sleep(0.001)


async def test_a_burst_is_decided_once_stored(builder: CountingBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """While samples of other pushes wait to be stored there is no decision, and one follows the last of them."""
    monkeypatch.setattr(builder_module, "_GATHER_S", 60)
    builder.wake(more_follow=True)
    await asyncio.sleep(0.02)
    builder.wake(more_follow=True)
    await asyncio.sleep(0.02)
    assert builder.decisions == 1
    builder.wake()
    await until_decided(builder, 2)


async def test_endless_pushes_are_decided(builder: CountingBuilder) -> None:
    """If more samples always follow, those of a tenth of a second are decided together."""
    begun = time.monotonic()
    while builder.decisions == 1:
        builder.wake(more_follow=True)
        await asyncio.sleep(0.005)
    assert time.monotonic() - begun >= 0.1


async def test_ingest_reports_what_waits(local: InProcessCollector) -> None:
    """After each commit ingest reports how many samples wait for the next one: none after the last."""
    await local.begin(NOW_AT)
    waiting: list[int] = []
    local.ingest = Ingest(
        database=local.database,
        plans=local.plans,
        window=local.ingest.window,
        clock=local.clock,
        on_stored=waiting.append,
    )
    await local.push(US, [local.sample(NOW_AT)])
    first = asyncio.create_task(local.push(US, [local.sample(NOW_AT + 1)]))
    for _ in range(3):  # until its commit has begun, which takes several answers of the database
        await asyncio.sleep(0)
    await asyncio.gather(first, local.push(US, [local.sample(NOW_AT + 2), local.sample(NOW_AT + 3)]))
    assert waiting == [0, 2, 0]
