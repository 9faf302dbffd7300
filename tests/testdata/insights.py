"""Answers over several samples for the fake observatory: small, and one of each kind."""

from dataclasses import replace

from isochrone_wire.answers import Decision, Metric, Part, Proportion, Quantile, Source, Window
from isochrone_wire.insights import (
    Alert,
    AlertKind,
    AlertList,
    DriftEvent,
    DriftList,
    Eligible,
    Exhaustion,
    FailedProbe,
    Incident,
    IncidentList,
    LatencyBudget,
    RateLimitList,
    RateLimitPoint,
    RateLimitSeries,
    RegionCost,
    Simulation,
    TierLine,
)
from isochrone_wire.model import MINUTE_US, SECOND_US
from isochrone_wire.operations import AlertDelivery, DeliveryState, Silence
from isochrone_wire.queries.series import Series, SeriesBin, SeriesList, SeriesPoint
from isochrone_wire.queries.status import OpenIncident, State, StatusList, TargetStatus

NOW_AT = 1_795_248_000_000_000  # 2026-11-21T08:00:00Z
WINDOW = Window(from_at=NOW_AT - 86_400 * SECOND_US, until_at=NOW_AT)
_FAST = Quantile(value=180_000, low=178_200, high=181_900)
_SLOW = Quantile(value=320_400, low=305_000, high=333_100)


def _part(name: str, shift: float, of: tuple[float, float], *, spread: float = 400.0) -> Part:
    medians = {"baseline_median": of[0], "region_median": of[1]}
    return Part(name=name, shift=shift, low=shift - spread, high=shift + spread, n=1402, **medians)


PARTS = (
    _part("dns", 300.0, (1_100.0, 1_400.0)),
    _part("tcp", 177_100.0, (12_000.0, 189_200.0)),
    _part("tls", 178_400.0, (14_500.0, 193_000.0)),
    _part("rtt", 178_000.0, (11_900.0, 189_900.0)),
    _part("server", 13_400.0, (308_100.0, 321_700.0), spread=9_800.0),
    _part("edge", 4_300.0, (57_100.0, 61_400.0), spread=3_100.0),
    _part("provider", 9_100.0, (251_000.0, 260_300.0), spread=7_700.0),
)

_BEST = RegionCost(
    provider="openai",
    metric=Metric.TTFT,
    region="us-east-2",
    best_region="us-east-2",
    targets=1,
    median=320_400.0,
    added=0.0,
    n=1440,
    decision=Decision.FASTER,
    provisional=True,
)
REGION_COSTS = (
    _BEST,
    replace(
        _BEST,
        region="ap-southeast-1",
        median=512_900.0,
        added=191_250.0,
        added_low=180_100.0,
        added_high=203_700.0,
        n=1436,
        n_eff=412.4,
        decision=Decision.SLOWER,
    ),
    replace(
        _BEST,
        region="eu-central-1",
        median=None,
        added=None,
        n=3,
        decision=Decision.UNDECIDED,
        reason="3 of 24 rounds needed",
        provisional=False,
    ),
)

_VOICE = LatencyBudget(
    use="voice",
    metric=Metric.TTFT,
    share=0.95,
    limit_us=300_000,
    region="us-east-2",
    target="deepseek/deepseek-v4-flash",
    eligible=Eligible.YES,
    quantile=_FAST,
    n=1440,
    n_eff=1440.0,
    usd_per_m_output=0.25,
    goodput=Proportion(value=0.9931, low=0.9873, high=0.9963, n=1440),
)
LATENCY_BUDGETS = (
    _VOICE,
    replace(
        _VOICE,
        target="openai/gpt-5-mini",
        eligible=Eligible.NO,
        quantile=_SLOW,
        n=120,
        n_eff=96.5,
        reason="41 of 120 requests failed",
        usd_per_m_output=2.0,
        goodput=Proportion(value=0.5583, low=0.4687, high=0.6442, n=120),
    ),
    replace(
        _VOICE,
        region="ap-southeast-1",
        eligible=Eligible.MAYBE,
        quantile=Quantile(value=298_000, low=290_000, high=306_000),
        goodput=Proportion(value=0.9521, low=0.9398, high=0.9619, n=1440),
    ),
    replace(
        _VOICE,
        region="ap-southeast-1",
        target="openai/gpt-5-mini",
        eligible=Eligible.UNKNOWN,
        quantile=None,
        n=3,
        n_eff=3.0,
        reason="3 of 59 samples",
        goodput=Proportion(value=1.0, low=0.3684, high=1.0, n=3),
    ),
    replace(
        _VOICE,
        use="step",
        metric=Metric.E2E,
        limit_us=5_000_000,
        quantile=Quantile(value=1_702_000, low=1_690_000, high=1_731_000),
    ),
)

