"""The testbed, made of real processes: a simulated provider, PostgreSQL, a collector, and agents behind relays."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos import commands, disk, journal, spool_reader
from chaos.commands import Operator
from chaos.journal import Entry, Key, Status
from chaos.process import Program
from chaos.relay import Relay
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_wire.model import Vantage
from testdata.database_relay import DatabaseRelay

WATCH_SECONDS = 0.3
REGIONS = ("us-east-2", "ap-southeast-1", "eu-central-1", "sa-east-1", "af-south-1")
# Two real probes, one that succeeds and one that fails, and three that end without a request: many samples for little
# CPU, since only delivery is tested.
_IDLE = [{"provider": "sim", "model": "none", "every": "200ms", "credential": "nobody-has-it"}]
_BUSY = [{"provider": "sim", "model": f"fault-{fault}", "every": "500ms"} for fault in ("crlf", "500")]


@dataclass(eq=False, slots=True, kw_only=True)
class TestedAgent:
    """One agent with its relay and its disk, and the samples found in its spool at every kill."""

    vantage: Vantage
    folder: Path
    relay: Relay
    program: Program
    offset_ns: int = 0
    seen: set[Key] = field(default_factory=set)
    at_risk: set[Key] = field(default_factory=set)
    damaged_ns: int = 0

    @property
    def data_dir(self) -> Path:
        """The folder of its spool."""
        return self.folder / "disk"

    @property
    def spool(self) -> Path:
        """The file of its spool."""
        return self.data_dir / spool_reader.FILE

    def read_spool(self) -> set[Key]:
        """Return and remember the samples that wait in the spool of this agent, which must not run."""
        recorded = self.journal()
        if self.damaged_ns and (not recorded or recorded[-1].at_ns < self.damaged_ns):
            # Nothing was recorded since the damage, and the content may be noise.
            return set()
        waiting = spool_reader.waiting(self.data_dir)
        self.seen |= waiting
        return waiting

    def dropped(self, counted: Mapping[str, int]) -> int:
        """Return the number of recorded samples that this agent reports as dropped. Its counters include samples that
        its spool refused, which were never recorded. If damage destroyed the counters too, the agent reports that the
        number is unknown.
        """
        events = (
            json.loads(line) for line in self.program.log_file.read_text().splitlines() if '"spool.salvaged"' in line
        )
        if any(not event["lost_is_known"] for event in events):
            return len(self.at_risk)
        refused = sum(entry.status is Status.REFUSED for entry in self.journal())
        return max(sum(counted.values()) - refused, 0)

    def journal(self) -> list[Entry]:
        """Return the entries of its journal."""
        return journal.read(self.folder / "journal")

    def set_clock(self, offset_ns: int) -> None:
        """Set the clock offset, which the agent reads at its next start or SIGUSR1."""
        self.offset_ns = offset_ns
        (self.folder / "clock").write_text(str(offset_ns))


@dataclass(eq=False, slots=True, kw_only=True)
class Testbed:
    """All running parts."""

    folder: Path
    postgres: EmbeddedPostgres
    postgres_lock: asyncio.Lock
    database: DatabaseRelay
    collector: Program
    agents: list[TestedAgent]
    own_disks: bool

    async def watch(self) -> None:
        """Restart whatever has exited, until cancelled."""
        while True:
            for program in (self.collector, *(agent.program for agent in self.agents)):
                program.restart_if_ended()
            if not self.postgres_lock.locked():
                # The lock prevents two restarts at once.
                async with self.postgres_lock:
                    await asyncio.to_thread(self.postgres.restart_if_gone)
            await asyncio.sleep(WATCH_SECONDS)


@asynccontextmanager
async def testbed(folder: Path, *, agents: int, own_disks: bool, tls: bool) -> AsyncIterator[Testbed]:
    """Run a testbed of `agents` agents in `folder`, each with its own disk if `own_disks`, until the block ends. With
    `tls`, the agents join with a token and use TLS; otherwise plain text without credentials.
    """
    async with AsyncExitStack() as stack:
        # Inherited by the agents, which ignore the clock signal until their handler is installed.
        stack.callback(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, signal.SIG_IGN))
        postgres = EmbeddedPostgres(folder / "postgres")
        await asyncio.to_thread(postgres.start)
        stack.push_async_callback(asyncio.to_thread, postgres.stop)
        database = DatabaseRelay(postgres.conninfo)
        await database.start()
        stack.push_async_callback(database.stop)
        simulator = Program(
            name="sim",
            module="isochrone_sim",
            folder=folder,
            arguments=("serve", "--faults", "--listen", "127.0.0.1:0"),
        )
        base_url = str((await _ready(stack, simulator))["endpoints"].popitem()[1])
        collector = _collector(folder, database.url, 0, tls=tls)
        ready = await _ready(stack, collector)
        port = int(str(ready["listen"]).rpartition(":")[2])
        collector.arguments = _collector(folder, database.url, port, tls=tls).arguments
        operator = Operator(address=str(ready["listen"]), identity=Path(str(ready["operator"])) if tls else None)
        await asyncio.to_thread(operator.apply, _plan(folder, base_url))
        tested = [
            await _start_agent(stack, folder, number, port, own_disks=own_disks, operator=operator if tls else None)
            for number in range(agents)
        ]
        yield Testbed(
            folder=folder,
            postgres=postgres,
            postgres_lock=asyncio.Lock(),
            database=database,
            collector=collector,
            agents=tested,
            own_disks=own_disks,
        )


async def _ready(stack: AsyncExitStack, program: Program) -> dict[str, dict[str, str]]:
    program.start()
    stack.callback(program.kill)
    return await program.ready_line()


def _collector(folder: Path, url: str, port: int, *, tls: bool) -> Program:
    arguments = (
        "serve",
        "--listen",
        f"127.0.0.1:{port}",
        "--data-dir",
        str(folder / "collector"),
        "--database-url",
        url,
        "--metrics-listen",
        "off",
        "--log-format",
        "json",
        *(("--tls",) if tls else ()),
    )
    return Program(name="collector", module="isochrone_collector", folder=folder, arguments=arguments)


def _plan(folder: Path, base_url: str) -> Path:
    targets = [
        {
            **target,
            "name": f"{target['model']}-{number}",
            "base_url": base_url,
            "workload": {"max_output_tokens": number},
        }
        for number, target in enumerate([*_IDLE * 3, *_BUSY], 1)
    ]
    plan = folder / "plan.yaml"
    plan.write_text(json.dumps({"baseline": REGIONS[0], "targets": targets}))
    return plan


async def _start_agent(
    stack: AsyncExitStack, folder: Path, number: int, port: int, *, own_disks: bool, operator: Operator | None
) -> TestedAgent:
    vantage = Vantage(name=f"agent-{number}", region=REGIONS[number % len(REGIONS)])
    home = folder / vantage.name
    home.mkdir()
    relay = Relay(port, tls=operator is not None)
    await relay.start()
    stack.push_async_callback(relay.stop)
    disk_folder = home / "disk"
    if own_disks:
        disk.mount(disk_folder)
        stack.callback(disk.unmount, disk_folder)
    address = f"127.0.0.1:{relay.port}"
    options: Sequence[str] = ("--vantage", vantage.name, "--region", vantage.region, "--collector", address)
    if operator is not None:
        token = await asyncio.to_thread(operator.invite, vantage)
        await asyncio.to_thread(commands.join, address, token, disk_folder)
        # A joined agent needs no other options.
        options = ()
    arguments = (
        str(home / "journal"),
        str(home / "clock"),
        "run",
        *options,
        "--data-dir",
        str(disk_folder),
        "--log-format",
        "json",
    )
    program = Program(name="agent", module="chaos.agent_under_test", folder=home, arguments=arguments)
    agent = TestedAgent(vantage=vantage, folder=home, relay=relay, program=program)
    agent.set_clock(0)
    program.start()
    stack.callback(program.kill)
    return agent
