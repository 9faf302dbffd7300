"""Answers of every kind: small, and those of one collector. Most are in answers.json, in the JSON of the wire."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from isochrone_wire import fleet
from isochrone_wire.answers import Differential, Metric, Part, Source, Window
from isochrone_wire.insights import (
    AlertList,
    DriftList,
    IncidentList,
    LatencyBudget,
    RateLimitList,
    RegionCost,
    Simulation,
    Standing,
    TierLine,
)
from isochrone_wire.json_format import from_json
from isochrone_wire.model import MINUTE_US, SECOND_US
from isochrone_wire.queries.series import Series, SeriesBin, SeriesList, SeriesPoint
from isochrone_wire.queries.status import StatusList

Value = TypeVar("Value")
ANSWERS = json.loads(Path(__file__).with_name("answers.json").read_text())


def read(cls: type[Value], name: str) -> Value:
    return from_json(cls, ANSWERS[name])


def read_all(cls: type[Value], name: str) -> tuple[Value, ...]:
    return tuple(from_json(cls, one) for one in ANSWERS[name])


NOW_AT = 1_795_248_000_000_000  # 2026-11-21T08:00:00Z
WINDOW = Window(from_at=NOW_AT - 86_400 * SECOND_US, until_at=NOW_AT)
TARGETS = read(fleet.TargetList, "targets")
VANTAGES = read(fleet.VantageList, "vantages")
COVERAGE = read_all(fleet.Coverage, "coverage")
SPEND = read_all(fleet.SpendLine, "spend")
SAMPLES = read_all(fleet.StoredSample, "samples")
PARTS = read_all(Part, "parts")
DIFFERENTIALS = read_all(Differential, "differentials")
STEPPED = read(Differential, "stepped")  # one minute ago
STANDINGS = read_all(Standing, "standings")
REGION_COSTS = read_all(RegionCost, "region_costs")
LATENCY_BUDGETS = read_all(LatencyBudget, "latency_budgets")
TIERS = read_all(TierLine, "tiers")
MEMBERS = ("deepseek/deepseek-v4-flash", "openai/gpt-5-mini")
SIMULATIONS = read_all(Simulation, "simulations")
RATE_LIMITS = read(RateLimitList, "rate_limits")
DRIFT = read(DriftList, "drift")
ALERTS = read(AlertList, "alerts")
INCIDENTS = read(IncidentList, "incidents")
STATUS = read(StatusList, "status")

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
