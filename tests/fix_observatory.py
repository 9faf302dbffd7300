"""Fixture for the Observatory service: a gRPC server on a real socket that returns the answers of the test.

It follows the contract (unknown targets are NOT_FOUND, an empty window is INVALID_ARGUMENT, the answer repeats the
window of the selection) and records the requests. It has its own threads, so tests with and without an event loop can
use it.
"""

# ruff: noqa: N802, D102  # the methods are named by the .proto, which also says what they do

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import grpc
import pytest

from isochrone_wire.answers import (
    Decision,
    Differential,
    DifferentialList,
    Level,
    Metric,
    Order,
    Proportion,
    Quantile,
    Selection,
    Side,
    Window,
)
from isochrone_wire.codec import decode, encode
from isochrone_wire.fleet import (
    Coverage,
    CoverageList,
    Liveness,
    SpendLine,
    SpendList,
    StoredSample,
    TargetList,
    VantageList,
    VantageStatus,
)
from isochrone_wire.insights import (
    AlertList,
    DriftEvent,
    DriftList,
    IncidentList,
    LatencyBudget,
    LatencyBudgetList,
    Leaderboard,
    RateLimitList,
    RateLimitSeries,
    RegionCost,
    RegionCostList,
    Simulation,
    SimulationList,
    Standing,
    TierLine,
    TierList,
)
from isochrone_wire.model import DAY_US, SECOND_US, Budget, Outcome, Price, Quality, Sample, Target, TokenSource
from isochrone_wire.queries.series import Series, SeriesList
from isochrone_wire.v1 import observatory_pb2
from isochrone_wire.v1.observatory_pb2_grpc import ObservatoryServicer, add_ObservatoryServicer_to_server
from testdata import insights

_TIMEOUT_SECONDS = 10.0
_PAGE_SIZE = 2
_POLL_SECONDS = 0.05
NOW_AT = insights.NOW_AT
WINDOW = insights.WINDOW
Named = TypeVar(
    "Named",
    Differential,
    Standing,
    Coverage,
    StoredSample,
    LatencyBudget,
    TierLine,
    DriftEvent,
    Series,
    RateLimitSeries,
)

TARGETS = TargetList(
    plan_version=3,
    baseline="us-east-2",
    targets=(
        Target(
            id=7,
            name="openai/gpt-5-mini",
            provider="openai",
            model="gpt-5-mini",
            base_url="https://api.openai.com/v1",
            price=Price(usd_per_m_input=0.25, usd_per_m_output=2.0),
        ),
        Target(
            id=8,
            name="deepseek/deepseek-v4-flash",
            provider="deepseek",
            model="deepseek-v4-flash",
            base_url="https://api.deepseek.com/v1",
        ),
    ),
)

_PAIR = Differential(
    target="openai/gpt-5-mini",
    provider="openai",
    model="gpt-5-mini",
    metric=Metric.TTFT,
    unit="us",
    baseline="us-east-2",
    region="ap-southeast-1",
)
DIFFERENTIALS = (
    replace(
        _PAIR,
        baseline_median=320_400.0,
        region_median=512_900.0,
        median_difference=192_500.0,
        correlation=0.62,
        rounds_needed=24,
        shift=191_250.0,
        shift_low=180_100.0,
        shift_high=203_700.0,
        shift_percent=59.7,
        n=1436,
        baseline_n=1440,
        region_n=1437,
        decision=Decision.SLOWER,
        newest_at=NOW_AT - 42 * SECOND_US,
        n_eff=412.4,
        faster_probability=0.012,
        margin=20_000.0,
        q_value=1.2e-9,
        network_shift=178_000.0,
        server_shift=13_400.0,
        baseline_side=Side(n=1440, coverage=1.0, failures=Proportion(value=0.0063, low=0.0033, high=0.0119, n=1449)),
        region_side=Side(n=1437, coverage=0.998, failures=Proportion(value=0.031, low=0.023, high=0.041, n=1483)),
        parts=insights.PARTS,
    ),
    replace(
        _PAIR,
        target="deepseek/deepseek-v4-flash",
        provider="deepseek",
        model="deepseek-v4-flash",
        baseline_median=180_000.0,
        region_median=150_200.0,
        median_difference=-29_800.0,
        correlation=-0.08,
        rounds_needed=24,
        shift=-30_100.0,
        shift_low=-34_900.0,
        shift_high=-25_300.0,
        shift_percent=-16.7,
        n=1431,
        baseline_n=1440,
        region_n=1431,
        decision=Decision.FASTER,
        newest_at=NOW_AT - 12 * SECOND_US,
        n_eff=1390.2,
        faster_probability=0.93,
        margin=20_000.0,
        network_shift=1_900.0,
        server_shift=-32_000.0,
        baseline_side=Side(n=1440, coverage=0.999),
        region_side=Side(n=1431, coverage=0.994),
    ),
    replace(
        _PAIR,
        target="moonshot/kimi-k2.5",
        provider="moonshot",
        model="kimi-k2.5",
        baseline_median=600_000.0,
        n=3,
        baseline_n=5,
        region_n=3,
        rounds_needed=24,
        reason="3 of 24 rounds needed",
        newest_at=NOW_AT - 7_200 * SECOND_US,
        n_eff=3.0,
        margin=30_000.0,
        baseline_side=Side(n=5, coverage=0.98),
        region_side=Side(n=3, coverage=0.61),
    ),
)

