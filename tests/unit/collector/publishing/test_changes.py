"""Notices of new data: shared, complete, and at most one per pause."""

import asyncio
from contextlib import AsyncExitStack, aclosing

import pytest

from isochrone_collector.errors import ResourceExhausted
from isochrone_collector.publishing.changes import ChangeEvent, Changes, Topic
from isochrone_wire.model import SECOND_US

MS = SECOND_US // 1000
WITHIN_S = 20.0


def changes(*, pause_us: int = 0, heartbeat_us: int = 3600 * SECOND_US, max_watchers: int = 10) -> Changes:
    """Return a source as of the instant 5, with generation 3."""
    return Changes(
        clock=lambda: 5,
        state=lambda: (3, None),
        pause_us=pause_us,
        heartbeat_us=heartbeat_us,
        max_watchers=max_watchers,
    )


def notice(*topics: Topic) -> ChangeEvent:
    return ChangeEvent(topics=topics, sent_at=5, refresh_us=SECOND_US, generation=3, stale_since_at=None)


async def test_every_watcher_gets_each_topic() -> None:
    """A watch begins without topics; those added together come once, later ones in the next notice."""
    source = changes()
    async with asyncio.timeout(WITHIN_S), aclosing(source.watch()) as one, aclosing(source.watch()) as other:
        assert [await anext(one), await anext(other)] == [notice(), notice()]
        for topic in (Topic.TABLES, Topic.SAMPLES, Topic.SAMPLES):
            source.add(topic)
        assert await anext(one) == await anext(other) == notice(Topic.SAMPLES, Topic.TABLES)
        source.add(Topic.ALERTS)
        assert await anext(one) == notice(Topic.ALERTS)
    source = changes()
    async with asyncio.timeout(WITHIN_S), aclosing(source.watch()) as busy, aclosing(source.watch()) as quick:
        await anext(busy)
        await anext(quick)
        for topic in (Topic.SAMPLES, Topic.PLAN):
            source.add(topic)
            assert await anext(quick) == notice(topic)
        assert await anext(busy) == notice(Topic.SAMPLES, Topic.PLAN)


async def test_notices_keep_their_distance() -> None:
    """After a notice, what is added waits for the end of the pause; the first one does not wait."""
    source, loop = changes(pause_us=200 * MS), asyncio.get_running_loop()
    async with asyncio.timeout(WITHIN_S), aclosing(source.watch()) as watch:
        await anext(watch)
        source.add(Topic.SAMPLES)
        await anext(watch)
        began = loop.time()
        for topic in (Topic.SAMPLES, Topic.TABLES):
            source.add(topic)
        assert await anext(watch) == notice(Topic.SAMPLES, Topic.TABLES)
        assert loop.time() - began >= 0.15


async def test_the_more_pages_are_open_the_more_rarely_each_asks() -> None:
    """However many pages are open they ask ten times a second, and notices follow at their distance."""
    source = changes(max_watchers=100)
    async with asyncio.timeout(WITHIN_S), AsyncExitStack() as stack:
        watches = [await stack.enter_async_context(aclosing(source.watch())) for _ in range(50)]
        notices = [await anext(watch) for watch in watches]
    assert [notices[place].refresh_us for place in (0, 9, 49)] == [SECOND_US, SECOND_US, 5 * SECOND_US]
    source, loop = changes(max_watchers=20), asyncio.get_running_loop()
    async with asyncio.timeout(WITHIN_S), AsyncExitStack() as stack:
        watch, *others = [await stack.enter_async_context(aclosing(source.watch())) for _ in range(20)]
        for one in (watch, *others):
            await anext(one)
        source.add(Topic.SAMPLES)
        await anext(watch)
        began = loop.time()
        source.add(Topic.SAMPLES)
        await anext(watch)
        assert loop.time() - began >= 0.4


async def test_there_are_heartbeats() -> None:
    """Without news there are heartbeats; a watch above the limit is refused, and a closed source ends the others."""
    source = changes(heartbeat_us=10 * MS)
    async with asyncio.timeout(WITHIN_S), aclosing(source.watch()) as watch:
        assert [await anext(watch) for _ in range(3)] == [notice()] * 3
    source = changes(max_watchers=1)
    async with asyncio.timeout(WITHIN_S), aclosing(source.watch()) as watch:
        await anext(watch)
        assert source.watchers == 1
        with pytest.raises(ResourceExhausted):
            await anext(source.watch())
        source.close()
        assert [one async for one in watch] == []
    assert source.watchers == 0
