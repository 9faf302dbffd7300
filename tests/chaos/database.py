"""The database under test: a primary and a synchronous standby, each on its own small disk and behind its own relay."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psycopg

from chaos import disk, records
from chaos.journal import Key
from isochrone_collector.errors import EmbeddedError
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from testdata.database_servers import DatabaseRelay, back_up, promote, start_standby, url_through

DISK_MB = 1024
RESTART_SECONDS = 60.0

Result = TypeVar("Result")


@dataclass(eq=False, slots=True)
class Server:
    """One PostgreSQL in the folder `home`, and the relay in front of it, whose port does not change."""

    home: Path
    postgres: EmbeddedPostgres
    relay: DatabaseRelay

    @property
    def backends(self) -> list[int]:
        return [pid for pid in _children(self.postgres.pid) if b"postgres: isochrone" in _command_line(pid)]

    def signal(self, number: signal.Signals) -> None:
        pid = self.postgres.pid
        for process in [] if pid is None else [pid, *_children(pid)]:
            with suppress(ProcessLookupError):
                os.kill(process, number)

    async def stop(self) -> None:
        await self.relay.stop()
        await asyncio.to_thread(self.postgres.stop)

    def replace(self, backup: Path) -> None:
        self.postgres.stop()
        _empty(self.home)
        shutil.copytree(backup, self.home / "postgres")
        self.postgres = EmbeddedPostgres(self.home)
        self.postgres.start()
        self.relay.forward_to(self.postgres.conninfo)

    def restart_if_gone(self) -> bool:
        """Start it again if it has ended; return true if it was started."""
        try:
            return self.postgres.restart_if_gone()
        except EmbeddedError:
            # It has no space for its log, or its backends have not ended yet.
            return False


@dataclass(eq=False, slots=True)
class Database:
    """The two servers, which exchange their roles at a failover. A fault holds `lock` while it disturbs them."""

    primary: Server
    standby: Server
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _rebuilding: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The URL for the collectors, which names both servers."""
        return url_through(self.primary.relay, self.standby.relay)

    async def restart_ended(self) -> None:
        """Start servers again that no fault holds."""
        if not self.lock.locked():
            async with self.lock:
                for server in (self.primary, self.standby):
                    await asyncio.to_thread(server.restart_if_gone)

    async def fail_over(self, *, vanish: bool) -> None:
        """Kill the primary (or let its host `vanish`), promote the standby and return; then make a new standby."""
        await self.lock.acquire()
        try:
            old, new = self.primary, self.standby
            old.relay.swallowing = vanish
            old.signal(signal.SIGKILL)
            await asyncio.to_thread(promote, new.postgres)
            self.primary, self.standby = new, old
            self._rebuilding = asyncio.create_task(self._rebuild())
        except BaseException:
            self.lock.release()
            raise

    async def back_up(self, folder: Path) -> None:
        async with self.lock:
            await _patiently(lambda: asyncio.to_thread(back_up, self.primary.postgres, folder))

    async def restore(self, backup: Path, note: Callable[[Mapping[str, AbstractSet[Key]]], None]) -> None:
        """Replace the primary by a backup, and make a new standby, until which the lock is held. Before any connection
        reaches the restored database, `note` is called with the samples, by vantage, that it has no longer.
        """
        await self.lock.acquire()
        try:
            server = self.primary
            server.relay.swallowing = True
            before = await _patiently(lambda: records.stored(server.postgres.conninfo))
            for one in (self.primary, self.standby):
                one.signal(signal.SIGKILL)
            await asyncio.to_thread(server.replace, backup)
            after = await records.stored(server.postgres.conninfo)
            note({vantage: keys.keys() - after[vantage].keys() for vantage, keys in before.items()})
            server.relay.cut()
            server.relay.swallowing = False
            self._rebuilding = asyncio.create_task(self._rebuild())
        except BaseException:
            self.lock.release()
            raise

    async def rebuilt(self) -> None:
        """Wait for the standby of the last failover or restore. Raises what went wrong there."""
        if self._rebuilding is not None:
            await self._rebuilding

    async def _rebuild(self) -> None:
        try:
            standby = self.standby
            await asyncio.to_thread(standby.postgres.stop)
            await asyncio.to_thread(_empty, standby.home)
            standby.postgres = await asyncio.to_thread(start_standby, self.primary.postgres, standby.home)
            standby.relay.forward_to(standby.postgres.conninfo)
            standby.relay.swallowing = False
        finally:
            self.lock.release()


@asynccontextmanager
async def running(folder: Path, *, own_disks: bool) -> AsyncIterator[Database]:
    """Run a primary and a standby in `folder`, each on its own disk if `own_disks`."""
    homes = folder / "db-1", folder / "db-2"
    async with AsyncExitStack() as stack:
        for home in homes if own_disks else ():
            disk.mount(home, size_mb=DISK_MB)
            stack.callback(disk.unmount, home)
        postgres = EmbeddedPostgres(homes[0])
        await asyncio.to_thread(postgres.start)
        primary = await _behind_relay(stack, homes[0], postgres)
        standby = await _behind_relay(stack, homes[1], await asyncio.to_thread(start_standby, postgres, homes[1]))
        database = Database(primary, standby)
        stack.push_async_callback(database.rebuilt)
        yield database


async def _behind_relay(stack: AsyncExitStack, home: Path, postgres: EmbeddedPostgres) -> Server:
    server = Server(home, postgres, DatabaseRelay(postgres.conninfo))
    stack.push_async_callback(server.stop)
    await server.relay.start()
    return server


async def _patiently(work: Callable[[], Awaitable[Result]]) -> Result:
    """Do some work on a server that may be restarting after the last fault."""
    deadline = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            return await work()
        except (psycopg.OperationalError, subprocess.CalledProcessError):
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.1)


def _empty(folder: Path) -> None:
    for place in folder.iterdir():
        shutil.rmtree(place) if place.is_dir() else place.unlink()


def _children(postmaster: int | None) -> list[int]:
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children")
    return [int(pid) for pid in children.read_text().split()] if children.exists() else []


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
