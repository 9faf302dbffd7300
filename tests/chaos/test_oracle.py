"""The oracle detects violations: a check that always passes proves nothing."""

import time
from collections import Counter
from pathlib import Path
from random import Random

import psycopg
import pytest

from chaos import disk, faults, journal, oracle, records, testbed
from chaos.journal import Entry, Key, Status
from chaos.oracle import Evidence
from chaos.process import Program
from chaos.relay import Relay
from isochrone_agent.settings import Drain
from isochrone_agent.spool.spool import Spool
from isochrone_wire.model import Outcome, Sample, Vantage

KEYS = [Key(7, 1_000_000 * number) for number in range(5)]
ALL = Counter(KEYS)
INSERT = """
insert into sample_late (target_id, round_at, vantage_id, epoch, seq, idx, region, received_at, outcome, dispatched_at,
                         late_us, chunks, output_chars, frames_unknown, quality, traits, reason)
values (%s, to_timestamp(%s::numeric / 1000000), 1, 1, 1, %s, 'here', now(), 'ok', now(), 0, 0, 0, 0, 0, 0, 'a test')
"""
AGAIN = "insert into sample_late select (jsonb_populate_record(s, '{\"seq\": 2}')).* from sample_late s where idx = 3"
SET_ASIDE = "update sample_late set reason = 'already_stored' where idx = 3"


@pytest.mark.parametrize(
    ("differently", "expected"),
    [
        ({}, {"stored": 5}),
        ({"stored": Counter(KEYS[1:])}, {"stored": 4, "lost": 1}),
        ({"stored": ALL + Counter(KEYS[:1])}, {"stored": 5, "duplicated": 1}),
        ({"stored": Counter(KEYS[1:]), "left": {KEYS[0]}}, {"stored": 4, "spooled": 1}),
        ({"stored": Counter(KEYS[1:]), "at_risk": {KEYS[0]}, "counted": 1}, {"stored": 4, "dropped": 1}),
        ({"stored": Counter(KEYS[1:]), "at_risk": {KEYS[0]}, "counted": 0}, {"stored": 4, "lost": 1}),
        ({"stored": Counter(KEYS[1:]), "at_risk": {KEYS[1]}, "counted": 1}, {"stored": 4, "lost": 1}),
        ({"stored": Counter(KEYS[2:]), "at_risk": set(KEYS), "counted": 1}, {"stored": 3, "dropped": 1, "lost": 1}),
        ({"stored": Counter(KEYS[1:]), "irrecoverable": {KEYS[0]}}, {"stored": 4, "rolled_back": 1}),
        ({"stored": Counter(KEYS[1:]), "irrecoverable": {KEYS[1]}}, {"stored": 4, "lost": 1}),
        ({"stored": ALL + Counter([Key(8, 0)])}, {"stored": 5, "invented": 1}),
        ({"stored": ALL + Counter([Key(8, 0)]), "cloned": {Key(8, 0)}}, {"stored": 5}),
        ({"unbalanced": -2}, {"stored": 5, "unbalanced": 2}),
    ],
)
def test_what_is_nowhere_is_lost(differently: dict[str, object], expected: dict[str, int]) -> None:
    """A sample is stored, spooled, dropped and counted, or lost; damage excuses only samples at risk."""
    verdict = oracle.judge(Evidence(vantage="a", **{"recorded": set(KEYS), "stored": ALL} | differently))  # type: ignore[arg-type]  # a table of arguments
    assert verdict == oracle.Verdict(recorded=5, **expected)
    assert verdict.conserved is not bool({"lost", "duplicated", "invented", "unbalanced"} & expected.keys())


def test_nothing_recorded_proves_nothing() -> None:
    """A run in which nothing arrived is not a success."""
    assert not oracle.judge_all([]).conserved


