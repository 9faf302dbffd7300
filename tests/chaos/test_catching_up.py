"""After a long outage, the backlog does not delay new samples."""

import time
from pathlib import Path

import psycopg
import pytest

from fixtures.agent import StartAgent
from fixtures.collector import StartCollector
from isochrone_agent.spool.spool import Spool
from isochrone_wire.model import Outcome, Sample
from testdata.waiting import eventually

BACKLOG = 100_000
PLAN = """
baseline: us-east-2
every: 200ms
targets:
  - {provider: sim, model: none-1, base_url: "http://127.0.0.1:9/v1", credential: nobody-has-it}
  - {provider: sim, model: none-2, base_url: "http://127.0.0.1:9/v1", credential: nobody-has-it}
  - {provider: sim, model: none-3, base_url: "http://127.0.0.1:9/v1", credential: nobody-has-it}
"""
# The number of samples recorded in the first half of the time in which the backlog was delivered, and how many of them
# were stored before the last of the backlog.
LIVE = """
with backlog as (
  select min(received_at) as first_at, max(received_at) as last_at from sample where dispatched_at < %(began)s
)
select count(*), count(*) filter (where received_at < last_at)
from sample, backlog where dispatched_at >= %(began)s and dispatched_at < first_at + (last_at - first_at) / 2
"""


def rows(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("select count(*) from sample").fetchone()
        return row[0] if row else 0


@pytest.mark.slow
def test_a_backlog_delays_nothing_new(start_collector: StartCollector, start_agent: StartAgent, tmp_path: Path) -> None:
    """While a hundred thousand spooled samples drain, new samples are stored before the last of them."""
    collector = start_collector()
    collector.apply(PLAN, tmp_path)
    [target, *_] = collector.call.targets().targets
    spool = Spool(tmp_path / "agents" / "us-1" / "spool.sqlite3")
    # A hundred thousand fsyncs would only measure the disk.
    spool._db.execute("pragma synchronous = off")
    first_at = time.time_ns() // 1000 - 1_000_000 * BACKLOG
    for number in range(BACKLOG):
        round_at = first_at + 1_000_000 * number
        spool.record(Sample(target_id=target.id, round_at=round_at, outcome=Outcome.OK, dispatched_at=round_at))
    spool.close()

    agent = start_agent(collector=collector.address, vantage="us-1", region="us-east-2")
    with psycopg.connect(collector.database_url) as connection:
        began = connection.execute("select now()").fetchone()
    assert began
    eventually(90, lambda: rows(collector.database_url) > BACKLOG, "the backlog stored")
    assert agent.stop() == 0
    with psycopg.connect(collector.database_url) as connection:
        found = connection.execute(LIVE, {"began": began[0]}).fetchone()
    assert found
    live, in_time = found
    assert live > 0, "nothing was recorded while the backlog drained"
    assert in_time > live / 2
