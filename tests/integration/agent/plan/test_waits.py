"""From end to end: an outage in which the provider asks to wait, as the collector shows it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from fixtures.peer import ANSWER, STREAM_HEAD, peer
from isochrone_agent.plan.credentials import Keyring
from isochrone_agent.plan.probe_scheduler import ProbeScheduler
from isochrone_agent.probe.prober import Prober
from isochrone_agent.spool.spool import AsyncSpool
from isochrone_collector.publishing.builder import RouteBuilder
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.ranking import leaderboard
from isochrone_collector.store import alerts
from isochrone_wire.answers import Selection, Window
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, MINUTE_US, Outcome, Plan, Sample, Spend, Target, Vantage
from isochrone_wire.routes import RouteTable
from testdata.trust import system_trust

PLAN = """\
baseline: us
every: 60s
targets:
  - {model: down, provider: alpha, base_url: http://a}
  - {model: up, provider: beta, base_url: http://b}
routes:
  - {name: chat, members: [alpha/down, beta/up]}
"""
US = Vantage(name="us-1", region="us")
ANSWERED, ROUNDS = 12, 30
UNAVAILABLE = b"HTTP/1.1 503 x\r\nretry-after: 3600\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Recorded(AsyncSpool):
    """A spool that ends the test's wait once it has all samples."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.samples: list[Sample] = []
        self.is_full = asyncio.Event()

    async def record(self, sample: Sample, spends: Sequence[Spend] = ()) -> None:
        await super().record(sample, spends)
        self.samples.append(sample)
        if len(self.samples) >= ROUNDS:
            self.is_full.set()


async def measured(folder: Path) -> list[Sample]:
    """Return the samples that an agent records of a provider that fails after some answers, and then asks to wait."""
    requests = count()

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + ANSWER if next(requests) < ANSWERED else UNAVAILABLE)

    async with peer(handle) as port, Recorded(folder / "spool.sqlite3") as spool:
        url = f"http://127.0.0.1:{port}/v1"
        of = Target(id=7, name="m", provider="p", model="m", base_url=url, every_us=200_000)
        rounds = ProbeScheduler(Prober(vantage="us-1", tls=system_trust()), spool, Keyring(), concurrency=8)
        rounds.apply_plan(Plan(version=1, baseline="us", targets=(of,)))
        running = asyncio.create_task(rounds.run())
        async with asyncio.timeout(60):
            await spool.is_full.wait()
        running.cancel()
        await rounds.finish(0)
    return sorted(spool.samples, key=lambda sample: sample.round_at)[:ROUNDS]


async def test_an_outage_with_a_wait_is_seen_whole(local: InProcessCollector, tmp_path: Path) -> None:
    """Success is the share of the rounds before the outage, the target's alert is raised, and its weight falls."""
    samples = await measured(tmp_path)
    await local.turn_to(DAY_AT)
    assert (await local.plans.apply(PLAN, dry_run=False, applied_by="a test")).problems == ()
    assert local.plans.current
    ids = {target.model: target.id for target in local.plans.current.targets}
    tables: list[RouteTable] = []
    detection = local.incident_detection()
    builder = RouteBuilder(
        database=local.database, plans=local.plans, clock=local.clock, code_version="1", on_published=tables.extend
    )
    for number, sample in enumerate(samples):
        at = local.clock.at = DAY_AT + number * MINUTE_US
        ttft_us = sample.ttft_us and 300_000
        down = replace(sample, target_id=ids["down"], round_at=at, dispatched_at=at, late_us=0, ttft_us=ttft_us)
        up = Sample(target_id=ids["up"], round_at=at, dispatched_at=at, ttft_us=350_000, outcome=Outcome.OK)
        await local.push(US, [down, up])
        await detection.run()
        await builder._build_once()
    ever = Window(from_at=DAY_AT - DAY_US, until_at=DAY_AT + DAY_US)
    async with local.database.connection() as connection:
        raised = await alerts.of_window(connection, ever)
    assert [(one.kind, one.subject) for one in raised] == [(AlertKind.TARGET_FAILING, "alpha/down")]
    context = QueryContext(database=local.database, plans=local.plans, clock=local.clock)
    board = await leaderboard(context, Selection(window=ever, targets=("alpha/down",)))
    [success] = [standing.success for standing in board.standings]
    assert success is not None
    assert (success.value, success.n) == (ANSWERED / ROUNDS, ROUNDS)
    weights = [{entry.target: entry.weight for entry in table.entries}.get("alpha/down", 0.0) for table in tables]
    assert (max(weights), weights[-1]) == (1.0, 0.0)