TIERS = (
    TierLine(
        tier="sweet spot",
        region="us-east-2",
        rank=1,
        rank_low=1,
        rank_high=1,
        target="deepseek/deepseek-v4-flash",
        usd_per_m_output=0.25,
        ttft_p50_us=_FAST,
        tokens_per_second_p50=Quantile(value=60.2, low=59.1, high=61.0),
        tokens_per_second_per_usd=240.8,
        n=1431,
    ),
    TierLine(
        tier="premium",
        region="us-east-2",
        rank=1,
        rank_low=1,
        rank_high=1,
        target="openai/gpt-5-mini",
        usd_per_m_output=2.0,
        ttft_p50_us=_SLOW,
        tokens_per_second_p50=Quantile(value=144.8, low=139.0, high=149.5),
        tokens_per_second_per_usd=72.4,
        n=31,
    ),
)

DRIFT = DriftList(
    window=WINDOW,
    events=(
        DriftEvent(
            target="openai/gpt-5-mini",
            provider="openai",
            model="gpt-5-mini",
            region="us-east-2",
            metric=Metric.TTFT,
            changed_at=NOW_AT - 7_200 * SECOND_US,
            detected_at=NOW_AT - 6_600 * SECOND_US,
            before=240_000.0,
            after=320_400.0,
            change_percent=33.5,
            p_value=0.001,
            n_before=1320,
            n_after=120,
            may_be_weekly=True,
        ),
    ),
    watched=4,
    too_short=1,
)

_BUCKET_US = 30 * MINUTE_US


def _point(place: int, p50: float | None, *, failed: int = 0) -> SeriesPoint:
    spread = None if p50 is None else 0.1 * p50
    return SeriesPoint(
        at=WINDOW.from_at + place * _BUCKET_US,
        n=30 - failed,
        p10=None if p50 is None or spread is None else p50 - spread,
        p50=p50,
        p90=None if p50 is None or spread is None else p50 + spread,
        ok=30 - failed,
        failed=failed,
    )


# A target that becomes slower two hours before the end, and one that fails for two hours from one of two regions.
SERIES = SeriesList(
    window=WINDOW,
    metric=Metric.TTFT,
    bucket_us=_BUCKET_US,
    series=(
        Series(
            target="deepseek/deepseek-v4-flash",
            region="ap-southeast-1",
            points=tuple(
                _point(place, None, failed=30) if 20 <= place < 24 else _point(place, 150_000.0 + 500 * (place % 7))
                for place in range(48)
            ),
        ),
        Series(
            target="deepseek/deepseek-v4-flash",
            region="us-east-2",
            points=tuple(_point(place, 180_000.0 + 700 * (place % 5)) for place in range(48)),
        ),
        Series(
            target="openai/gpt-5-mini",
            region="us-east-2",
            points=tuple(_point(place, 240_000.0 if place < 44 else 320_400.0) for place in range(48)),
        ),
    ),
)

# The same from one region, with the requests answered within 250 ms, from summaries.
SERIES_WITH_GOODPUT = replace(
    SERIES,
    limit_us=250_000,
    source=Source.SUMMARIES,
    series=tuple(
        replace(
            line,
            points=tuple(
                replace(point, planned=30, good=28 if point.p50 is not None and point.p50 < 250_000 else 0)
                for point in line.points
            ),
        )
        for line in SERIES.series
        if line.region == "us-east-2"
    ),
)

# Bins from 100 ms on, whose upper edges are 1.5 times the lower ones; one region has values of 0.
_EDGES = tuple(100_000.0 * 1.5**place for place in range(7))
SERIES_WITH_DISTRIBUTION = replace(
    SERIES,
    series=tuple(
        replace(
            line,
            points=line.points[-6:],
            bins=(
                *((SeriesBin(low=0.0, high=0.0, n=3),) if line.region == "us-east-2" else ()),
                *(SeriesBin(low=_EDGES[place], high=_EDGES[place + 1], n=n) for place, n in enumerate(counts) if n),
            ),
        )
        for line, counts in zip(SERIES.series, ((900, 300, 0, 0, 6, 0), (0, 1440), (0, 0, 1200, 240)), strict=True)
    ),
)

