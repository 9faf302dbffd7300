"""Fault injection: one coroutine per kind of fault. Each holds the lock of what it disturbs, so that overlapping faults
do not undo one another.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

import psycopg

from chaos import disk, spool_damage
from chaos.faults import Fault, Kind
from chaos.journal import Status
from chaos.testbed import Testbed

HOUR_NS = 3_600_000_000_000
CUT_PATIENCE_SECONDS = 8.0
BACKLOG_SECONDS = 2.0
RESTART_SECONDS = 60.0

Injector = Callable[[Testbed, Fault], Awaitable[str]]


async def kill_agent(testbed: Testbed, fault: Fault) -> str:
    """Kill the agent, note the samples waiting in its spool, and start it again."""
    agent = testbed.agents[fault.agent]
    async with agent.program.lock:
        agent.program.kill()
        waiting = agent.read_spool()
        agent.program.start()
    return f"{len(waiting)} waiting"


async def kill_collector(testbed: Testbed, fault: Fault) -> str:
    """Kill the collector and start it again."""
    async with testbed.collector.lock:
        testbed.collector.kill()
        testbed.collector.start()
    return ""


async def freeze_collector(testbed: Testbed, fault: Fault) -> str:
    """Stop the collector, which then neither answers nor closes connections."""
    seconds = Random(fault.seed).uniform(0.5, 2.0)
    async with testbed.collector.lock:
        testbed.collector.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        testbed.collector.signal(signal.SIGCONT)
    return f"{seconds:.1f} s"


async def kill_postgres(testbed: Testbed, fault: Fault) -> str:
    """Kill the postmaster. Its backends exit soon after, and the next postmaster recovers from the log."""
    async with testbed.postgres_lock:
        pid = testbed.postgres.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while not await asyncio.to_thread(testbed.postgres.restart_if_gone):
            await asyncio.sleep(0.01)
    return ""


async def kill_backend(testbed: Testbed, fault: Fault) -> str:
    """Kill a backend. PostgreSQL then ends all backends and recovers."""
    async with testbed.postgres_lock:
        backends = _backends(testbed.postgres.pid)
        if backends:
            os.kill(Random(fault.seed).choice(backends), signal.SIGKILL)
    return f"one of {len(backends)}"


async def freeze_postgres(testbed: Testbed, fault: Fault) -> str:
    """Stop all processes of PostgreSQL, which then accept connections and answer nothing."""
    seconds = Random(fault.seed).uniform(1.0, 4.0)
    async with testbed.postgres_lock:
        pids = [pid for pid in (testbed.postgres.pid, *_children(testbed.postgres.pid)) if pid is not None]
        _signal_all(pids, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            _signal_all(pids, signal.SIGCONT)
    return f"{seconds:.1f} s"


async def blackhole_database(testbed: Testbed, fault: Fault) -> str:
    """Discard everything between collector and PostgreSQL without closing a connection."""
    seconds = Random(fault.seed).uniform(1.0, 4.0)
    async with testbed.postgres_lock:
        testbed.database.swallowing = True
        await asyncio.sleep(seconds)
        testbed.database.swallowing = False
    return f"{seconds:.1f} s"


async def forbid_writes(testbed: Testbed, fault: Fault) -> str:
    """Make PostgreSQL read-only, as a demoted primary is."""
    seconds = Random(fault.seed).uniform(1.0, 3.0)
    async with testbed.postgres_lock:
        await asyncio.to_thread(_set_read_only, testbed.postgres.conninfo, "on")
        try:
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(_set_read_only, testbed.postgres.conninfo, "off")
    return f"{seconds:.1f} s"


async def cut_reply(testbed: Testbed, fault: Fault) -> str:
    """Cut the connection after a push: the collector has the batch, but the agent receives no reply."""
    hit = await testbed.agents[fault.agent].relay.cut_next_reply(CUT_PATIENCE_SECONDS)
    return "cut after a reply" if hit else "no reply came"


async def partition(testbed: Testbed, fault: Fault) -> str:
    """Block all traffic for a while."""
    seconds = Random(fault.seed).uniform(1.0, 3.0)
    await testbed.agents[fault.agent].relay.partition(seconds)
    return f"{seconds:.1f} s"


async def fill_disk(testbed: Testbed, fault: Fault) -> str:
    """Fill the disk of the spool for a while."""
    agent, seconds = testbed.agents[fault.agent], Random(fault.seed).uniform(1.0, 3.0)
    async with agent.program.lock:
        disk.fill(agent.data_dir)
        try:
            await asyncio.sleep(seconds)
        finally:
            disk.free(agent.data_dir)
        # Eviction drops the oldest samples: everything recorded so far may be dropped, and must then be counted.
        agent.at_risk |= {entry.key for entry in agent.journal() if entry.status is Status.KEPT}
    return f"{seconds:.1f} s"


async def damage_spool(testbed: Testbed, fault: Fault) -> str:
    """Damage a spool with a backlog of a few seconds, which may be lost; the agent must report how much."""
    agent = testbed.agents[fault.agent]
    async with agent.program.lock:
        partition_task = asyncio.create_task(agent.relay.partition(BACKLOG_SECONDS + 0.5))
        await asyncio.sleep(BACKLOG_SECONDS)
        agent.program.kill()
        waiting = agent.read_spool()
        agent.at_risk |= waiting
        agent.damaged_ns = time.monotonic_ns()
        how = spool_damage.damage(agent.spool, Random(fault.seed)) if agent.spool.exists() else "no spool yet"
        agent.program.start()
    await partition_task
    return f"{how}, {len(waiting)} waiting"


async def step_clock(testbed: Testbed, fault: Fault) -> str:
    """Set the clock one hour ahead or back, or to the true time, but never to its present value."""
    agent = testbed.agents[fault.agent]
    offset_ns = Random(fault.seed).choice([ns for ns in (-HOUR_NS, 0, HOUR_NS) if ns != agent.offset_ns])
    async with agent.program.lock:
        agent.set_clock(offset_ns)
        agent.program.signal(signal.SIGUSR1)
    return f"{offset_ns // HOUR_NS:+d} h"


INJECTORS: Mapping[Kind, Injector] = {
    Kind.AGENT_KILLED: kill_agent,
    Kind.COLLECTOR_KILLED: kill_collector,
    Kind.COLLECTOR_FROZEN: freeze_collector,
    Kind.POSTGRES_KILLED: kill_postgres,
    Kind.BACKEND_KILLED: kill_backend,
    Kind.POSTGRES_FROZEN: freeze_postgres,
    Kind.DATABASE_BLACKHOLED: blackhole_database,
    Kind.READ_ONLY: forbid_writes,
    Kind.REPLY_CUT: cut_reply,
    Kind.PARTITION: partition,
    Kind.DISK_FULL: fill_disk,
    Kind.SPOOL_DAMAGED: damage_spool,
    Kind.CLOCK_STEPPED: step_clock,
}


def _backends(postmaster: int | None) -> list[int]:
    """Return the processes that serve the collector's connections."""
    return [pid for pid in _children(postmaster) if b"postgres: isochrone" in _command_line(pid)]


def _children(postmaster: int | None) -> list[int]:
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children")
    return [int(pid) for pid in children.read_text().split()] if children.exists() else []


def _signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _set_read_only(conninfo: str, value: str) -> None:
    """Set it once the server accepts connections: a killed backend may have made it restart."""
    deadline = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            with psycopg.connect(conninfo, autocommit=True) as connection:
                connection.execute("SET default_transaction_read_only = off")
                connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
                connection.execute("SELECT pg_reload_conf()")
                return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