# Before, and since a step one minute ago.
STEPPED = replace(
    DIFFERENTIALS[0],
    since_at=NOW_AT - 72 * SECOND_US,
    levels=(
        Level(
            from_at=NOW_AT - 148 * SECOND_US,
            until_at=NOW_AT - 76 * SECOND_US,
            n=19,
            shift=35_000.0,
            low=34_000.0,
            high=36_000.0,
            baseline_median=200_000.0,
            region_median=235_000.0,
        ),
        Level(
            from_at=NOW_AT - 72 * SECOND_US,
            until_at=NOW_AT - 28 * SECOND_US,
            n=12,
            shift=435_000.0,
            low=434_000.0,
            high=437_000.0,
            baseline_median=200_000.0,
            region_median=635_000.0,
        ),
    ),
)

STANDINGS = (
    Standing(
        region="us-east-2",
        rank=1,
        target="deepseek/deepseek-v4-flash",
        provider="deepseek",
        model="deepseek-v4-flash",
        n=1431,
        failed=9,
        ttft_p50_us=Quantile(value=180_000, low=178_200, high=181_900, n_eff=612.7),
        ttft_p95_us=Quantile(value=260_300, low=251_000, high=270_800),
        tokens_per_second_p50=Quantile(value=60.2, low=59.1, high=61.0),
        usd_per_m_output=0.25,
        newest_at=NOW_AT - 12 * SECOND_US,
        ttft_p99_us=Quantile(value=301_900, low=288_400, high=340_100),
        ttft_cold_p50_us=Quantile(value=214_000, low=211_600, high=216_300),
        ttfat_p50_us=Quantile(value=180_000, low=178_200, high=181_900),
        e2e_p50_us=Quantile(value=3_502_000, low=3_480_000, high=3_531_000),
        success=Proportion(value=0.99375, low=0.9882, high=0.9967, n=1440, n_eff=902.4),
        usd_per_m_input=0.07,
        tokens_per_second_per_usd=240.8,
        throttled=6,
        skipped=2,
    ),
    Standing(
        region="us-east-2",
        rank=2,
        target="openai/gpt-5-mini",
        provider="openai",
        model="gpt-5-mini",
        n=31,
        failed=0,
        ttft_p50_us=Quantile(value=320_400, low=305_000, high=333_100),
        ttft_p95_us=Quantile(value=410_000),
        tokens_per_second_p50=Quantile(value=144.8, low=139.0, high=149.5),
        ttft_p99_us=Quantile(value=433_000),
        ttft_cold_p50_us=Quantile(value=371_000, low=352_800, high=384_900),
        ttfat_p50_us=Quantile(value=320_400, low=305_000, high=333_100),
        e2e_p50_us=Quantile(value=1_702_000, low=1_650_000, high=1_731_000),
        success=Proportion(value=1.0, low=0.8897, high=1.0, n=31),
    ),
)

COVERAGE = (
    Coverage(
        vantage="ohio-1",
        region="us-east-2",
        target="openai/gpt-5-mini",
        planned=1440,
        recorded=1439,
        outcomes={"timed_out": 3, "ok": 1430, "throttled": 6},
        newest_at=NOW_AT - 42 * SECOND_US,
        oldest_at=NOW_AT - 86_342 * SECOND_US,
    ),
    Coverage(vantage="ohio-1", region="us-east-2", target="deepseek/deepseek-v4-flash", planned=1440, recorded=0),
)

