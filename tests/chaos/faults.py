"""The faults: how often each occurs, what it does, and the schedule of a run, which depends on the seed only.

Each one holds the lock of what it disturbs, so that overlapping faults do not undo one another.
"""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psycopg

from chaos import disk, records
from chaos.collectors import Collector
from chaos.database import RESTART_SECONDS, Server
from chaos.journal import Key, Status
from chaos.testbed import Testbed, TestedAgent

HOUR_NS = 3_600_000_000_000
CUT_PATIENCE_SECONDS = 8.0
BACKLOG_SECONDS = 2.0
CLONE_SECONDS = 5.0
FIRST_DELIVERY_SECONDS = 15.0
READY_SECONDS = 10.0
STUCK_SECONDS = 20.0
# Collectors whose clocks are half a minute and more apart disagree on what happened just now.
CLOCKS_APART_S = 240.0
CLOCKS_S = (-60.0, 0.0, 60.0)
# A collector that has just started may not handle the signal yet.
EXITS = (0, -signal.SIGTERM)
LOG_SWITCHES = 8
_HOLDER = "chaos"
_END_OTHERS = f"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name <> '{_HOLDER}'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault `after_s` seconds after the previous one, for the agent with this number. `seed` determines details."""

    number: int
    kind: str
    after_s: float
    agent: int
    seed: int
    seconds: float = 0.0
    """Its duration, unless it is 0."""


