"""The testbed's view of the copies in an agent's spool."""

import time
from pathlib import Path

from chaos import journal, spool_reader, testbed
from chaos.journal import Key, Status
from chaos.process import Program
from chaos.relay import Relay
from isochrone_agent.settings import Drain
from isochrone_agent.spool.spool import Spool
from isochrone_wire.model import Outcome, Sample, Vantage

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
    """A damaged spool is replaced without its copies when the agent starts again. Until then they can be read, but
    count as destroyed.
    """
    agent = agent_with_a_copy(tmp_path)
    note_recorded(agent, DELIVERED)
    agent.without_copy = spool_reader.copies(agent.data_dir)
    agent.damaged_ns = time.monotonic_ns()
    agent.note_removed({KEY})
    assert agent.removed == agent.without_copy == {KEY}
    note_recorded(agent, LATER)
    agent.note_removed({KEY})
    assert not agent.without_copy