_ONLINE = VantageStatus(
    name="ohio-1",
    region="us-east-2",
    liveness=Liveness.ONLINE,
    reason="samples arrive",
    last_seen_at=NOW_AT - 3 * SECOND_US,
    newest_sample_at=NOW_AT - 3 * SECOND_US,
    next_heartbeat_at=NOW_AT + 12 * SECOND_US,
    agent_version="0.2.0",
    plan_version=3,
    spool_depth=2,
    spool_oldest_at=NOW_AT - 2 * SECOND_US,
    clock_offset_us=1_230,
    clock_uncertainty_us=410,
    loop_lag_us=180,
    finished=7_214,
    ledgered=7_213,
)
VANTAGES = VantageList(
    plan_version=3,
    answered_at=NOW_AT,
    vantages=(
        _ONLINE,
        replace(
            _ONLINE,
            name="ohio-2",
            liveness=Liveness.LATE,
            reason="last heartbeat 9 min ago; the next was due 9 min ago",
            last_seen_at=NOW_AT - 560 * SECOND_US,
            newest_sample_at=NOW_AT - 560 * SECOND_US,
            next_heartbeat_at=NOW_AT - 545 * SECOND_US,
            spool_depth=0,
            spool_oldest_at=None,
            clock_offset_us=-41_800,
            clock_uncertainty_us=12_000,
            dropped={"spool_full": 4},
            rounds_missed=3,
            finished=900,
            ledgered=893,
        ),
        replace(
            _ONLINE,
            name="sg-1",
            region="ap-southeast-1",
            liveness=Liveness.SILENT,
            reason="last heartbeat 4 s ago, but its newest sample is 12 min old; it refuses plan 3",
            newest_sample_at=NOW_AT - 725 * SECOND_US,
            plan_version=2,
            refused_plan_version=3,
            refused_plan_reason="openai/gpt-5-mini would send the credential 'openai' to evil.example",
            spool_depth=0,
            spool_oldest_at=None,
            clock_offset_us=None,
            clock_uncertainty_us=None,
            finished=0,
            ledgered=0,
        ),
    ),
)

_DAY_AT = NOW_AT - NOW_AT % DAY_US
SPEND = (
    SpendLine(
        vantage="ohio-1",
        region="us-east-2",
        provider="openai",
        day_at=_DAY_AT,
        usd=0.2412,
        tokens=124_320,
        requests=480,
        forecast_usd=0.7236,
        forecast_tokens=372_960,
        forecast_requests=1440,
        budget=Budget(provider="openai", usd_per_day=0.5, requests_per_day=2000),
    ),
    SpendLine(
        vantage="ohio-1",
        region="us-east-2",
        provider="deepseek",
        day_at=_DAY_AT,
        tokens=99_100,
        requests=480,
        forecast_tokens=297_300,
        forecast_requests=1440,
    ),
    SpendLine(
        vantage="sg-1",
        region="ap-southeast-1",
        provider="openai",
        day_at=_DAY_AT,
        forecast_usd=0.38,
        forecast_tokens=198_720,
        forecast_requests=960,
        budget=Budget(provider="openai", usd_per_day=0.5),
    ),
)


def stored(place: int = 0, *, received_at: int = NOW_AT, **changes: Any) -> StoredSample:
    """Return a sample of round number `place` before now, with changes to its fields."""
    round_at = NOW_AT - place * 60 * SECOND_US
    sample = Sample(
        target_id=7,
        round_at=round_at,
        outcome=Outcome.OK,
        dispatched_at=round_at + 1500,
        tcp_us=12_000,
        tls_us=14_500,
        ttft_us=318_250,
        e2e_us=1_702_000,
        tokens_per_second=144.5,
        rtt_us=11_900,
        output_tokens=200,
        token_source=TokenSource.USAGE,
        http_status=200,
    )
    return StoredSample(
        target="openai/gpt-5-mini",
        vantage="ohio-1",
        region="us-east-2",
        received_at=received_at,
        sample=replace(sample, **changes),
    )


SAMPLES = (
    stored(0, quality=Quality.LAGGED | Quality.CACHED),
    stored(1),
    stored(
        2,
        outcome=Outcome.HTTP_ERROR,
        ttft_us=None,
        e2e_us=None,
        tokens_per_second=None,
        http_status=529,
        error="overloaded_error: the model is overloaded",
    ),
)


