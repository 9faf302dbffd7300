"""One run: a world, a script of faults over it, peace at the end, and the evidence."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos import archive, spool_reader
from chaos.fault_injection import ACTS
from chaos.faults import NATURES, Fault
from chaos.journal import Key, Word
from chaos.oracle import Evidence
from chaos.report import Course, Event
from chaos.world import Subject, World, world

# What is left in a spool when its agent is asked to stop fits into its last push.
NEARLY_EMPTY = 200
DRAIN_SECONDS = 120.0
DRAIN_ATTEMPTS = 3
WARM_UP_SECONDS = 3.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run leaves behind for the oracle and the report. `falls` are ends of programs that nobody asked for."""

    evidence: Sequence[Evidence]
    events: Sequence[Event]
    course: Course
    falls: Sequence[str]


async def run(folder: Path, faults: Sequence[Fault], *, agents: int, own_disks: bool, tls: bool, tell: Tell) -> Outcome:
    """Carry out the faults in a new world in `folder`, let it come to rest, and look."""
    async with world(folder, agents=agents, own_disks=own_disks, tls=tls) as running:
        watching = asyncio.create_task(running.watch())
        try:
            await asyncio.sleep(WARM_UP_SECONDS)
            events = await _strike(running, faults, tell)
            tell("no more faults; the spools drain")
            await _drained(running.subjects)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        for _ in range(DRAIN_ATTEMPTS):
            if await _stop_agents(running):
                break
        return await _look(running, events)


async def _strike(running: World, faults: Sequence[Fault], tell: Tell) -> list[Event]:
    """Begin each fault at its time, whatever the ones before it are still about."""
    begun = []
    for fault in faults:
        await asyncio.sleep(fault.after_s)
        begun.append(asyncio.create_task(_carry_out(running, fault, tell)))
    return list(await asyncio.gather(*begun))


async def _carry_out(running: World, fault: Fault, tell: Tell) -> Event:
    from_ns = time.monotonic_ns()
    note = await ACTS[fault.kind](running, fault)
    everybody = [subject.vantage.name for subject in running.subjects]
    vantages = [everybody[fault.agent]] if NATURES[fault.kind].one_agent else everybody
    whom = vantages[0] if NATURES[fault.kind].one_agent else ""
    tell(f"{fault.number:>4} {fault.kind:<17} {whom:<8} {note}")
    return Event(fault=fault, from_ns=from_ns, until_ns=time.monotonic_ns(), vantages=tuple(vantages), note=note)


async def _drained(subjects: Sequence[Subject]) -> None:
    deadline = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < deadline:
        await asyncio.sleep(1.0)
        if all(
            subject.program.runs and spool_reader.waiting_count(subject.data_dir) < NEARLY_EMPTY for subject in subjects
        ):
            return


async def _stop_agents(running: World) -> bool:
    """Stop all agents; whether their spools are empty. Those whose are not run again for a while."""
    codes = await asyncio.gather(*(subject.program.stop() for subject in running.subjects))
    full = []
    for subject, code in zip(running.subjects, codes, strict=True):
        if code:
            subject.program.fell.append(code)
        if subject.look():
            full.append(subject)
    for subject in full:
        subject.program.start()
    if full:
        await _drained(full)
    return not full


async def _look(running: World, events: Sequence[Event]) -> Outcome:
    for subject in running.subjects:
        subject.program.kill()
    conninfo = running.postgres.conninfo
    stored, batches = await archive.stored(conninfo), await archive.batches(conninfo)
    # The ledger's instants are on the wall clock, which nobody has stepped in this process.
    wall_minus_monotonic_ns = time.time_ns() - time.monotonic_ns()
    return Outcome(
        evidence=[_evidence(subject, stored[subject.vantage.name]) for subject in running.subjects],
        events=events,
        course=Course(
            recorded_ns={
                subject.vantage.name: [entry.at_ns for entry in subject.journal()] for subject in running.subjects
            },
            arrived_ns={
                subject.vantage.name: [at * 1000 - wall_minus_monotonic_ns for at in batches[subject.vantage.name]]
                for subject in running.subjects
            },
        ),
        falls=[
            f"{program.name} in {program.folder.name} ended by itself {times} times with exit code {code}"
            for program in (running.collector, *(subject.program for subject in running.subjects))
            for code, times in Counter(program.fell).items()
        ],
    )


def _evidence(subject: Subject, stored: Counter[Key]) -> Evidence:
    kept = {entry.key for entry in subject.journal() if entry.word is Word.KEPT}
    account = spool_reader.account(subject.data_dir)
    return Evidence(
        vantage=subject.vantage.name,
        recorded=kept | subject.seen,
        stored=stored,
        exposed=subject.exposed,
        counted=subject.dropped(account.dropped),
        unbalanced=account.missing,
        left=subject.look() | spool_reader.in_quarantine(subject.data_dir),
    )