_TOLD = Alert(
    id=12,
    kind=AlertKind.DRIFT,
    subject="openai/gpt-5-mini from us-east-2",
    sentence="ttft rose by 34 %, from 240 to 320 ms, at 2026-11-21 06:00 UTC",
    raised_at=NOW_AT - 6_600 * SECOND_US,
    delivered_at=NOW_AT - 6_599 * SECOND_US,
    attempts=1,
    deliveries=(
        AlertDelivery(
            receiver="webhook",
            state=DeliveryState.DELIVERED,
            delivered_at=NOW_AT - 6_599 * SECOND_US,
            attempts=1,
        ),
    ),
)
ALERTS = AlertList(
    window=WINDOW,
    alerts=(
        _TOLD,
        replace(
            _TOLD,
            id=11,
            kind=AlertKind.VANTAGE_ABSENT,
            subject="ohio-2",
            sentence="ohio-2 in us-east-2 has sent no heartbeat for 9 min",
            raised_at=NOW_AT - 7_000 * SECOND_US,
            delivered_at=None,
            attempts=3,
            last_error="503 Service Unavailable",
            deliveries=(
                AlertDelivery(
                    receiver="chat",
                    state=DeliveryState.DELIVERED,
                    delivered_at=NOW_AT - 6_999 * SECOND_US,
                    attempts=1,
                ),
                AlertDelivery(
                    receiver="oncall",
                    state=DeliveryState.PENDING,
                    attempts=3,
                    last_error="503 Service Unavailable",
                ),
            ),
        ),
    ),
    webhook=True,
)

_PROBE = FailedProbe(
    vantage="sg-1", region="ap-southeast-1", round_at=NOW_AT - 60 * SECOND_US, outcome="http_error 503"
)
_FAILING = Incident(
    id=0x288A8EFA7AB91175,
    kind=AlertKind.TARGET_FAILING,
    subject="moonshot/kimi-k2.5",
    first_failed_at=NOW_AT - 1_440 * SECOND_US,
    last_failed_at=NOW_AT - 60 * SECOND_US,
    opened_at=NOW_AT - 1_310 * SECOND_US,
    escalated_at=NOW_AT - 900 * SECOND_US,
    scope="all",
    failing=("ap-southeast-1", "us-east-2"),
    regions=("ap-southeast-1", "us-east-2"),
    classes={"http_error 503": 31, "timed_out": 4},
    samples=(_PROBE, replace(_PROBE, vantage="ohio-1", region="us-east-2")),
    example="the service is overloaded",
)
_SILENCE = Silence(
    id=0x5C,
    providers=("openai",),
    reason="the model comes tomorrow",
    created_by="ben",
    created_at=NOW_AT - 1_000 * SECOND_US,
    until_at=NOW_AT + 36_000 * SECOND_US,
)
_ACKNOWLEDGEMENT = replace(
    _SILENCE,
    id=0xAC,
    providers=(),
    thread="incident_288a8efa7ab91175",
    subject="moonshot/kimi-k2.5",
    reason="Ann is on it",
    created_by="ann",
)
INCIDENTS = IncidentList(
    window=WINDOW,
    incidents=(
        replace(_FAILING, silences=(_ACKNOWLEDGEMENT,)),
        replace(
            _FAILING,
            id=0x1F,
            kind=AlertKind.TARGET_THROTTLED,
            subject="openai/gpt-5-mini",
            first_failed_at=NOW_AT - 7_200 * SECOND_US,
            last_failed_at=NOW_AT - 6_000 * SECOND_US,
            opened_at=NOW_AT - 7_080 * SECOND_US,
            escalated_at=None,
            recovered_at=NOW_AT - 5_800 * SECOND_US,
            scope="one",
            failing=(),
            regions=("us-east-2",),
            classes={"throttled 429": 11},
            samples=(replace(_PROBE, vantage="ohio-1", region="us-east-2", outcome="throttled 429"),),
            example="",
        ),
        replace(
            _FAILING,
            id=0x2A,
            subject="openai/gpt-6-mini",
            escalated_at=None,
            never_worked=True,
            scope="one",
            failing=("us-east-2",),
            regions=("us-east-2",),
            classes={"http_error 404": 24},
            samples=(),
            example="the model `gpt-6-mini` does not exist",
            silences=(_SILENCE,),
        ),
    ),
    watched=9,
)

