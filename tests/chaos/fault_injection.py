"""Carrying out faults: a coroutine for each kind. What a fault disturbs it holds the lock of, so that faults overlap
without undoing one another.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random

from chaos import disk, spool_damage
from chaos.faults import Fault, Kind
from chaos.journal import Word
from chaos.world import World

HOUR_NS = 3_600_000_000_000
CUT_PATIENCE_SECONDS = 8.0
BACKLOG_SECONDS = 2.0

Act = Callable[[World, Fault], Awaitable[str]]


async def kill_agent(world: World, fault: Fault) -> str:
    """Note what waits in its spool, and start it again."""
    subject = world.subjects[fault.agent]
    async with subject.program.lock:
        subject.program.kill()
        waiting = subject.look()
        subject.program.start()
    return f"{len(waiting)} waiting"


async def kill_collector(world: World, fault: Fault) -> str:
    """Without notice, in whatever it does."""
    async with world.collector.lock:
        world.collector.kill()
        world.collector.start()
    return ""


async def freeze_collector(world: World, fault: Fault) -> str:
    """It neither answers nor hangs up."""
    seconds = Random(fault.dice).uniform(0.5, 2.0)
    async with world.collector.lock:
        world.collector.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        world.collector.signal(signal.SIGCONT)
    return f"{seconds:.1f} s"


async def kill_postgres(world: World, fault: Fault) -> str:
    """The postmaster dies, its backends soon after, and the next one recovers from the log."""
    async with world.postgres_lock:
        pid = world.postgres.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while not await asyncio.to_thread(world.postgres.restart_if_gone):
            await asyncio.sleep(0.01)
    return ""


async def kill_backend(world: World, fault: Fault) -> str:
    """PostgreSQL ends all its backends when one was killed, and recovers."""
    async with world.postgres_lock:
        backends = _backends(world.postgres.pid)
        if backends:
            os.kill(Random(fault.dice).choice(backends), signal.SIGKILL)
    return f"one of {len(backends)}"


async def cut_reply(world: World, fault: Fault) -> str:
    """The collector has the batch, and the agent never hears of it."""
    hit = await world.subjects[fault.agent].relay.cut_next_reply(CUT_PATIENCE_SECONDS)
    return "cut after a reply" if hit else "no reply came"


async def partition(world: World, fault: Fault) -> str:
    """Nothing gets through for a while."""
    seconds = Random(fault.dice).uniform(1.0, 3.0)
    await world.subjects[fault.agent].relay.partition(seconds)
    return f"{seconds:.1f} s"


async def fill_disk(world: World, fault: Fault) -> str:
    """The spool has no room to grow for a while."""
    subject, seconds = world.subjects[fault.agent], Random(fault.dice).uniform(1.0, 3.0)
    async with subject.program.lock:
        disk.fill(subject.data_dir)
        try:
            await asyncio.sleep(seconds)
        finally:
            disk.free(subject.data_dir)
        # Room is made at the cost of the oldest: whatever was recorded so far may go, and must be counted then.
        subject.exposed |= {entry.key for entry in subject.journal() if entry.word is Word.KEPT}
    return f"{seconds:.1f} s"


async def damage_spool(world: World, fault: Fault) -> str:
    """What waited, the backlog of a few seconds, may be gone, and then the agent must say how much."""
    subject = world.subjects[fault.agent]
    async with subject.program.lock:
        apart = asyncio.create_task(subject.relay.partition(BACKLOG_SECONDS + 0.5))
        await asyncio.sleep(BACKLOG_SECONDS)
        subject.program.kill()
        waiting = subject.look()
        subject.exposed |= waiting
        subject.damaged_ns = time.monotonic_ns()
        how = spool_damage.damage(subject.spool, Random(fault.dice)) if subject.spool.exists() else "no spool yet"
        subject.program.start()
    await apart
    return f"{how}, {len(waiting)} waiting"


async def step_clock(world: World, fault: Fault) -> str:
    """One hour ahead or back of the true time, or right again, but never what it was."""
    subject = world.subjects[fault.agent]
    offset_ns = Random(fault.dice).choice([ns for ns in (-HOUR_NS, 0, HOUR_NS) if ns != subject.offset_ns])
    async with subject.program.lock:
        subject.set_clock(offset_ns)
        subject.program.signal(signal.SIGUSR1)
    return f"{offset_ns // HOUR_NS:+d} h"


ACTS: Mapping[Kind, Act] = {
    Kind.AGENT_KILLED: kill_agent,
    Kind.COLLECTOR_KILLED: kill_collector,
    Kind.COLLECTOR_FROZEN: freeze_collector,
    Kind.POSTGRES_KILLED: kill_postgres,
    Kind.BACKEND_KILLED: kill_backend,
    Kind.REPLY_CUT: cut_reply,
    Kind.PARTITION: partition,
    Kind.DISK_FULL: fill_disk,
    Kind.SPOOL_DAMAGED: damage_spool,
    Kind.CLOCK_STEPPED: step_clock,
}


def _backends(postmaster: int | None) -> list[int]:
    """The processes that serve the collector's connections."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children")
    pids = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    return [pid for pid in pids if b"postgres: isochrone" in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
