"""Answers about fifteen targets from twelve regions, one of them the baseline."""

from dataclasses import replace

from isochrone_client.live_view.answers import Answers
from isochrone_client.live_view.state import Question
from isochrone_wire.answers import Decision, Differential, DifferentialList, Quantile
from isochrone_wire.insights import Leaderboard, Standing
from isochrone_wire.queries.series import SeriesList
from testdata.client_answers import ANSWERS, BASELINE, HOUR, difference
from testdata.insights import NOW_AT

REGIONS = (
    *("af-south-1", "ap-northeast-1", "ap-south-1", "ap-southeast-1", "ca-central-1", "eu-central-1"),
    *("eu-north-1", "eu-west-1", "me-central-1", "sa-east-1", "us-west-2"),
)
TARGETS = (
    *("anthropic/claude-haiku-4.5", "cerebras/gpt-oss-120b", "deepseek/deepseek-v4-flash", "deepseek/deepseek-v4-pro"),
    *("google/gemini-3-flash", "groq/llama-3.3-70b-versatile", "groq/qwen3-8b", "meta-llama/llama-4-maverick"),
    *("mistral/mistral-medium-3", "moonshot/kimi-k2.5", "openai/gpt-5-mini", "openai/gpt-5.1"),
    *("qwen/qwen3.5-397b-a17b", "xai/grok-4-fast", "zhipu/glm-5"),
)
UNKNOWN, EARLY, LARGE = (TARGETS[5], REGIONS[5]), (TARGETS[6], REGIONS[6]), (TARGETS[3], REGIONS[4])


def _shift_ms(row: int, column: int) -> float:
    return 1250.0 if (TARGETS[row], REGIONS[column]) == LARGE else (row * 37 + column * 91) % 460 - 60


def _decision(row: int, column: int) -> Decision:
    shift = _shift_ms(row, column)
    if (row + column) % 5 == 0:
        return Decision.UNDECIDED
    return Decision.SLOWER if shift > 20 else Decision.FASTER if shift < -20 else Decision.EQUIVALENT


def _median_ms(row: int) -> float:
    return 180.0 + 40 * row


def _differential(row: int, column: int) -> Differential:
    target, region = TARGETS[row], REGIONS[column]
    shift = None if (target, region) == UNKNOWN else _shift_ms(row, column)
    found = difference(shift, 3.0, 4.0, target=target, region=region, n=30, decision=_decision(row, column))
    median = _median_ms(row)
    found = replace(found, baseline_median=1000 * median, region_median=1000 * (median + (shift or 0)))
    return replace(found, shift_low=None, shift_high=None, n=4) if (target, region) == EARLY else found


PLACES = [(row, column) for row in range(len(TARGETS)) for column in range(len(REGIONS))]
DIFFERENTIALS = DifferentialList(window=HOUR, differentials=tuple(_differential(*place) for place in PLACES))


def _standing(row: int, column: int) -> Standing:
    us = 1000 * (_median_ms(row) + (_shift_ms(row, column) if column >= 0 else 0.0))
    return Standing(
        region=REGIONS[column] if column >= 0 else BASELINE,
        rank=1,
        target=TARGETS[row],
        provider=TARGETS[row].partition("/")[0],
        model=TARGETS[row].partition("/")[2],
        n=60,
        failed=0,
        ttft_p50_us=Quantile(value=us, low=us - 3_000, high=us + 4_000, n_eff=30.0),
        ttft_p95_us=Quantile(value=2 * us, low=1.8 * us, high=2.3 * us),
        newest_at=NOW_AT,
    )


LIVE_ANSWERS = Answers(
    question=Question(),
    answered_at=NOW_AT,
    baseline=BASELINE,
    regions=REGIONS,
    targets=TARGETS,
    leaderboard=Leaderboard(
        window=HOUR,
        standings=tuple(_standing(row, column) for row in range(len(TARGETS)) for column in range(-1, len(REGIONS))),
    ),
    differentials=DIFFERENTIALS,
    series=SeriesList(window=HOUR, metric=ANSWERS.series.metric, bucket_us=ANSWERS.series.bucket_us, series=()),
)
