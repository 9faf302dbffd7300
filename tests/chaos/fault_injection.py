"""Fault injection: one coroutine per kind of fault, here those of agents and their network. Each holds the lock of what
it disturbs, so that overlapping faults do not undo one another.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from random import Random

from chaos import collector_faults, database_faults, disk, spool_damage, spool_reader
from chaos.faults import Fault, Kind
from chaos.journal import Status
from chaos.testbed import Testbed, TestedAgent

HOUR_NS = 3_600_000_000_000
CUT_PATIENCE_SECONDS = 8.0
BACKLOG_SECONDS = 2.0
CLONE_SECONDS = 5.0
FIRST_DELIVERY_SECONDS = 15.0

Injector = Callable[[Testbed, Fault], Awaitable[str]]


async def kill_agent(testbed: Testbed, fault: Fault) -> str:
    """Kill the agent, note the samples waiting in its spool, and start it again."""
    agent = testbed.agents[fault.agent]
    async with agent.program.lock:
        agent.program.kill()
        waiting = agent.read_spool()
        agent.program.start()
    return f"{len(waiting)} waiting"


async def clone_agent(testbed: Testbed, fault: Fault) -> str:
    """Run a copy of an agent, with its spool and its credential, beside the agent for a while. In half of the cases
    the copy delivers first, and the agent has to wait until it has been silent for 30 s.
    """
    agent, is_first = testbed.agents[fault.agent], fault.seed % 2 == 0
    async with agent.program.lock:
        agent.program.kill()
        agent.read_spool()
        clone = agent.copy(fault.number)
        clone.program.start()
        try:
            if is_first:
                await _has_delivered(clone)
            agent.program.start()
            await asyncio.sleep(CLONE_SECONDS)
        finally:
            clone.program.kill()
        agent.cloned |= {entry.key for entry in clone.journal() if entry.status is Status.KEPT}
    started = "first, " if is_first else ""
    return f"{started}{len(clone.acknowledged_ns())} batches acknowledged to the clone"


async def _has_delivered(agent: TestedAgent) -> None:
    """Wait until a batch of an agent was acknowledged, but not for long: other faults may prevent it."""
    deadline = time.monotonic() + FIRST_DELIVERY_SECONDS
    while not agent.acknowledged_ns() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


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
        agent.without_copy |= agent.at_risk
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
        agent.without_copy |= spool_reader.copies(agent.data_dir)
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
    Kind.AGENT_CLONED: clone_agent,
    Kind.COLLECTOR_KILLED: collector_faults.kill_one,
    Kind.LEADER_KILLED: collector_faults.kill_leader,
    Kind.COLLECTOR_FROZEN: collector_faults.freeze_one,
    Kind.ROLLING_RESTART: collector_faults.restart_all,
    Kind.COLLECTOR_CLOCK_STEPPED: collector_faults.step_clock,
    Kind.POSTGRES_KILLED: database_faults.kill,
    Kind.BACKEND_KILLED: database_faults.kill_backend,
    Kind.POSTGRES_FROZEN: database_faults.freeze,
    Kind.DATABASE_BLACKHOLED: database_faults.blackhole,
    Kind.FAILOVER: database_faults.fail_over,
    Kind.DATABASE_RESTORED: database_faults.restore,
    Kind.READ_ONLY: database_faults.forbid_writes,
    Kind.TOO_MANY_CONNECTIONS: database_faults.take_all_connections,
    Kind.DATABASE_DISK_FULL: database_faults.fill_disk,
    Kind.REPLY_CUT: cut_reply,
    Kind.PARTITION: partition,
    Kind.DISK_FULL: fill_disk,
    Kind.SPOOL_DAMAGED: damage_spool,
    Kind.CLOCK_STEPPED: step_clock,
}