STATUS = StatusList(
    window=WINDOW,
    incidents=(
        OpenIncident(target=_FAILING.subject, kind="failing", regions=("eu-central-1",), since_at=NOW_AT - MINUTE_US),
    ),
    rows=(
        TargetStatus(
            target=_FAILING.subject,
            provider="moonshot",
            region="eu-central-1",
            state=State.FAILING,
            success=0.981,
            ttft_p50_us=180_000.0,
            recent_ttft_p50_us=None,
            newest_at=NOW_AT,
        ),
    ),
)

_LIMIT = RateLimitSeries(
    target="moonshot/kimi-k2.5",
    provider="moonshot",
    credential="moonshot",
    region="us-east-2",
    vantage="ohio-1",
    kind="requests",
    newest_at=NOW_AT - 12 * SECOND_US,
    remaining=211,
    limit=500,
    reset_us=30 * 60 * SECOND_US,
    lowest=180,
    n=240,
    exhaustion=Exhaustion.EXPECTED,
    per_minute=-21.5,
    per_minute_low=-24.0,
    per_minute_high=-19.0,
    exhausted_at=NOW_AT + 577 * SECOND_US,
    exhausted_low_at=NOW_AT + 515 * SECOND_US,
    exhausted_high_at=NOW_AT + 654 * SECOND_US,
    readings=31,
    points=tuple(
        RateLimitPoint(at=WINDOW.from_at + place * (WINDOW.until_at - WINDOW.from_at) // 12, remaining=480 - 25 * place)
        for place in range(12)
        if place != 7
    ),
)
RATE_LIMITS = RateLimitList(
    window=WINDOW,
    bucket_us=(WINDOW.until_at - WINDOW.from_at) // 12,
    limits=(
        _LIMIT,
        replace(
            _LIMIT,
            kind="tokens",
            remaining=199_000,
            limit=200_000,
            reset_us=450_000,
            lowest=188_000,
            exhaustion=Exhaustion.NOT_EXPECTED,
            per_minute=-8.0,
            per_minute_low=-40.0,
            per_minute_high=12.0,
            exhausted_at=None,
            exhausted_low_at=None,
            exhausted_high_at=None,
            points=(),
        ),
        replace(
            _LIMIT,
            target="openai/gpt-5-mini",
            provider="openai",
            credential="",
            limit=None,
            reset_us=None,
            exhaustion=Exhaustion.POSSIBLE,
            per_minute_high=3.0,
            exhausted_high_at=None,
        ),
        replace(
            _LIMIT,
            target="qwen/qwen3",
            provider="qwen",
            remaining=0,
            lowest=0,
            exhaustion=Exhaustion.EXHAUSTED,
            per_minute=None,
            per_minute_low=None,
            per_minute_high=None,
            exhausted_at=NOW_AT - 12 * SECOND_US,
            exhausted_low_at=None,
            exhausted_high_at=None,
            readings=3,
        ),
    ),
)

MEMBERS = ("deepseek/deepseek-v4-flash", "openai/gpt-5-mini")
_STATIC = Simulation(
    policy="static:openai/gpt-5-mini",
    region="us-east-2",
    rounds=1430,
    requests=1430,
    failed=9,
    ttft_p50_us=_SLOW,
    ttft_p95_us=Quantile(value=410_000, low=402_000, high=421_000),
    usd=0.29,
)
SIMULATIONS = (
    _STATIC,
    replace(
        _STATIC,
        policy="race:2",
        requests=2860,
        failed=0,
        ttft_p50_us=Quantile(value=176_000, low=174_900, high=177_300),
        ttft_p95_us=Quantile(value=240_000, low=236_000, high=244_500),
        usd=0.33,
    ),
    replace(
        _STATIC,
        policy="fallback:200",
        requests=1702,
        failed=1,
        switches=272,
        ttft_p50_us=_FAST,
        ttft_p95_us=Quantile(value=372_000, low=365_000, high=380_000),
        usd=None,
        note="the price of 1 of 2 members is not known",
    ),
)
