"""The live page of a collector with ten million samples while a thousand samples per second arrive.

One PostgreSQL with the dataset of `bench.query`, the real `isochrone-collector serve`, and two agents that push. In
turns, a real headless Chromium with an empty cache opens the matrix of a day of thirty regions and a hundred targets,
each time with another window so that no answer is shared, and the SQL of that window runs directly on the database. The
time of a view ends with the frame that has the values. Likewise a series of one target over thirty days in turns with
its SQL. Then a hundred pages are open: two in Chromium, and clients of the same requests (`bench.page.visitors`). Their
cost is the processor time of the collector's process, compared with that of ingest alone before and after, all beside
busy cores. The delay of
live data is that from the reply to a push to its cell in an open matrix of a quarter of an hour.

usage: python -m bench.page [--quick] prints figures and a RESULT line; exit 1 when a goal is missed
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from bench.ingest import AGENTS, BackgroundIngest, PusherPool, pusher_config
from bench.neighbours import busy_neighbours
from bench.page import browsing, reference_sql
from bench.page.visitors import VisitorsConfig
from bench.processes import Dialog, RunningServer, cpu_seconds, running_collector
from bench.query_dataset import FULL, QUICK, FilledDatabase, Scale, filled_database, summarise_hours
from bench.result import at_most, conclude, log
from fixtures.browser import Browser
from isochrone_collector.store.probe_queries import Scope
from isochrone_common.address import parse_address
from isochrone_common.channel import open_channel
from isochrone_common.trust import PLAIN
from isochrone_wire import codec
from isochrone_wire.answers import Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, MINUTE_US, Batch, Outcome, Sample, Vantage
from isochrone_wire.v1 import fleet_pb2_grpc

PAGES, TABS = 100, 2
# The requests of the matrix (`views/matrix.js`).
QUANTITIES = ("ttft_p50_us", "e2e_p50_us", "tokens_per_second_p50", "success")
PATHS = [f"/v1/leaderboard?{urlencode({'window': '24h', 'quantity': QUANTITIES}, doseq=True)}"]
PLANNED = ["/v1/targets", "/v1/vantages"]
OPENING_S = 10.0
_LEAST_PRIORITY = 19
SERIES_DAYS, SERIES_POINTS, SERIES_BUCKET_US = 30, 120, 6 * HOUR_US
GOALS = {
    "first_view_ratio": at_most(3),
    "page_kib": at_most(300),
    "series_ratio": at_most(3),
    "pages_core_pct": at_most(10),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """The number of turns of each part, and the seconds of ingest alone (twice) and with pages."""

    views: int
    series: int
    lives: int
    alone_s: float
    pages_s: float


LONG = Length(views=9, series=12, lives=9, alone_s=30, pages_s=180)
SHORT = Length(views=3, series=4, lives=2, alone_s=8, pages_s=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The processor time of a process in some time, both in seconds."""

    cpu_s: float
    seconds: float


def core_pct(usages: Sequence[Usage]) -> float:
    """Return the share of one core in some periods together, in per cent."""
    return 100 * sum(one.cpu_s for one in usages) / sum(one.seconds for one in usages)


def usage_during(pid: int, seconds: float) -> Usage:
    """Return the usage of a process in the next seconds."""
    begun, before = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return Usage(cpu_s=cpu_seconds(pid) - before, seconds=time.monotonic() - begun)