Injector = Callable[[Testbed, Fault], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class FaultType:
    """A kind of fault: its relative frequency, and whether it affects one agent or all. `inject` returns a note."""

    weight: int
    inject: Injector
    one_agent: bool
    needs_disk: bool

    @property
    def sentence(self) -> str:
        """What it does."""
        return (self.inject.__doc__ or "").partition(".")[0]


FAULT_TYPES: dict[str, FaultType] = {}
"""The kinds of faults by name, which is that of the function below."""


def _occurs(weight: int, *, one_agent: bool = False, needs_disk: bool = False) -> Callable[[Injector], Injector]:
    def register(inject: Injector) -> Injector:
        FAULT_TYPES[inject.__name__.replace("_", "-")] = FaultType(weight, inject, one_agent, needs_disk)
        return inject

    return register


def schedule(*, seed: int, faults: int, agents: int, per_second: float, kinds: Collection[str]) -> list[Fault]:
    """Return the given number of faults, `per_second` on average; equal arguments give equal faults."""
    rng = Random(seed)
    chosen = [kind for kind in FAULT_TYPES if kind in kinds]
    weights = [FAULT_TYPES[kind].weight for kind in chosen]
    return [
        Fault(
            number=number,
            kind=rng.choices(chosen, weights)[0],
            after_s=rng.uniform(0.4, 1.6) / per_second,
            agent=rng.randrange(agents),
            seed=rng.getrandbits(32),
        )
        for number in range(1, faults + 1)
    ]


@_occurs(36, one_agent=True)
async def agent_killed(testbed: Testbed, fault: Fault) -> str:
    """SIGKILL of an agent, then a restart."""
    agent = testbed.agents[fault.agent]
    async with agent.program.lock:
        agent.program.kill()
        waiting = agent.read_spool()
        agent.program.start()
    return f"{len(waiting)} waiting"


@_occurs(2, one_agent=True)
async def agent_cloned(testbed: Testbed, fault: Fault) -> str:
    """A copy of an agent runs beside it for 5 s; in half of the cases it delivers first, and the agent waits."""
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


@_occurs(9)
async def collector_killed(testbed: Testbed, fault: Fault) -> str:
    """SIGKILL of a collector, then a restart."""
    return await _kill_collector(testbed, Random(fault.seed).randrange(len(testbed.collectors)))


@_occurs(4)
async def leader_killed(testbed: Testbed, _fault: Fault) -> str:
    """SIGKILL of the collector that leads, if one does, then a restart."""
    leading = [number for number, collector in enumerate(testbed.collectors) if collector.leads]
    return await _kill_collector(testbed, leading[0]) if leading else "none leads"


async def _kill_collector(testbed: Testbed, number: int) -> str:
    program = testbed.collectors[number].program
    async with program.lock:
        program.kill()
        program.start()
    return f"collector {number + 1}"


@_occurs(4)
async def collector_frozen(testbed: Testbed, fault: Fault) -> str:
    """A collector is stopped for 0.5 to 2 s, in which it neither answers nor closes connections."""
    rng = Random(fault.seed)
    seconds, number = rng.uniform(0.5, 2.0), rng.randrange(len(testbed.collectors))
    program = testbed.collectors[number].program
    async with program.lock:
        program.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        program.signal(signal.SIGCONT)
    return f"collector {number + 1}, {seconds:.1f} s"


@_occurs(3)
async def rolling_restart(testbed: Testbed, _fault: Fault) -> str:
    """SIGTERM of each collector in turn, and a restart."""
    for collector in testbed.collectors:
        async with collector.program.lock:
            if await collector.program.stop() not in EXITS:
                collector.program.note_exit("at a stop")
            collector.program.start()
            ready = await _is_ready(collector)
        if not ready:
            return "one did not become ready"
    return ""


async def _is_ready(collector: Collector) -> bool:
    """Wait until it serves; return false if that takes too long, for instance without a database."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            await collector.program.ready_line()
    except (TimeoutError, RuntimeError):
        return False
    return True


@_occurs(4)
async def collector_clock_stepped(testbed: Testbed, fault: Fault) -> str:
    """The clock of a collector is set a minute off, or right, but never to its present value."""
    rng = Random(fault.seed)
    number = rng.randrange(len(testbed.collectors))
    collector = testbed.collectors[number]
    ahead_s = rng.choice([seconds for seconds in CLOCKS_S if seconds != collector.ahead_s])
    collector.set_clock(ahead_s)
    return f"collector {number + 1}, {ahead_s:+.0f} s"


@_occurs(3)
async def collector_clocks_apart(testbed: Testbed, fault: Fault) -> str:
    """The clock of the collector that leads is set 240 s ahead of the other ones, or behind, and these are right."""
    ahead_s = CLOCKS_APART_S if fault.seed % 2 else -CLOCKS_APART_S
    leading = next((one for one in testbed.collectors if one.leads), testbed.collectors[0])
    for collector in testbed.collectors:
        collector.set_clock(ahead_s if collector is leading else 0.0)
    return f"{ahead_s:+.0f} s"


@_occurs(5)
async def postgres_killed(testbed: Testbed, _fault: Fault) -> str:
    """SIGKILL of the postmaster, whose backends exit soon after; the next one recovers from the log."""
    async with testbed.database.lock:
        server = testbed.database.primary
        assert server.postgres.pid is not None
        os.kill(server.postgres.pid, signal.SIGKILL)
        while not await asyncio.to_thread(server.restart_if_gone):
            await asyncio.sleep(0.05)
    return ""


@_occurs(6)
async def backend_killed(testbed: Testbed, fault: Fault) -> str:
    """SIGKILL of a backend: PostgreSQL ends all backends and recovers."""
    async with testbed.database.lock:
        backends = testbed.database.primary.backends
        if backends:
            with suppress(ProcessLookupError):
                os.kill(Random(fault.seed).choice(backends), signal.SIGKILL)
    return f"one of {len(backends)}"


@_occurs(3)
async def postgres_frozen(testbed: Testbed, fault: Fault) -> str:
    """All processes of PostgreSQL are stopped for 1 to 4 s: they accept connections and answer nothing."""
    seconds = Random(fault.seed).uniform(1.0, 4.0)
    async with testbed.database.lock:
        server = testbed.database.primary
        server.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            server.signal(signal.SIGCONT)
    return f"{seconds:.1f} s"


@_occurs(2)
async def database_blackholed(testbed: Testbed, fault: Fault) -> str:
    """No byte passes between collectors and PostgreSQL for 1 to 4 s, and no connection is closed."""
    seconds = fault.seconds or Random(fault.seed).uniform(1.0, 4.0)
    async with testbed.database.lock:
        relay = testbed.database.primary.relay
        relay.swallowing = True
        await asyncio.sleep(seconds)
        relay.swallowing = False
    return f"{seconds:.1f} s"


@_occurs(3)
async def failover(testbed: Testbed, fault: Fault) -> str:
    """The primary is killed, or vanishes without closing its connections, and the standby is promoted."""
    vanish = bool(fault.seconds) or Random(fault.seed).random() < 0.5
    await testbed.database.fail_over(vanish=vanish)
    return "vanished" if vanish else "killed"


@_occurs(2)
async def database_restored(testbed: Testbed, fault: Fault) -> str:
    """The database is set back to a backup of 2 to 5 s before: agents deliver again what they have of the rest."""
    seconds = Random(fault.seed).uniform(2.0, 5.0)
    backup = testbed.folder / f"backup-{fault.number}"
    await testbed.database.back_up(backup)
    await asyncio.sleep(seconds)
    removed = await _restore(testbed, backup)
    await asyncio.to_thread(shutil.rmtree, backup)
    return f"{seconds:.1f} s, {removed} samples removed"


@_occurs(1)
async def database_set_back(testbed: Testbed, fault: Fault) -> str:
    """The database is set back to the beginning of the run, while collectors run."""
    age_s = time.monotonic() - testbed.began_s
    if age_s < fault.seconds:
        await asyncio.sleep(fault.seconds - age_s)
    removed = await _restore(testbed, testbed.first_backup)
    return f"{time.monotonic() - testbed.began_s:.0f} s, {removed} samples removed"


async def _restore(testbed: Testbed, backup: Path) -> int:
    """Restore a backup, and return the number of samples that it lacks."""
    counts = list[int]()

    def note(removed: Mapping[str, AbstractSet[Key]]) -> None:
        counts.append(sum(map(len, removed.values())))
        for agent in testbed.agents:
            agent.note_removed(removed.get(agent.vantage.name, set()))

    await testbed.database.restore(backup, note)
    return counts[0]


@_occurs(3)
async def read_only(testbed: Testbed, fault: Fault) -> str:
    """PostgreSQL accepts no writes for 1 to 3 s, as a demoted primary."""
    seconds = Random(fault.seed).uniform(1.0, 3.0)
    async with testbed.database.lock:
        conninfo = testbed.database.primary.postgres.conninfo
        await asyncio.to_thread(_set_read_only, conninfo, "on")
        try:
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(_set_read_only, conninfo, "off")
    return f"{seconds:.1f} s"


def _set_read_only(conninfo: str, value: str) -> None:
    with _connected(conninfo) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        connection.execute("SELECT pg_reload_conf()")


@_occurs(3)
async def too_many_connections(testbed: Testbed, fault: Fault) -> str:
    """The collectors' connections end, and PostgreSQL has none left for 1 to 3 s."""
    seconds = Random(fault.seed).uniform(1.0, 3.0)
    async with testbed.database.lock:
        held = await asyncio.to_thread(_hold_all, testbed.database.primary.postgres.conninfo, seconds)
    return f"{held} held, {seconds:.1f} s"


def _hold_all(conninfo: str, seconds: float) -> int:
    """Hold every connection for a while; return their number."""
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        first = _connected(conninfo)
        stack.callback(first.close)
        held = 1
        while time.monotonic() < deadline:
            try:
                first.execute(_END_OTHERS)
                while True:
                    stack.callback(psycopg.connect(conninfo, application_name=_HOLDER).close)
                    held += 1
            except psycopg.OperationalError:
                time.sleep(0.05)
        return held


def _connected(conninfo: str) -> psycopg.Connection:
    """Connect once the server accepts connections: a killed backend may have made it restart."""
    deadline = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            return psycopg.connect(conninfo, autocommit=True, application_name=_HOLDER)
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@_occurs(3, needs_disk=True)
async def database_disk_full(testbed: Testbed, fault: Fault) -> str:
    """No space is left for PostgreSQL for 1 to 3 s, in half of the cases none for its log either, so that it ends."""
    rng = Random(fault.seed)
    seconds, with_log = rng.uniform(1.0, 3.0), rng.random() < 0.5
    async with testbed.database.lock:
        server = testbed.database.primary
        await asyncio.to_thread(disk.fill, server.home)
        try:
            if with_log:
                await asyncio.to_thread(_use_up_log, server.postgres.conninfo)
            await asyncio.sleep(seconds)
        finally:
            disk.free(server.home)
        stuck = not await _restarted(server)
    return f"{seconds:.1f} s{', with the log' if with_log else ''}{', stuck: killed' if stuck else ''}"


def _use_up_log(conninfo: str) -> None:
    """Switch to new log files until one has no space."""
    with suppress(psycopg.Error), psycopg.connect(conninfo, autocommit=True) as connection:
        for _ in range(LOG_SWITCHES):
            connection.execute("SELECT pg_logical_emit_message(false, 'chaos', ''), pg_switch_wal()")


async def _restarted(server: Server) -> bool:
    """Wait until a server accepts connections after its disk was full. Without space for its log, the recovery of
    PostgreSQL 18 sometimes ends without its postmaster, which then never accepts any: kill it, and return false.
    """

    def accepts() -> bool:
        with suppress(psycopg.OperationalError):
            psycopg.connect(server.postgres.conninfo).close()
            return True
        return False

    deadline, stuck = time.monotonic() + STUCK_SECONDS, False
    while not await asyncio.to_thread(lambda: server.restart_if_gone() or accepts()):
        if time.monotonic() > deadline and not stuck:
            stuck = True
            server.signal(signal.SIGKILL)
        await asyncio.sleep(0.05)
    return not stuck


@_occurs(20, one_agent=True)
async def reply_cut(testbed: Testbed, fault: Fault) -> str:
    """The connection is cut between a push and its reply, which the agent does not receive."""
    hit = await testbed.agents[fault.agent].relay.cut_next_reply(CUT_PATIENCE_SECONDS)
    return "cut after a reply" if hit else "no reply came"


@_occurs(6, one_agent=True)
async def partition(testbed: Testbed, fault: Fault) -> str:
    """No connection to the collectors for 1 to 3 s."""
    seconds = Random(fault.seed).uniform(1.0, 3.0)
    await testbed.agents[fault.agent].relay.partition(seconds)
    return f"{seconds:.1f} s"


@_occurs(4, one_agent=True, needs_disk=True)
async def disk_full(testbed: Testbed, fault: Fault) -> str:
    """No space is left for the spool for 1 to 3 s."""
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


@_occurs(4, one_agent=True)
async def spool_damaged(testbed: Testbed, fault: Fault) -> str:
    """SIGKILL of an agent, and damage to its backlog of a few seconds; the agent must report how much is lost."""
    agent = testbed.agents[fault.agent]
    async with agent.program.lock:
        partition_task = asyncio.create_task(agent.relay.partition(BACKLOG_SECONDS + 0.5))
        await asyncio.sleep(BACKLOG_SECONDS)
        agent.program.kill()
        waiting = agent.read_spool()
        agent.at_risk |= waiting
        agent.without_copy |= records.copies(agent.data_dir)
        agent.damaged_ns = time.monotonic_ns()
        how = disk.damage(agent.spool, Random(fault.seed)) if agent.spool.exists() else "no spool yet"
        agent.program.start()
    await partition_task
    return f"{how}, {len(waiting)} waiting"


@_occurs(6, one_agent=True)
async def clock_stepped(testbed: Testbed, fault: Fault) -> str:
    """The wall clock of an agent is set off by an hour, or right, but never to its present value."""
    agent = testbed.agents[fault.agent]
    offset_ns = Random(fault.seed).choice([ns for ns in (-HOUR_NS, 0, HOUR_NS) if ns != agent.offset_ns])
    await agent.step_clock(offset_ns)
    return f"{offset_ns // HOUR_NS:+d} h"
