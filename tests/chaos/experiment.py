"""One chaos experiment: a testbed, a schedule of faults, two measured recoveries, and the evidence."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos import records, report
from chaos.faults import FAULT_TYPES, Fault
from chaos.journal import Key, Status
from chaos.oracle import Evidence
from chaos.reaction import Reaction, first_member, react
from chaos.report import Event, Timeline
from chaos.testbed import Scale, Testbed, TestedAgent, testbed

# A backlog of this size fits into the last push of a stopping agent.
NEARLY_EMPTY = 200
# Most samples in the spool of an agent without a backlog.
SETTLED = 20
DRAIN_SECONDS = 120.0
DRAIN_ATTEMPTS = 3
FIRST_SAMPLE_SECONDS = 120.0
# Longer than the time limits of a statement and of a connection, so that all of them are reached.
BLACKHOLE_SECONDS = 20.0
RECOVERY_SECONDS = 90.0
# The kind of a fault, and its seed, which decides the direction.
REACTIONS = {
    "clocks_ahead": ("collector-clocks-apart", 1),
    "clocks_behind": ("collector-clocks-apart", 0),
    "set_back": ("database-set-back", 0),
}
MEASURED = {"recovery_blackhole": "database-blackholed", "recovery_promotion": "failover"}

Echo = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run. `measured` faults had no other fault beside them; no fault caused `unexpected_exits`."""

    evidence: Sequence[Evidence]
    events: Sequence[Event]
    measured: Mapping[str, Event]
    reactions: Mapping[str, Reaction]
    timeline: Timeline
    unexpected_exits: Sequence[str]


async def run(
    folder: Path, faults: Sequence[Fault], scale: Scale, *, measure: bool, echo: Echo, set_back_s: float = 0.0
) -> Outcome:
    """Inject the faults into a new testbed in `folder`, let it settle, `measure` recoveries and reactions, and return
    the outcome. The database is at last set back by `set_back_s` or more.
    """
    async with testbed(folder, scale) as running:
        watching = asyncio.create_task(running.watch())
        try:
            await _have_recorded(running.agents)
            await running.begin()
            events = await _inject_all(running, faults, echo)
            await running.database.rebuilt()
            echo("no more faults; waiting for the spools to drain")
            await _have_recorded(running.agents)
            await _delivered_again(running)
            await _drained(running.agents)
            measured = await _measure(running, echo) if measure else {}
            reactions = await _react(running, set_back_s, echo) if measure else {}
            await _delivered_again(running)
            await _drained(running.agents)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        for _ in range(DRAIN_ATTEMPTS):
            if await _stop_agents(running):
                break
        return await _collect_evidence(running, events, measured, reactions)


async def _measure(running: Testbed, echo: Echo) -> dict[str, Event]:
    """Inject faults one after the other, each after the recovery from the previous one."""
    measured = {}
    for number, (name, kind) in enumerate(MEASURED.items(), 1):
        fault = Fault(number=number, kind=kind, after_s=0.0, agent=0, seed=0, seconds=BLACKHOLE_SECONDS)
        measured[name] = await _inject(running, fault, echo)
        deadline = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < deadline and _timeline(running).recovery_ns(measured[name]) is None:
            await asyncio.sleep(0.5)
        await running.database.rebuilt()
    return measured


async def _react(running: Testbed, set_back_s: float, echo: Echo) -> dict[str, Reaction]:
    """Inject faults one after the other, and let a member of the route fail after each.

    Agents have the right time again: rounds of a clock that is an hour off count for no alert and no table.
    """
    for agent in running.agents:
        await agent.step_clock(0)
    found = {}
    for number, (name, (kind, seed)) in enumerate(REACTIONS.items(), 1):
        member = await first_member(running)
        fault = Fault(number=number, kind=kind, after_s=0.0, agent=0, seed=seed, seconds=set_back_s)
        await _inject(running, fault, echo)
        found[name] = await react(running, member) if member else Reaction()
        echo(f"     {member} fails: {found[name]}")
        await running.database.rebuilt()
    return found


async def _have_recorded(agents: Sequence[TestedAgent]) -> None:
    """Wait until every agent has recorded samples, also since the last damage; before, its spool has none."""
    deadline = time.monotonic() + FIRST_SAMPLE_SECONDS
    while not all(agent.has_recorded() for agent in agents):
        if time.monotonic() > deadline:
            raise RuntimeError(f"an agent recorded nothing within {FIRST_SAMPLE_SECONDS:g} s")
        await asyncio.sleep(0.1)


