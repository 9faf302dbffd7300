"""The testbed, made of real processes: a simulated provider, PostgreSQL, collectors, and agents behind relays."""

import asyncio
import json
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from chaos import database, disk, journal, records
from chaos.agent_under_test import LATER
from chaos.collectors import Collector, Operator, join, start_collectors
from chaos.database import Database
from chaos.journal import Entry, Key, Status
from chaos.process import Program
from chaos.relay import Relay
from isochrone_client.client import ReadClient
from isochrone_wire.model import Vantage

WATCH_SECONDS = 0.3
MEMBERS = 4
# Tables are fresh for twelve rounds of the members, a minute.
MEMBERS_EVERY_S = 5
REGIONS = ("us-east-2", "ap-southeast-1", "eu-central-1", "sa-east-1", "af-south-1")
# Two real probes, one that succeeds and one that fails, and three that end without a request: many samples for little
# CPU, since only delivery is tested.
_IDLE = [{"provider": "sim", "model": "none", "every": "200ms", "credential": "nobody-has-it"}]
_MEMBER = {"provider": "sim", "model": "fault-crlf", "every": f"{MEMBERS_EVERY_S}s"}
_BUSY = [{"provider": "sim", "model": f"fault-{fault}", "every": "500ms"} for fault in ("crlf", "500")]


@dataclass(eq=False, slots=True, kw_only=True)
class TestedAgent:
    """One agent with its relay and its disk, and what is known of its samples beside its journal."""

    vantage: Vantage
    folder: Path
    relay: Relay
    program: Program
    offset_ns: int = 0
    seen: set[Key] = field(default_factory=set)  # in its spool at a kill
    at_risk: set[Key] = field(default_factory=set)
    cloned: set[Key] = field(default_factory=set)  # recorded by its clones
    removed: set[Key] = field(default_factory=set)  # by restores of the database
    without_copy: set[Key] = field(default_factory=set)  # whose copies a damaged or full disk may have destroyed
    damaged_ns: int = 0

    @property
    def data_dir(self) -> Path:
        return self.folder / "disk"

    @property
    def spool(self) -> Path:
        return self.data_dir / records.FILE

    def read_spool(self) -> set[Key]:
        """Return and remember the samples that wait in the spool of this agent, which must not run."""
        if self.damaged_ns and not self.has_recorded():
            return set()
        waiting = records.waiting(self.data_dir)
        self.seen |= waiting
        return waiting

    def note_removed(self, keys: AbstractSet[Key]) -> None:
        """Note samples that the database has no longer. No batch may be acknowledged meanwhile."""
        self.removed |= keys
        if self.has_recorded():
            self.without_copy -= records.copies(self.data_dir)

    def has_recorded(self) -> bool:
        """Return whether samples were recorded since the last damage: before, the content of its spool may be noise."""
        recorded = self.journal()
        return bool(recorded) and recorded[-1].at_ns >= self.damaged_ns

    def is_recording(self) -> bool:
        recorded = self.journal()
        return self.program.runs and bool(recorded) and recorded[-1].at_ns >= self.program.started * 1e9

    def dropped(self, counted: Mapping[str, int]) -> int:
        """Return the number of dropped samples that this agent reports, without those that its spool refused.

        If damage destroyed the counters too, the agent reports that the number is unknown.
        """
        salvages = (line for line in self.program.log_file.read_text().splitlines() if '"spool.salvaged"' in line)
        if any(not json.loads(line)["lost_is_known"] for line in salvages):
            return len(self.at_risk)
        refused = sum(entry.status is Status.REFUSED for entry in self.journal())
        return max(sum(counted.values()) - refused, 0)

    def journal(self) -> list[Entry]:
        return journal.read(self.folder)

    def acknowledged_ns(self) -> list[int]:
        """Return the instants at which its batches were acknowledged, on CLOCK_MONOTONIC."""
        return journal.acknowledged_ns(self.folder)

    def copy(self, number: int) -> "TestedAgent":
        """Return a clone, which does not run, with a copy of the disk. This agent must not run either."""
        home = self.folder / f"clone-{number}"
        home.mkdir()
        shutil.copytree(self.data_dir, home / "disk")
        arguments = [word.replace(str(self.folder), str(home)) for word in self.program.arguments]
        program = replace(self.program, folder=home, arguments=arguments, process=None, lock=asyncio.Lock())
        clone = TestedAgent(vantage=self.vantage, folder=home, relay=self.relay, program=program)
        clone.set_clock(self.offset_ns)
        return clone

    def set_clock(self, offset_ns: int) -> None:
        """Set the clock offset, which the agent reads at its next start or SIGUSR1."""
        self.offset_ns = offset_ns
        (self.folder / "clock").write_text(str(offset_ns))

    async def step_clock(self, offset_ns: int) -> None:
        """Set the clock offset of an agent that may run."""
        async with self.program.lock:
            self.set_clock(offset_ns)
            self.program.signal(signal.SIGUSR1)


@dataclass(frozen=True, slots=True)
class Member:
    target_id: int
    relay: Relay


