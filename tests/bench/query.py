"""How fast questions are answered while samples come in: a month of thirty regions and a hundred targets.

One PostgreSQL as the collector itself starts it, with more than ten million samples, their ledger and summaries; the
real `isochrone-collector serve` on it, under TLS; two agents that push a thousand samples a second between them; and
the client that people ask with. Then: every target in every region against the baseline over the last day, and the
quantiles of the month, from summaries and from every sample.

usage: query.py [--quick]         prints figures and a RESULT line; exit 1 when a goal is missed
"""

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import ingest
from bench.exact_quantiles import from_samples, from_summaries, largest_error_percent
from bench.ingest import Agents
from bench.pusher import Order, Report
from bench.query_dataset import BASELINE, Size, Stock, say, stock
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_collector.store.probe_queries import Scope
from isochrone_wire.answers import DifferentialList, Selection, Window
from isochrone_wire.identity_file import Identity
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

MAX_DIFF_S = 1.0
MIN_SPEEDUP = 50.0
MAX_ERROR_PERCENT = 1.0
PUSHED_PER_SECOND = 1_000
AGENTS, BATCH_SAMPLES = 2, 100
DIFFS = 7
SUMMARIES = 7
# Of the goal; a shared machine may hold a push up for a moment at the end.
LEAST_ARRIVING = 0.95
ANSWER_TIMEOUT_US = 120 * SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A size of database, the room it takes on disk in bytes, and how often the exact way is asked."""

    size: Size
    room: int
    exact: int


FULL = Scale(size=Size(regions=30, targets=100, days=30), room=9 * 2**30, exact=3)
QUICK = Scale(size=Size(regions=30, targets=100, days=3), room=2 * 2**30, exact=3)


class Arrivals:
    """A thousand samples a second, for as long as something is measured."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self.reports: list[Report] = []

    def during(self, work: Callable[[], float], *, seconds: float) -> None:
        """Push while `work` is done, which takes about so many seconds and returns how many it took."""
        per_second = PUSHED_PER_SECOND / BATCH_SAMPLES / AGENTS
        self._agents.send(Order(samples=BATCH_SAMPLES, begin_at=ingest.soon(), seconds=seconds, per_second=per_second))
        took = work()
        self.reports += self._agents.reports()
        if took > seconds:
            say(f"samples arrived during {seconds:.0f} of {took:.0f} s")

    @property
    def per_second(self) -> float:
        """Samples stored a second, from the first push of each time to its last answer."""
        spans: dict[float, float] = {}
        for report in self.reports:
            begun_at = round(report.begun_at)
            spans[begun_at] = max(spans.get(begun_at, 0.0), report.ended_at - report.begun_at)
        return sum(report.stored for report in self.reports) / sum(spans.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long one question took each time, in seconds."""

    seconds: list[float]

    @property
    def median(self) -> float:
        """The usual one."""
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        return f"{self.median:.3f} s (median of {len(self.seconds)}, worst {max(self.seconds):.3f} s)"


def timed(question: Callable[[], DifferentialList], times: int) -> Times:
    """Ask several times. The answer must be one: every other region of every target, most of them decided."""
    seconds = []
    for _ in range(times):
        begun = time.monotonic()
        answer = question()
        seconds.append(time.monotonic() - begun)
    known = [line for line in answer.differentials if line.shift_low is not None]
    if len(known) < 0.9 * len(answer.differentials):
        raise SystemExit(f"only {len(known)} of {len(answer.differentials)} differentials have an interval")
    say(f"{len(known)} differentials with an interval, n = {statistics.median(line.n for line in known):.0f}")
    return Times(seconds=seconds)


def ask(client: ObservatoryClient) -> DifferentialList:
    """The last day, everything against the baseline."""
    until_at = time.time_ns() // 1000 + MINUTE_US
    return client.get_differentials(
        Selection(window=Window(from_at=until_at - DAY_US, until_at=until_at)), baseline=BASELINE
    )


def diffs(operator: Identity, arrivals: Arrivals) -> Times:
    """The last day, asked while samples arrive."""
    with ObservatoryClient(Collector(operator.address, operator), timeout_us=ANSWER_TIMEOUT_US) as client:
        begun = time.monotonic()
        ask(client)
        once = time.monotonic() - begun
        found: list[Times] = []

        def work() -> float:
            begun = time.monotonic()
            found.append(timed(lambda: ask(client), DIFFS))
            return time.monotonic() - begun

        arrivals.during(work, seconds=max(10.0, 1.5 * DIFFS * once))
    return found[0]


def quantiles(conninfo: str, made: Stock, arrivals: Arrivals, *, exact: int) -> dict[str, float]:
    """The month from every sample and from summaries, asked while samples arrive."""
    scope = Scope(window=made.days, target_ids=made.target_ids)
    (once,) = asyncio.run(from_samples(conninfo, scope, times=1))
    say(f"the exact way takes {once.seconds:.1f} s, {len(once.n)} targets and regions")
    asyncio.run(from_summaries(conninfo, scope, times=1))
    figures: dict[str, float] = {}

    def work() -> float:
        begun = time.monotonic()
        exactly = asyncio.run(from_samples(conninfo, scope, times=exact))
        told = asyncio.run(from_summaries(conninfo, scope, times=SUMMARIES))
        exact_times = Times(seconds=[answer.seconds for answer in exactly])
        told_times = Times(seconds=[answer.seconds for answer in told])
        say(f"quantiles of the month: from samples {exact_times}, from summaries {told_times}")
        figures["quantiles_exact_s"] = exact_times.median
        figures["quantiles_summary_s"] = told_times.median
        figures["summary_speedup"] = exact_times.median / told_times.median
        figures["summary_error_pct"] = largest_error_percent(exactly[0], told[0])
        return time.monotonic() - begun

    arrivals.during(work, seconds=max(10.0, 1.3 * exact * once.seconds + SUMMARIES))
    return figures


def run(scale: Scale, stack: ExitStack) -> dict[str, float]:
    """Everything, part by part."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isochrone-query-")))
    free = shutil.disk_usage(folder).free
    if free < scale.room:
        raise SystemExit(f"{folder} has {free / 2**30:.1f} GiB free; this takes {scale.room / 2**30:.0f}")
    postgres = stack.enter_context(EmbeddedPostgres(folder / "postgres"))
    made = asyncio.run(stock(postgres.conninfo, scale.size, now_at=time.time_ns() // 1000))
    return measured(postgres.conninfo, made, folder, stack, exact=scale.exact)


def measured(conninfo: str, made: Stock, folder: Path, stack: ExitStack, *, exact: int) -> dict[str, float]:
    """Every figure, out of a database that is there."""
    operator = stack.enter_context(ingest.collector(conninfo, folder))
    agents = Agents([ingest.post(operator, f"live-{nth}", list(made.target_ids), nth) for nth in range(AGENTS)])
    stack.callback(agents.end)
    # Makes what is pushed, and lets the collector come to rest.
    agents.carry_out(Order(samples=BATCH_SAMPLES, begin_at=ingest.soon(), seconds=1, per_second=1))
    arrivals = Arrivals(agents)
    day = diffs(operator, arrivals)
    say(f"a day of all targets and regions: {day}")
    figures = {"diff_24h_all_targets_s": day.median, "diff_worst_s": max(day.seconds)}
    figures |= quantiles(conninfo, made, arrivals, exact=exact)
    figures |= {"samples": made.samples, "ingest_per_second": arrivals.per_second}
    return figures | {"reply_p99_ms": ingest.p99_ms(arrivals.reports)}


_GOALS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "diff_24h_all_targets_s": (f"<= {MAX_DIFF_S}", lambda value: value <= MAX_DIFF_S),
    "summary_speedup": (f">= {MIN_SPEEDUP}", lambda value: value >= MIN_SPEEDUP),
    "summary_error_pct": (f"<= {MAX_ERROR_PERCENT}", lambda value: value <= MAX_ERROR_PERCENT),
    "ingest_per_second": (
        f">= {LEAST_ARRIVING * PUSHED_PER_SECOND:.0f}",
        lambda value: value >= LEAST_ARRIVING * PUSHED_PER_SECOND,
    ),
}


def main() -> int:
    """Return 0 when the goals are met."""
    quick = "--quick" in sys.argv
    with ExitStack() as stack:
        figures = run(QUICK if quick else FULL, stack)
    first = ("diff_24h_all_targets_s", "summary_speedup", "summary_error_pct", "samples", "ingest_per_second")
    order = (*first, *(name for name in figures if name not in first))
    print("RESULT " + " ".join(f"{name}={_shown(figures[name])}" for name in order))  # noqa: T201  # a bench prints
    missed = [f"{name} {goal}" for name, (goal, met) in _GOALS.items() if not met(figures[name])]
    if missed:
        say(f"missed: {', '.join(missed)}")
    return bool(missed)


def _shown(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main())