def _each(turn: Callable[[int], None], values: Iterable[int]) -> None:
    for value in values:
        turn(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    filled: FilledDatabase
    collector: RunningServer
    load: BackgroundIngest
    browser: Browser
    length: Length

    @property
    def http(self) -> str:
        return self.collector.reported["http"]

    def sql_s(self, asked: Sequence[reference_sql.Asked]) -> float:
        """Return the time of statements, in seconds."""
        return asyncio.run(reference_sql.run_s(self.filled.conninfo, asked))

    def first_views(self) -> dict[str, float]:
        visits: list[browsing.Visit] = []
        sqls: list[float] = []

        def turn(minutes: int) -> None:
            visits.append(browsing.first_visit(self.browser, f"{self.http}/?window={minutes}m"))
            browsing.leave(self.browser)
            now_at = time.time_ns() // 1000
            window = Window(from_at=now_at - minutes * MINUTE_US, until_at=now_at)
            scope = Scope(window=window, target_ids=self._target_ids, regions=self.filled.dataset.regions)
            sqls.append(self.sql_s(reference_sql.matrix(scope)))

        turn(DAY_US // MINUTE_US)
        first, once_s = visits.pop(), sqls.pop()
        minutes = [DAY_US // MINUTE_US - nth - 1 for nth in range(self.length.views)]
        self.load.during(lambda: _each(turn, minutes), seconds=5 + 1.3 * self.length.views * (first.seconds + once_s))
        view_s, sql_s = statistics.median(visit.seconds for visit in visits), statistics.median(sqls)
        log(f"first view {view_s:.2f} s, its SQL {sql_s:.2f} s")
        return {
            "first_view_ratio": view_s / sql_s,
            "page_kib": first.files_kib,
            "first_view_s": view_s,
            "first_view_sql_s": sql_s,
            "answers_kib": first.answers_kib,
        }

    def long_series(self) -> dict[str, float]:
        """Measure a series of a month of some targets, whose hours are summarised first."""
        answers: list[float] = []
        sqls: list[float] = []

        targets, dataset = self._target_ids[: self.length.series], self.filled.dataset
        asyncio.run(summarise_hours(self.filled.conninfo, dataset.days, targets))

        def turn(target_id: int) -> None:
            answers.append(self._series_s(self._names[target_id]))
            sqls.append(self.sql_s(self._series_sql(target_id)))

        turn(targets[0])
        once_s = answers.pop() + sqls.pop()
        self.load.during(lambda: _each(turn, targets), seconds=5 + 2 * len(targets) * once_s)
        series_s, sql_s = statistics.median(answers), statistics.median(sqls)
        log(f"a series {series_s:.3f} s, its SQL {sql_s:.3f} s")
        return {"series_ratio": series_s / sql_s, "series_s": series_s, "series_sql_s": sql_s}

    def live_delays(self) -> dict[str, float]:
        """Measure how long after its commit a new value is shown."""
        with open_channel(parse_address(self.collector.address), PLAIN) as channel:
            fleet = fleet_pb2_grpc.FleetStub(channel)

            def push(region: str) -> float:
                at = time.time_ns() // 1000
                sample = Sample(
                    target_id=self._target_ids[0], round_at=at, dispatched_at=at, outcome=Outcome.OK, ttft_us=400_000
                )
                batch = Batch(vantage=Vantage(name=region, region=region), epoch=1, seq=1, samples=(sample,))
                receipt = fleet.Push(codec.encode(batch), timeout=30)
                assert receipt.stored == 1, receipt
                return time.time()

            def delays_ms() -> list[float]:
                browsing.first_visit(self.browser, f"{self.http}/?window=15m")
                target, regions = self._names[self._target_ids[0]], [f"new-{nth}" for nth in range(self.length.lives)]
                return [
                    browsing.shown_after_ms(self.browser, f"{target} {region}", partial(push, region))
                    for region in regions
                ]

            found = self.load.during(delays_ms, seconds=10.0 * self.length.lives)
        browsing.leave(self.browser)
        return {"live_delay_ms": statistics.median(found)}

    def open_pages(self) -> dict[str, float]:
        """Measure the processor time that open pages cost the collector."""
        with ExitStack() as stack:
            tabs = [stack.enter_context(browsing.tab(self.filled.folder / f"browser-{nth}")) for nth in range(TABS - 1)]
            stack.enter_context(_busy_cores())
            seconds = 2 * self.length.alone_s + self.length.pages_s + 3 * OPENING_S
            return self.load.during(lambda: self._with_and_without_pages([self.browser, *tabs]), seconds=seconds)

    def _with_and_without_pages(self, tabs: Sequence[Browser]) -> dict[str, float]:
        pid, length = self.collector.pid, self.length
        before = usage_during(pid, length.alone_s)
        where, pages = urlsplit(self.http), PAGES - len(tabs)
        config = VisitorsConfig(
            host=where.hostname or "",
            port=where.port or 0,
            pages=pages,
            paths=PATHS,
            planned=PLANNED,
            opening_s=OPENING_S,
        )
        with Dialog("bench.page.visitors", config) as visitors:
            visitors.receive()
            for one in tabs:
                browsing.prepare(one)
                browsing.first_visit(one, f"{self.http}/")
            counted = visitors.ask("counts")
            shown = usage_during(pid, length.pages_s)
            counts: dict[str, int] = visitors.ask("counts")
            for one in tabs:
                browsing.leave(one)
        after = usage_during(pid, length.alone_s)
        alone_pct, with_pct = core_pct([before, after]), core_pct([shown])
        log(f"{PAGES} pages: {with_pct:.1f} % of a core, {alone_pct:.1f} % without them")
        per_second = {name: (counts[name] - counted.get(name, 0)) / shown.seconds for name in counts}
        return {
            "pages_core_pct": with_pct - alone_pct,
            "ingest_core_pct": alone_pct,
            "page_requests_per_second": per_second["requests"],
            "page_mib_per_second": per_second["bytes"] / 2**20,
        }

    def _series_s(self, target: str) -> float:
        """Return the time of `/v1/series` until its body has arrived, in seconds."""
        asked = urlencode({"window": f"{SERIES_DAYS}d", "target": target, "points": SERIES_POINTS})
        request = Request(f"{self.http}/v1/series?{asked}", headers={"Accept-Encoding": "gzip"})
        begun = time.monotonic()
        with urlopen(request, timeout=60) as response:
            response.read()
        return time.monotonic() - begun

    def _series_sql(self, target_id: int) -> list[reference_sql.Asked]:
        now_at = time.time_ns() // 1000
        scope = Scope(
            window=Window(from_at=now_at - SERIES_DAYS * DAY_US, until_at=now_at),
            target_ids=(target_id,),
            regions=self.filled.dataset.regions,
        )
        built_until = self.filled.dataset.until_at
        return reference_sql.long_series(scope, summarised_until=built_until - built_until % SERIES_BUCKET_US)

    @property
    def _target_ids(self) -> tuple[int, ...]:
        return self.filled.dataset.target_ids

    @property
    def _names(self) -> dict[int, str]:
        return dict(zip(self._target_ids, self.filled.dataset.targets, strict=True))


@contextmanager
def _busy_cores() -> Iterator[None]:
    """Keep the cores busy for the block with processes that only get time which no other one wants: the same work takes
    more processor time beside a busy core, and the browsers of open pages must not count as work of the collector.
    """
    with busy_neighbours() as spinning:
        for pid in spinning:
            os.setpriority(os.PRIO_PROCESS, pid, _LEAST_PRIORITY)
        yield


def run(scale: Scale, length: Length, stack: ExitStack) -> dict[str, float]:
    filled = stack.enter_context(filled_database(scale))
    collector = stack.enter_context(running_collector(filled.folder, filled.conninfo, "--http-listen", "127.0.0.1:0"))
    targets = list(filled.dataset.target_ids)
    agents = PusherPool([pusher_config(collector.address, f"live-{nth}", targets, nth) for nth in range(AGENTS)])
    stack.callback(agents.end)
    load = BackgroundIngest(agents)
    browser = stack.enter_context(browsing.tab(filled.folder / "browser"))
    browsing.prepare(browser)
    bench = Bench(filled=filled, collector=collector, load=load, browser=browser, length=length)
    figures = bench.first_views() | bench.long_series() | bench.live_delays() | bench.open_pages()
    return figures | {"samples": filled.dataset.samples, "ingest_per_second": load.per_second}


def main() -> int:
    scale, length = (QUICK, SHORT) if "--quick" in sys.argv else (FULL, LONG)
    with ExitStack() as stack:
        return conclude(run(scale, length, stack), GOALS)


if __name__ == "__main__":
    sys.exit(main())