@dataclass(eq=False, slots=True, kw_only=True)
class Testbed:
    folder: Path
    database: Database
    collectors: list[Collector]
    agents: list[TestedAgent]
    members: Mapping[str, Member]
    began_s: float = 0.0  # when the first backup was made, by `time.monotonic`

    @property
    def first_backup(self) -> Path:
        return self.folder / "first-backup"

    async def begin(self) -> None:
        await self.database.back_up(self.first_backup)
        self.began_s = time.monotonic()

    def rounds_of(self, member: str, from_ns: int, until_ns: int) -> int:
        """Return how many rounds of a member were recorded between two instants of CLOCK_MONOTONIC."""
        journals = (entry for agent in self.agents for entry in agent.journal() if from_ns < entry.at_ns <= until_ns)
        return len({entry.key.round_at for entry in journals if entry.key.target_id == self.members[member].target_id})

    @property
    def programs(self) -> list[Program]:
        return [*(collector.program for collector in self.collectors), *(agent.program for agent in self.agents)]

    async def watch(self) -> None:
        """Restart whatever has exited, until cancelled."""
        while True:
            for program in self.programs:
                program.restart_if_ended()
            await self.database.restart_ended()
            await asyncio.sleep(WATCH_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    agents: int
    collectors: int
    own_disks: bool  # of agents and servers of the database
    tls: bool  # agents join with a token; otherwise plain text without credentials


@asynccontextmanager
async def testbed(folder: Path, scale: Scale) -> AsyncIterator[Testbed]:
    """Run a testbed in `folder` until the block ends."""
    async with AsyncExitStack() as stack:
        # Inherited by the agents, which ignore the clock signal until their handler is installed.
        stack.callback(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, signal.SIG_IGN))
        servers = await stack.enter_async_context(database.running(folder, own_disks=scale.own_disks))
        simulator = Program(
            name="sim",
            module="isochrone_sim",
            folder=folder,
            arguments=["serve", "--faults", "--listen", "127.0.0.1:0"],
        )
        stack.callback(simulator.kill)
        simulator.start()
        base_url = str((await simulator.ready_line())["endpoints"].popitem()[1])
        serving, operator = await start_collectors(stack, folder, servers.url, scale.collectors, tls=scale.tls)
        targets = [
            {**target, "name": f"{number}", "base_url": base_url, "workload": {"max_output_tokens": number}}
            for number, target in enumerate([*_IDLE * 3, *_BUSY], 1)
        ]
        relays = [await _start_relay(stack, base_url) for _ in range(MEMBERS)]
        members = [
            {
                "name": f"member-{place}",
                **_MEMBER,
                "base_url": urlsplit(base_url)._replace(netloc=f"127.0.0.1:{relay.port}").geturl(),
            }
            for place, relay in enumerate(relays)
        ]
        route = {"name": "route", "members": [member["name"] for member in members]}
        plan = folder / "plan.yaml"
        plan.write_text(json.dumps({"baseline": REGIONS[0], "targets": targets + members, "routes": [route]}))
        await asyncio.to_thread(operator.apply, plan)
        with ReadClient(serving[0].socket) as client:
            ids = {target.name: target.id for target in client.list_targets().targets}
        ports = [collector.port for collector in serving]
        tested = [
            await _start_agent(stack, folder, number, ports, own_disks=scale.own_disks, operator=operator)
            for number in range(scale.agents)
        ]
        yield Testbed(
            folder=folder,
            database=servers,
            collectors=serving,
            agents=tested,
            members={name: Member(ids[name], relay) for name, relay in zip(route["members"], relays, strict=True)},
        )


async def _start_relay(stack: AsyncExitStack, base_url: str) -> Relay:
    relay = Relay(urlsplit(base_url).port or 0)
    await relay.start()
    stack.push_async_callback(relay.stop)
    return relay


async def _start_agent(
    stack: AsyncExitStack, folder: Path, number: int, ports: Sequence[int], *, own_disks: bool, operator: Operator
) -> TestedAgent:
    vantage = Vantage(name=f"agent-{number}", region=REGIONS[number % len(REGIONS)])
    home = folder / vantage.name
    home.mkdir()
    relay = Relay(*ports, tls=operator.identity is not None)
    await relay.start()
    stack.push_async_callback(relay.stop)
    disk_folder = home / "disk"
    if own_disks:
        disk.mount(disk_folder)
        stack.callback(disk.unmount, disk_folder)
    address = f"127.0.0.1:{relay.port}"
    options: Sequence[str] = ("--vantage", vantage.name, "--region", vantage.region, "--collector", address)
    if operator.identity is not None:
        token = await asyncio.to_thread(operator.invite, vantage)
        await asyncio.to_thread(join, address, token, disk_folder)
        # A joined agent needs no other options.
        options = ()
    program = Program(
        name="agent",
        module="chaos.agent_under_test",
        folder=home,
        arguments=[str(home), "run", *options, "--data-dir", str(disk_folder), "--log-format", "json"],
        environment={LATER: "1"} if number % 2 else {},  # every second agent is of a later version
    )
    agent = TestedAgent(vantage=vantage, folder=home, relay=relay, program=program)
    agent.set_clock(0)
    program.start()
    stack.callback(program.kill)
    return agent
