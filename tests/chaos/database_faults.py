"""Faults of the database: of the server that is the primary at that moment."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from random import Random

import psycopg

from chaos import disk
from chaos.database import RESTART_SECONDS, Server
from chaos.faults import Fault
from chaos.journal import Key
from chaos.testbed import Testbed

STUCK_SECONDS = 20.0
SWITCHES = 8


async def kill(testbed: Testbed, fault: Fault) -> str:
    """Kill the postmaster. Its backends exit soon after, and the next postmaster recovers from the log."""
    async with testbed.database.lock:
        server = testbed.database.primary
        assert server.postgres.pid is not None
        os.kill(server.postgres.pid, signal.SIGKILL)
        await _until(server.restart_if_gone)
    return ""


async def kill_backend(testbed: Testbed, fault: Fault) -> str:
    """Kill a backend. PostgreSQL then ends all backends and recovers."""
    async with testbed.database.lock:
        backends = testbed.database.primary.backends
        if backends:
            with suppress(ProcessLookupError):
                os.kill(Random(fault.seed).choice(backends), signal.SIGKILL)
    return f"one of {len(backends)}"


async def freeze(testbed: Testbed, fault: Fault) -> str:
    """Stop all processes of PostgreSQL, which then accept connections and answer nothing."""
    seconds = Random(fault.seed).uniform(1.0, 4.0)
    async with testbed.database.lock:
        server = testbed.database.primary
        server.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            server.signal(signal.SIGCONT)
    return f"{seconds:.1f} s"


async def blackhole(testbed: Testbed, fault: Fault) -> str:
    """Discard everything between collectors and PostgreSQL without closing a connection."""
    seconds = fault.seconds or Random(fault.seed).uniform(1.0, 4.0)
    async with testbed.database.lock:
        relay = testbed.database.primary.relay
        relay.swallowing = True
        await asyncio.sleep(seconds)
        relay.swallowing = False
    return f"{seconds:.1f} s"


async def fail_over(testbed: Testbed, fault: Fault) -> str:
    """Kill the primary and promote the standby. The host of the old one closes its connections, or vanishes."""
    vanish = bool(fault.seconds) or Random(fault.seed).random() < 0.5
    await testbed.database.fail_over(vanish=vanish)
    return "vanished" if vanish else "killed"


async def restore(testbed: Testbed, fault: Fault) -> str:
    """Set the database back to a backup of some seconds ago. Agents must deliver what they have of the removed samples
    again.
    """
    seconds = Random(fault.seed).uniform(2.0, 5.0)
    backup = testbed.folder / f"backup-{fault.number}"
    await testbed.database.back_up(backup)
    await asyncio.sleep(seconds)
    counts = list[int]()

    def note(removed: Mapping[str, AbstractSet[Key]]) -> None:
        counts.append(sum(map(len, removed.values())))
        for agent in testbed.agents:
            agent.note_removed(removed.get(agent.vantage.name, set()))

    await testbed.database.restore(backup, note)
    await asyncio.to_thread(shutil.rmtree, backup)
    return f"{seconds:.1f} s, {counts[0]} samples removed"


async def forbid_writes(testbed: Testbed, fault: Fault) -> str:
    """Make PostgreSQL read-only, as a demoted primary is."""
    seconds = Random(fault.seed).uniform(1.0, 3.0)
    async with testbed.database.lock:
        conninfo = testbed.database.primary.postgres.conninfo
        await asyncio.to_thread(_set_read_only, conninfo, "on")
        try:
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(_set_read_only, conninfo, "off")
    return f"{seconds:.1f} s"


async def take_all_connections(testbed: Testbed, fault: Fault) -> str:
    """End the collectors' connections, and hold all connections that the server has."""
    seconds = Random(fault.seed).uniform(1.0, 3.0)
    async with testbed.database.lock:
        conninfo = testbed.database.primary.postgres.conninfo
        held = await asyncio.to_thread(_hold_all, conninfo, seconds)
    return f"{held} held, {seconds:.1f} s"


async def fill_disk(testbed: Testbed, fault: Fault) -> str:
    """Fill the disk of the primary. In half of the cases its log needs space too: it ends, and cannot start."""
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


async def _restarted(server: Server) -> bool:
    """Wait until a server accepts connections after its disk was full. Without space for its log, the recovery of
    PostgreSQL 18 sometimes ends without its postmaster, which then never accepts any: kill it, and return false.
    """
    deadline, stuck = time.monotonic() + STUCK_SECONDS, False
    while not await asyncio.to_thread(lambda: server.restart_if_gone() or _accepts(server.postgres.conninfo)):
        if time.monotonic() > deadline and not stuck:
            stuck = True
            server.signal(signal.SIGKILL)
        await asyncio.sleep(0.05)
    return not stuck


async def _until(done: Callable[[], bool]) -> None:
    while not await asyncio.to_thread(done):
        await asyncio.sleep(0.05)


def _accepts(conninfo: str) -> bool:
    with suppress(psycopg.OperationalError):
        psycopg.connect(conninfo).close()
        return True
    return False


def _use_up_log(conninfo: str) -> None:
    """Switch to new log files until one has no space."""
    with suppress(psycopg.Error), psycopg.connect(conninfo, autocommit=True) as connection:
        for _ in range(SWITCHES):
            connection.execute("SELECT pg_logical_emit_message(false, 'chaos', ''), pg_switch_wal()")


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


def _set_read_only(conninfo: str, value: str) -> None:
    with _connected(conninfo) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        connection.execute("SELECT pg_reload_conf()")


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


_HOLDER = "chaos"
_END_OTHERS = f"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name <> '{_HOLDER}'
"""