async def _inject_all(running: Testbed, faults: Sequence[Fault], echo: Echo) -> list[Event]:
    """Start each fault at its time, even if earlier ones are still in progress."""
    begun = []
    for fault in faults:
        await asyncio.sleep(fault.after_s)
        begun.append(asyncio.create_task(_inject(running, fault, echo)))
    return list(await asyncio.gather(*begun))


async def _inject(running: Testbed, fault: Fault, echo: Echo) -> Event:
    from_ns = time.monotonic_ns()
    kind = FAULT_TYPES[fault.kind]
    note = await kind.inject(running, fault)
    names = [agent.vantage.name for agent in running.agents]
    vantages = [names[fault.agent]] if kind.one_agent else names
    echo(f"{fault.number:>4} {report.padded(fault.kind)} {vantages[0] if kind.one_agent else '':<8} {note}")
    return Event(fault=fault, from_ns=from_ns, until_ns=time.monotonic_ns(), vantages=tuple(vantages), note=note)


async def _drained(agents: Sequence[TestedAgent], *, below: int = NEARLY_EMPTY) -> None:
    """Wait until each agent records and fewer than `below` samples wait in its spool, which takes 30 s after damage.

    One that was just started would otherwise be stopped before it handles the signal.
    """
    deadline = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < deadline:
        await asyncio.sleep(1.0)
        if all(agent.is_recording() and records.waiting_count(agent.data_dir) < below for agent in agents):
            return


async def _delivered_again(running: Testbed) -> None:
    """Wait until what restores removed is stored again. Agents notice a restore within 15 minutes, or at a start."""
    lacking = await _lacking(running)
    for agent in lacking:
        async with agent.program.lock:
            await agent.program.stop()
            agent.program.start()
    deadline = time.monotonic() + DRAIN_SECONDS
    while lacking and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
        lacking = await _lacking(running)


async def _lacking(running: Testbed) -> list[TestedAgent]:
    """Return the agents with copies of removed samples that the database does not have again."""
    if not any(agent.removed for agent in running.agents):
        return []
    stored = await records.stored(running.database.primary.postgres.conninfo)
    return [
        agent
        for agent in running.agents
        if agent.removed & records.copies(agent.data_dir) - stored[agent.vantage.name].keys()
    ]


async def _stop_agents(running: Testbed) -> bool:
    """Stop all agents; return true if their spools are empty. Agents with a backlog are run again for a while."""
    codes = await asyncio.gather(*(agent.program.stop() for agent in running.agents))
    full = []
    for agent, code in zip(running.agents, codes, strict=True):
        if code:
            agent.program.note_exit("at a stop")
        if agent.read_spool():
            full.append(agent)
    for agent in full:
        agent.program.start()
    if full:
        await _drained(full, below=SETTLED)
    return not full


async def _collect_evidence(
    running: Testbed, events: Sequence[Event], measured: Mapping[str, Event], reactions: Mapping[str, Reaction]
) -> Outcome:
    for agent in running.agents:
        agent.program.kill()
    stored = await records.stored(running.database.primary.postgres.conninfo)
    return Outcome(
        evidence=[_evidence(agent, stored[agent.vantage.name]) for agent in running.agents],
        events=events,
        measured=measured,
        reactions=reactions,
        timeline=_timeline(running),
        unexpected_exits=[
            f"{program.name} in {program.folder.name} ended {exited}"
            for program in running.programs
            for exited in program.unexpected_exits
        ],
    )


def _timeline(running: Testbed) -> Timeline:
    return Timeline(
        recorded_ns={agent.vantage.name: [entry.at_ns for entry in agent.journal()] for agent in running.agents},
        delivered_ns={agent.vantage.name: agent.acknowledged_ns() for agent in running.agents},
    )


def _evidence(agent: TestedAgent, stored: Counter[Key]) -> Evidence:
    kept = {entry.key for entry in agent.journal() if entry.status is Status.KEPT}
    account = records.account(agent.data_dir)
    return Evidence(
        vantage=agent.vantage.name,
        recorded=kept | agent.seen,
        stored=stored,
        cloned=agent.cloned,
        at_risk=agent.at_risk,
        irrecoverable=agent.removed & agent.without_copy,
        counted=agent.dropped(account.dropped),
        unbalanced=account.missing,
        left=agent.read_spool() | records.quarantined(agent.data_dir),
    )
