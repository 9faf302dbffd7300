"""Answers for matrices and the live view: five targets from three regions, one in each state of a cell."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from isochrone_client.live_view.answers import Answers, Detail
from isochrone_client.live_view.state import Question
from isochrone_client.pages.matrix import Cell
from isochrone_wire.answers import Decision, Differential, DifferentialList, Metric, Proportion, Quantile, Window
from isochrone_wire.fleet import Coverage, CoverageList
from isochrone_wire.insights import Alert, AlertKind, Incident, Leaderboard, Standing
from isochrone_wire.model import MINUTE_US, SECOND_US
from isochrone_wire.queries.series import Series, SeriesList, SeriesPoint
from testdata.insights import NOW_AT, PARTS

BASELINE, REGION, OTHER = "us-east-2", "ap-southeast-1", "eu-central-1"


def difference(
    shift: float | None,
    *errors: float,
    target: str = "acme/large",
    region: str = REGION,
    n: int = 10,
    decision: Decision = Decision.SLOWER,
    **more: Any,
) -> Differential:
    """A difference whose interval ends so far below and above it; without a shift, one that is not known yet."""
    below, above = errors or (2.0, 2.0)
    return Differential(
        target=target,
        provider="acme",
        model=target.partition("/")[2],
        metric=Metric.TTFT,
        unit="us",
        baseline=BASELINE,
        region=region,
        shift=None if shift is None else 1000 * shift,
        shift_low=None if shift is None else 1000 * (shift - below),
        shift_high=None if shift is None else 1000 * (shift + above),
        n=0 if shift is None else n,
        baseline_n=n + 1,
        region_n=n,
        decision=Decision.UNDECIDED if shift is None else decision,
        margin=20_000.0,
        **more,
    )


def cell(value: float, row: Differential, **more: Any) -> Cell:
    return Cell(value=1000 * value, rounds=row.n or row.region_n, difference=row, **more)


HOUR = Window(from_at=NOW_AT - 60 * MINUTE_US, until_at=NOW_AT)
FAST, SLOW, EQUAL, NEW, FAILING = (
    "deepseek/deepseek-v4-flash",
    "openai/gpt-5-mini",
    "qwen/qwen3-32b",
    "zhipu/glm-5",
    "moonshot/kimi-k2.5",
)
TARGETS = tuple(sorted((FAST, SLOW, EQUAL, NEW, FAILING)))
MEDIANS_MS = {FAST: 180.0, SLOW: 320.0, EQUAL: 405.0, FAILING: 610.0}
SHIFTS_MS = {
    (FAST, REGION): (-30.0, Decision.FASTER),
    (FAST, OTHER): (12.0, Decision.UNDECIDED),
    (SLOW, REGION): (191.0, Decision.SLOWER),
    (SLOW, OTHER): (88.0, Decision.MIXED),
    (EQUAL, REGION): (2.0, Decision.EQUIVALENT),
    (EQUAL, OTHER): (-3.0, Decision.EQUIVALENT),
    (FAILING, REGION): (35.0, Decision.SLOWER),
}
BUCKET_US = 5 * MINUTE_US


def _parts(target: str) -> dict[str, Any]:
    provider, _, model = target.partition("/")
    return {"target": target, "provider": provider, "model": model}


def _standing(target: str, region: str) -> Standing:
    us = 1000 * (MEDIANS_MS[target] + SHIFTS_MS.get((target, region), (0.0, None))[0])
    return Standing(
        region=region,
        rank=1,
        n=58,
        failed=2,
        ttft_p50_us=Quantile(value=us, low=us - 4_000, high=us + 4_000, n_eff=41.0),
        ttft_p95_us=Quantile(value=2 * us, low=1.8 * us, high=2.3 * us),
        tokens_per_second_p50=Quantile(value=60.25, low=59.0, high=61.0),
        success=Proportion(value=0.966, low=0.883, high=0.991, n=60),
        # The newest round of one place is old.
        newest_at=NOW_AT - (40 * MINUTE_US if (target, region) == (EQUAL, OTHER) else 12 * SECOND_US),
        **_parts(target),
    )


def _differential(target: str, region: str) -> Differential:
    ms, decision = SHIFTS_MS.get((target, region), (None, Decision.UNDECIDED))
    parts = PARTS if region == REGION else ()
    found = difference(ms, 4.0, 5.0, target=target, region=region, decision=decision, parts=parts)
    return replace(found, n=3 if ms is None else 58, baseline_n=58, region_n=58, margin=None, **_parts(target))


def _series(target: str, region: str) -> Series:
    us = 1000 * MEDIANS_MS[target]
    points = [
        SeriesPoint(at=HOUR.from_at + place * BUCKET_US, n=5, p50=us * (0.5 + place / 24), ok=5) for place in range(12)
    ]
    if target == FAILING and region == REGION:
        points[-3:] = [SeriesPoint(at=point.at, failed=5) for point in points[-3:]]
    # The newest round of this place is old.
    return Series(
        target=target, region=region, points=tuple(points[:4] if (target, region) == (EQUAL, OTHER) else points)
    )


def _places(*regions: str) -> list[tuple[str, str]]:
    return [(target, region) for target in MEDIANS_MS for region in regions]


ANSWERS = Answers(
    question=Question(),
    answered_at=NOW_AT,
    baseline=BASELINE,
    regions=(REGION, OTHER),
    targets=TARGETS,
    leaderboard=Leaderboard(
        window=HOUR, standings=tuple(_standing(*place) for place in _places(BASELINE, REGION, OTHER))
    ),
    differentials=DifferentialList(
        window=HOUR, differentials=tuple(_differential(*place) for place in _places(REGION, OTHER))
    ),
    series=SeriesList(
        window=HOUR,
        metric=Metric.TTFT,
        bucket_us=BUCKET_US,
        series=tuple(_series(*place) for place in _places(BASELINE, REGION, OTHER)),
    ),
    incidents=(
        Incident(
            id=7,
            kind=AlertKind.TARGET_FAILING,
            subject=FAILING,
            first_failed_at=NOW_AT - 14 * MINUTE_US,
            last_failed_at=NOW_AT - 20 * SECOND_US,
            opened_at=NOW_AT - 12 * MINUTE_US,
            scope="one",
            failing=(REGION,),
            regions=(REGION,),
        ),
    ),
    newest_event=Alert(
        id=3,
        kind=AlertKind.DRIFT,
        subject=f"{SLOW} from {REGION}",
        sentence="ttft rose by 34 %, from 240 to 320 ms, at 2026-11-21 07:10 UTC",
        raised_at=NOW_AT - 30 * MINUTE_US,
    ),
)


def _of_slow(rows: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(row for row in rows if row.target == SLOW)


DETAIL = Detail(
    target=SLOW,
    baseline=BASELINE,
    leaderboard=Leaderboard(window=HOUR, standings=_of_slow(ANSWERS.leaderboard.standings)),
    differentials=DifferentialList(window=HOUR, differentials=_of_slow(ANSWERS.differentials.differentials)),
    series=replace(ANSWERS.series, series=_of_slow(ANSWERS.series.series)),
    coverage=CoverageList(
        window=HOUR,
        coverage=tuple(
            Coverage(
                vantage=f"{region}-1",
                region=region,
                target=SLOW,
                planned=60,
                recorded=60,
                outcomes={"ok": 58, "timed_out": 2},
                newest_at=NOW_AT - 12 * SECOND_US,
            )
            for region in (BASELINE, REGION)
        ),
    ),
)
