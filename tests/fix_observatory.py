"""Borrow an observatory: a gRPC server on a real socket that gives the answers put into it.

It keeps the contract's manners (unknown targets are NOT_FOUND, an empty window is INVALID_ARGUMENT, a selection's
window comes back in the answer) and remembers what it was asked. Its threads are its own, so tests with and without an
event loop can borrow it.
"""

# ruff: noqa: N802, D102  # the methods are named by the .proto, which also says what they do

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import grpc
import pytest

from isochrone_wire.answers import (
    Coverage,
    CoverageList,
    Decision,
    Differential,
    DifferentialList,
    Leaderboard,
    Liveness,
    Metric,
    Quantile,
    Selection,
    SpendLine,
    SpendList,
    Standing,
    StoredSample,
    TargetList,
    VantageList,
    VantageStatus,
    Window,
)
from isochrone_wire.codec import decode, encode
from isochrone_wire.model import DAY_US, SECOND_US, Budget, Outcome, Price, Quality, Sample, Target, TokenSource
from isochrone_wire.v1 import observatory_pb2
from isochrone_wire.v1.observatory_pb2_grpc import ObservatoryServicer, add_ObservatoryServicer_to_server

_PATIENCE_SECONDS = 10.0
NOW_AT = 1_795_248_000_000_000  # 2026-11-21T08:00:00Z
WINDOW = Window(from_at=NOW_AT - 86_400 * SECOND_US, until_at=NOW_AT)
Named = TypeVar("Named", Differential, Standing, Coverage, StoredSample)

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
        shift=191_250.0,
        shift_low=180_100.0,
        shift_high=203_700.0,
        shift_percent=59.7,
        n=1436,
        baseline_n=1440,
        region_n=1437,
        decision=Decision.SLOWER,
        newest_at=NOW_AT - 42 * SECOND_US,
    ),
    replace(
        _PAIR,
        target="deepseek/deepseek-v4-flash",
        provider="deepseek",
        model="deepseek-v4-flash",
        baseline_median=180_000.0,
        region_median=150_200.0,
        shift=-30_100.0,
        shift_low=-34_900.0,
        shift_high=-25_300.0,
        shift_percent=-16.7,
        n=1431,
        baseline_n=1440,
        region_n=1431,
        decision=Decision.FASTER,
        newest_at=NOW_AT - 12 * SECOND_US,
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
        reason="3 of 6 rounds needed",
        newest_at=NOW_AT - 7_200 * SECOND_US,
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
        ttft_p50_us=Quantile(value=180_000, low=178_200, high=181_900),
        ttft_p95_us=Quantile(value=260_300, low=251_000, high=270_800),
        tokens_per_second_p50=Quantile(value=60.2, low=59.1, high=61.0),
        usd_per_m_output=0.25,
        newest_at=NOW_AT - 12 * SECOND_US,
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
            reason="last heard 9 min ago, and was to be heard again 9 min ago",
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
            reason="heard 4 s ago, but its newest sample is 12 min old; it refuses plan 3",
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
    """A sample of round number `place` before now, with changes to its fields."""
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
    """Answers for every question, which a test may change at any time, and the questions that came.

    `failure` is what every question fails with, `message` what it gets instead of an answer; with `released`, nobody
    gets anything before it is set.
    """

    targets: TargetList = TARGETS
    samples: tuple[StoredSample, ...] = SAMPLES
    standings: tuple[Standing, ...] = STANDINGS
    differentials: tuple[Differential, ...] = DIFFERENTIALS
    coverage: tuple[Coverage, ...] = COVERAGE
    vantages: VantageList = VANTAGES
    spend: tuple[SpendLine, ...] = SPEND
    failure: tuple[grpc.StatusCode, str] | None = None
    message: Any = None
    released: threading.Event | None = None
    asked: list[Any] = field(default_factory=list)
    address: str = ""

    def ListTargets(self, request: observatory_pb2.ListTargetsRequest, context: grpc.ServicerContext) -> Any:
        self._listen(request, context)
        return self.message or encode(self.targets)

    def ListSamples(self, request: observatory_pb2.ListSamplesRequest, context: grpc.ServicerContext) -> Any:
        chosen = self._chosen(self.samples, self._selection(request, context))
        newest = sorted(chosen, key=lambda row: row.sample.round_at, reverse=True)[: request.limit]
        return observatory_pb2.ListSamplesResponse(samples=[encode(row) for row in newest])

    def GetLeaderboard(self, request: observatory_pb2.GetLeaderboardRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        return encode(Leaderboard(window=selection.window, standings=self._chosen(self.standings, selection)))

    def GetDifferentials(self, request: observatory_pb2.GetDifferentialsRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        chosen = self._chosen(self.differentials, selection)
        against = tuple(row for row in chosen if not request.against or row.region in request.against)
        return self.message or encode(DifferentialList(window=selection.window, differentials=against))

    def GetCoverage(self, request: observatory_pb2.GetCoverageRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        return encode(CoverageList(window=selection.window, coverage=self._chosen(self.coverage, selection)))

    def ListVantages(self, request: observatory_pb2.ListVantagesRequest, context: grpc.ServicerContext) -> Any:
        self._listen(request, context)
        return self.message or encode(self.vantages)

    def GetSpend(self, request: observatory_pb2.GetSpendRequest, context: grpc.ServicerContext) -> Any:
        selection = self._selection(request, context)
        chosen = (row for row in self.spend if not selection.regions or row.region in selection.regions)
        return encode(SpendList(spend=tuple(chosen)))

    def _listen(self, request: Any, context: grpc.ServicerContext) -> None:
        self.asked.append(request)
        if self.released is not None:
            self.released.wait(_PATIENCE_SECONDS)
        if self.failure is not None:
            context.abort(*self.failure)

    def _selection(self, request: Any, context: grpc.ServicerContext) -> Selection:
        self._listen(request, context)
        selection = decode(Selection, request.selection)
        if selection.window.from_at >= selection.window.until_at:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the window is empty")
        names = [target.name for target in self.targets.targets]
        for pattern in selection.targets:
            if not any(fnmatchcase(name, pattern) for name in names):
                context.abort(grpc.StatusCode.NOT_FOUND, f"no target is called {pattern!r}")
        return selection

    def _chosen(self, rows: tuple[Named, ...], selection: Selection) -> tuple[Named, ...]:
        return tuple(
            row
            for row in rows
            if (not selection.regions or row.region in selection.regions)
            and (not selection.targets or any(fnmatchcase(row.target, pattern) for pattern in selection.targets))
        )


@pytest.fixture
def observatory() -> Iterator[FakeObservatory]:
    """A fake observatory that listens on loopback; `address` says where."""
    fake = FakeObservatory()
    with ThreadPoolExecutor(max_workers=4) as threads:
        server = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
        add_ObservatoryServicer_to_server(fake, server)
        fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        yield fake
        server.stop(grace=None).wait()