@pytest.mark.parametrize(
    ("tamper", "lost", "duplicated"),
    [
        (None, 0, 0),
        ("delete from sample_late where idx = 3", 1, 0),
        (AGAIN, 0, 1),
        (f"{AGAIN}; {SET_ASIDE} and seq = 2", 0, 0),
        (SET_ASIDE, 1, 0),
    ],
)
async def test_a_row_less_or_more_is_found(database_url: str, tamper: str | None, lost: int, duplicated: int) -> None:
    """A deleted row is a lost sample, a doubled one a duplicate, and one that was set aside is neither."""
    with psycopg.connect(database_url) as connection:
        connection.execute("insert into vantage values (1, 'a', 'here', now(), now())")
        for place, key in enumerate(KEYS):
            connection.execute(INSERT, (*key, place))
        if tamper:
            connection.execute(tamper.encode())
    stored = await records.stored(database_url)
    verdict = oracle.judge(Evidence(vantage="a", recorded=set(KEYS), stored=stored["a"]))
    assert (verdict.lost, verdict.duplicated, verdict.invented) == (lost, duplicated, 0)


def test_a_seed_decides_the_faults() -> None:
    """The same seed gives the same schedule, so that a failure can be repeated; another seed gives another."""
    first, again, other = (
        faults.schedule(seed=seed, faults=50, agents=3, per_second=1, kinds=faults.FAULT_TYPES) for seed in (1, 1, 2)
    )
    assert first == again != other
    many = faults.schedule(seed=1, faults=500, agents=3, per_second=1, kinds=faults.FAULT_TYPES)
    assert {fault.kind for fault in many} == faults.FAULT_TYPES.keys()


def test_a_torn_line_is_not_read(tmp_path: Path) -> None:
    """A line that a killed agent wrote only partly is skipped, and all lines before it are read."""
    sample = Sample(target_id=7, round_at=3, outcome=Outcome.OK, dispatched_at=4)
    lines = journal.line(Status.KEPT, at_ns=1, sample=sample) + journal.line(Status.REFUSED, at_ns=2, sample=sample)
    (tmp_path / "journal").write_bytes(lines + b"kept 3 7")
    assert journal.read(tmp_path) == [
        Entry(status=Status.KEPT, at_ns=1, key=Key(7, 3)),
        Entry(status=Status.REFUSED, at_ns=2, key=Key(7, 3)),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_damage_changes_the_file(tmp_path: Path, seed: int) -> None:
    """Damage changes the file and never makes it longer."""
    file = tmp_path / "spool"
    file.write_bytes(bytes(10 * disk.PAGE_BYTES))
    assert disk.damage(file, Random(seed))
    assert file.read_bytes() != bytes(10 * disk.PAGE_BYTES)
    assert file.stat().st_size <= 10 * disk.PAGE_BYTES


DELIVERED, LATER = (Sample(target_id=1, round_at=at, outcome=Outcome.OK, dispatched_at=at) for at in (1, 2))
KEY = Key(DELIVERED.target_id, DELIVERED.round_at)


def agent_with_a_copy(folder: Path) -> testbed.TestedAgent:
    """An agent, not running, whose spool has a copy of one delivered sample."""
    agent = testbed.TestedAgent(
        vantage=Vantage(name="a", region="here"),
        folder=folder,
        relay=Relay(),
        program=Program(name="agent", module="none", folder=folder),
    )
    agent.data_dir.mkdir()
    spool = Spool(agent.spool, drain=Drain.OLDEST)
    spool.record(DELIVERED)
    batch = spool.lease()
    assert batch is not None
    spool.acknowledge(batch)
    spool.close()
    return agent


def note_recorded(agent: testbed.TestedAgent, sample: Sample) -> None:
    """Write a line of the journal, as an agent under test does."""
    with (agent.folder / journal.FILE).open("ab") as file:
        file.write(journal.line(Status.KEPT, at_ns=time.monotonic_ns(), sample=sample))


def test_a_damaged_spool_has_no_copies(tmp_path: Path) -> None:
    """A damaged spool is replaced without its copies when the agent starts again; until then they are lost."""
    agent = agent_with_a_copy(tmp_path)
    note_recorded(agent, DELIVERED)
    agent.without_copy = records.copies(agent.data_dir)
    agent.damaged_ns = time.monotonic_ns()
    agent.note_removed({KEY})
    assert agent.removed == agent.without_copy == {KEY}
    note_recorded(agent, LATER)
    agent.note_removed({KEY})
    assert not agent.without_copy