@dataclass(slots=True, repr=False)
class FakeObservatory(ObservatoryServicer):
    """Answers to all requests, which a test may change at any time, and the received requests.

    With `regions`, no other region exists. `failure` is the error of all requests, `failures` that of a request type;
    `message` is returned instead of an answer; with `released`, requests wait until it is set.
    """

    targets: TargetList = TARGETS
    samples: tuple[StoredSample, ...] = SAMPLES
    standings: tuple[Standing, ...] = STANDINGS
    differentials: tuple[Differential, ...] = DIFFERENTIALS
    coverage: tuple[Coverage, ...] = COVERAGE
    vantages: VantageList = VANTAGES
    spend: tuple[SpendLine, ...] = SPEND
    region_costs: tuple[RegionCost, ...] = insights.REGION_COSTS
    latency_budgets: tuple[LatencyBudget, ...] = insights.LATENCY_BUDGETS
    tiers: tuple[TierLine, ...] = insights.TIERS
    series: SeriesList = insights.SERIES
    rate_limits: RateLimitList = insights.RATE_LIMITS
    drift: DriftList = insights.DRIFT
    alerts: AlertList = insights.ALERTS
    incidents: IncidentList = insights.INCIDENTS
    simulations: tuple[Simulation, ...] = insights.SIMULATIONS
    regions: frozenset[str] | None = None
    breaking: bool = False
    failure: tuple[grpc.StatusCode, str] | None = None
    failures: dict[str, tuple[grpc.StatusCode, str]] = field(default_factory=dict)
    message: Any = None
    released: threading.Event | None = None
    requests: list[Any] = field(default_factory=list)
    address: str = ""

    def ListTargets(self, request: observatory_pb2.ListTargetsRequest, context: grpc.ServicerContext) -> Any:
        self._receive(request, context)
        return self.message or encode(self.targets)

    def ListSamples(self, request: observatory_pb2.ListSamplesRequest, context: grpc.ServicerContext) -> Any:
        chosen = self._chosen(self.samples, self._selection(request, context))
        newest = sorted(chosen, key=lambda row: row.sample.round_at, reverse=True)[: request.limit]
        return observatory_pb2.ListSamplesResponse(samples=[encode(row) for row in newest])

    def GetLeaderboard(self, request: observatory_pb2.GetLeaderboardRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        standings = self._chosen(self.standings, selection)
        order = Order(request.order or Order.TTFT)
        return self.message or encode(Leaderboard(window=selection.window, standings=standings, order=order))

    def GetDifferentials(self, request: observatory_pb2.GetDifferentialsRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        chosen = self._chosen(self.differentials, selection)
        against = tuple(row for row in chosen if not request.against or row.region in request.against)
        return self.message or encode(DifferentialList(window=selection.window, differentials=against))

    def GetCoverage(self, request: observatory_pb2.GetCoverageRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        return encode(CoverageList(window=selection.window, coverage=self._chosen(self.coverage, selection)))

    def ListVantages(self, request: observatory_pb2.ListVantagesRequest, context: grpc.ServicerContext) -> Any:
        self._receive(request, context)
        return self.message or encode(self.vantages)

    def GetSpend(self, request: observatory_pb2.GetSpendRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        chosen = (row for row in self.spend if not selection.regions or row.region in selection.regions)
        return encode(SpendList(spend=tuple(chosen)))

    def GetRegionCosts(self, request: observatory_pb2.GetRegionCostsRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        metric = request.metric or Metric.TTFT
        chosen = (row for row in self.region_costs if not selection.regions or row.region in selection.regions)
        costs = tuple(row for row in chosen if row.metric == metric)
        return self.message or encode(RegionCostList(window=selection.window, costs=costs))

    def GetLatencyBudgets(
        self, request: observatory_pb2.GetLatencyBudgetsRequest, context: grpc.ServicerContext
    ) -> Any:
        selection = self._selection(request, context)
        chosen = self._chosen(self.latency_budgets, selection)
        budgets = tuple(row for row in chosen if not request.uses or row.use in request.uses)
        return self.message or encode(LatencyBudgetList(window=selection.window, budgets=budgets))

    def GetTiers(self, request: observatory_pb2.GetTiersRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        return self.message or encode(TierList(window=selection.window, tiers=self._chosen(self.tiers, selection)))

    def GetSeries(self, request: observatory_pb2.GetSeriesRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        chosen = self._chosen(self.series.series, selection)
        answer = replace(self.series, window=selection.window, metric=Metric(request.metric or Metric.TTFT))
        return self.message or encode(replace(answer, series=chosen))

    def GetRateLimits(self, request: observatory_pb2.GetRateLimitsRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        chosen = self._chosen(self.rate_limits.limits, selection)
        return self.message or encode(replace(self.rate_limits, window=selection.window, limits=chosen))

    def ListDrift(self, request: observatory_pb2.ListDriftRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        events = self._chosen(self.drift.events, selection)
        return self.message or encode(replace(self.drift, window=selection.window, events=events))

    def ListIncidents(self, request: observatory_pb2.ListIncidentsRequest, context: grpc.ServicerContext) -> Any:
        self._receive(request, context)
        chosen = tuple(
            one
            for one in self.incidents.incidents
            if request.id in (0, one.id) and (request.past or request.id or one.recovered_at is None)
        )
        if request.id and not chosen:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such incident")
        window = decode(Window, request.window)
        return self.message or encode(replace(self.incidents, window=window, incidents=chosen))

    def ListAlerts(self, request: observatory_pb2.ListAlertsRequest, context: grpc.ServicerContext) -> Any:
        self._receive(request, context)
        window = decode(Window, request.window)
        return self.message or encode(replace(self.alerts, window=window))

    def Simulate(self, request: observatory_pb2.SimulateRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        asked = [row for row in self.simulations if not request.policies or row.policy in request.policies]
        chosen = tuple(row for row in asked if not selection.regions or row.region in selection.regions)
        return self.message or encode(
            SimulationList(window=selection.window, members=insights.MEMBERS, simulations=chosen)
        )

    def FollowSamples(
        self, request: observatory_pb2.FollowSamplesRequest, context: grpc.ServicerContext
    ) -> Iterator[Any]:
        """Stream an empty page, and then each sample that is added to `samples`."""
        self._receive(request, context)
        selection = decode(Selection, request.selection)
        sent = set(self._chosen(self.samples, selection))
        yield observatory_pb2.ListSamplesResponse()
        while context.is_active():
            new = set(self._chosen(self.samples, selection)) - sent
            yield from self._pages(tuple(new))
            sent |= new
            time.sleep(_POLL_SECONDS)

    def ExportSamples(
        self, request: observatory_pb2.ExportSamplesRequest, context: grpc.ServicerContext
    ) -> Iterator[Any]:
        """Stream pages; with `breaking`, the first stream breaks after one page."""
        selection = self._selection(request, context)
        chosen = self._chosen(self.samples, selection)
        if request.newest:
            chosen = tuple(sorted(chosen, key=lambda row: row.sample.round_at)[-request.newest :])
        within = tuple(row for row in chosen if row.sample.round_at >= selection.window.from_at)
        for place, page in enumerate(self._pages(within)):
            if place and self.breaking:
                self.breaking = False
                context.abort(grpc.StatusCode.UNAVAILABLE, "cut off")
            yield page

    def _pages(self, rows: tuple[StoredSample, ...]) -> Iterator[Any]:
        oldest_first = sorted(rows, key=lambda row: row.sample.round_at)
        for place in range(0, len(oldest_first), _PAGE_SIZE):
            page = [encode(row) for row in oldest_first[place : place + _PAGE_SIZE]]
            yield observatory_pb2.ListSamplesResponse(samples=page)

    def _receive(self, request: Any, context: grpc.ServicerContext) -> None:
        self.requests.append(request)
        if self.released is not None:
            self.released.wait(_TIMEOUT_SECONDS)
        failure = self.failures.get(type(request).__name__, self.failure)
        if failure is not None:
            context.abort(*failure)

    def _selection(self, request: Any, context: grpc.ServicerContext) -> Selection:
        self._receive(request, context)
        selection = decode(Selection, request.selection)
        if selection.window.from_at >= selection.window.until_at:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the window is empty")
        self._check_regions((*selection.regions, *getattr(request, "against", ())), context)
        self._check_regions(filter(None, [getattr(request, "baseline", "")]), context)
        names = [target.name for target in self.targets.targets]
        for pattern in selection.targets:
            if not any(fnmatchcase(name, pattern) for name in names):
                context.abort(grpc.StatusCode.NOT_FOUND, f"no target is called {pattern!r}")
        return selection

    def _check_regions(self, regions: Iterable[str], context: grpc.ServicerContext) -> None:
        for region in regions:
            if self.regions is not None and region not in self.regions:
                context.abort(grpc.StatusCode.NOT_FOUND, f"no region is called {region!r}")

    def _chosen(self, rows: tuple[Named, ...], selection: Selection) -> tuple[Named, ...]:
        return tuple(
            row
            for row in rows
            if (not selection.regions or row.region in selection.regions)
            and (not selection.targets or any(fnmatchcase(row.target, pattern) for pattern in selection.targets))
        )


@pytest.fixture
def observatory() -> Iterator[FakeObservatory]:
    """A fake observatory that listens on `address` on loopback."""
    fake = FakeObservatory()
    with ThreadPoolExecutor(max_workers=4) as threads:
        server = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
        add_ObservatoryServicer_to_server(fake, server)
        fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        yield fake
        server.stop(grace=None).wait()
