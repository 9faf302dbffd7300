"""The reaction of the collectors to a member of a route that fails: until its alert, and until no table has it."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields

from chaos.collectors import Collector
from chaos.testbed import Testbed
from isochrone_client.client import ReadClient
from isochrone_client.errors import ClientError
from isochrone_wire.answers import Window
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.routes import RouteTable

MAX_ROUNDS = 3
"""The goal for both, in rounds."""
_WITHIN_S = 120.0
_POLL_S = 0.2
_NEVER = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """The rounds of the member that began from its failure until its alert, and until every collector serves tables
    without it; and the number of answers with a table that was not fresh, or of the future.
    """

    alert_rounds: int = _NEVER
    table_rounds: int = _NEVER
    stale: int = 0

    @property
    def in_time(self) -> bool:
        """Return whether both came within the goal, and no table was stale."""
        return max(self.alert_rounds, self.table_rounds) <= MAX_ROUNDS and not self.stale


async def first_member(testbed: Testbed) -> str | None:
    """Return a member that is the first choice, once every collector has fresh tables; `None` without."""
    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        tables = await asyncio.to_thread(_tables, testbed)
        if len(tables) == len(testbed.collectors) * len({table.client_region for table in tables}) > 0 and all(
            _is_fresh(table) and table.entries and table.entries[0].weight for table in tables
        ):
            return tables[0].entries[0].target
        await asyncio.sleep(_POLL_S)
    return None


async def react(testbed: Testbed, member: str) -> Reaction:
    testbed.members[member].relay.refuse()
    failed_at, from_ns, stale = _now_at(), time.monotonic_ns(), 0
    seen_ns = dict[str, int]()
    while time.monotonic_ns() < from_ns + _WITHIN_S * 1e9 and len(seen_ns) < len(fields(Reaction)) - 1:
        await asyncio.sleep(_POLL_S)
        tables = await asyncio.to_thread(_tables, testbed)
        stale += sum(not _is_fresh(table) for table in tables)
        if tables and not any(_sends_to(table, member) for table in tables):
            seen_ns.setdefault("table_rounds", time.monotonic_ns())
        if await asyncio.to_thread(_has_alert, testbed.collectors[0], member, failed_at):
            seen_ns.setdefault("alert_rounds", time.monotonic_ns())
    rounds = {name: testbed.rounds_of(member, from_ns, until_ns) for name, until_ns in seen_ns.items()}
    return Reaction(stale=stale, **rounds)


def _tables(testbed: Testbed) -> list[RouteTable]:
    """Return the tables that all collectors serve; none of one that does not answer."""
    return [table for collector in testbed.collectors for table in _tables_of(collector)]


def _tables_of(collector: Collector) -> Iterator[RouteTable]:
    with suppress(ClientError), ReadClient(collector.socket) as client:
        yield from client.list_tables()


def _has_alert(collector: Collector, member: str, failed_at: int) -> bool:
    window = Window(from_at=failed_at - DAY_US, until_at=failed_at + DAY_US)
    with suppress(ClientError), ReadClient(collector.socket) as client:
        return any(
            alert.kind is AlertKind.TARGET_FAILING and alert.subject == member and alert.raised_at >= failed_at
            for alert in client.list_alerts(window).alerts
        )
    return False


def _sends_to(table: RouteTable, member: str) -> bool:
    return any(entry.target == member and entry.weight > 0 for entry in table.entries)


def _is_fresh(table: RouteTable) -> bool:
    return table.built_at - SECOND_US <= _now_at() < table.fresh_until_at


def _now_at() -> int:
    return time.time_ns() // 1000
