"""Validation: the counts add up, every rejection has a name, and every accepted sample fits its columns."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isochrone_collector.errors import BadRequest
from isochrone_collector.ingest.raw_push import MAX_SAMPLE_BYTES, decode_push
from isochrone_collector.ingest.validation import (
    MAX_SAMPLES,
    PushBatch,
    Validated,
    check_batch,
    late_reason,
    rejection_reason,
    trimmed,
    validate,
)
from isochrone_wire import codec
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, Batch, Heartbeat, Outcome, Quality, RateLimit, Sample, Spend, Vantage

NOW_AT = 1_795_248_000_000_000
WINDOW = Window(from_at=NOW_AT - 31 * DAY_US, until_at=NOW_AT + 4 * DAY_US)
SAMPLE = Sample(target_id=7, round_at=NOW_AT, outcome=Outcome.OK, dispatched_at=NOW_AT + 12, ttft_us=350_000)
BATCH = Batch(vantage=Vantage(name="us-1", region="us-east-2"), epoch=99, seq=1, samples=(SAMPLE,))


def batch(**change: Any) -> PushBatch:
    return decode_push(codec.encode(replace(BATCH, **change)).SerializeToString(), NOW_AT)


def validated_of(batch: PushBatch) -> Validated:
    return validate(batch, batch.decode_columns(), window=WINDOW)


def reason_of(sample: Sample) -> str | None:
    return rejection_reason(sample, now_at=NOW_AT)


def test_a_plain_sample_is_accepted() -> None:
    """An ordinary sample is fresh."""
    validated = validated_of(batch())
    assert (validated.fresh.tolist(), validated.rejections, validated.late) == ([0], (), ())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"round_at": 0}, "absurd_time: round_at = 0 is more than 400 days from now"),
        ({"round_at": NOW_AT + 401 * DAY_US}, "absurd_time: round_at"),
        ({"dispatched_at": 2**63 - 1}, "absurd_time: dispatched_at"),
        ({"ttft_us": -5}, "out_of_bounds: ttft_us = -5 (0 to 86400000000)"),
        ({"e2e_us": DAY_US + 1}, "out_of_bounds: e2e_us"),
        ({"late_us": -DAY_US - 1}, "out_of_bounds: late_us"),
        ({"tokens_per_second": float("nan")}, "not_finite: tokens_per_second"),
        ({"tokens_per_second": float("inf")}, "not_finite: tokens_per_second"),
        ({"cost_usd": -0.01}, "out_of_bounds: cost_usd"),
        ({"tokens_per_second": 0.0}, "out_of_bounds: tokens_per_second = 0.0 (1e-05 to 1000000)"),
        ({"tokens_per_second": 5e-324}, "out_of_bounds: tokens_per_second"),
        ({"prompt_tokens": 2**31}, "out_of_bounds: prompt_tokens"),
        ({"chunks": -1}, "out_of_bounds: chunks"),
        ({"quality": Quality(2**31)}, "out_of_bounds: quality"),
        ({"http_status": 7}, "out_of_bounds: http_status"),
        ({"error": "x" * 501}, "too_long: error has 501 characters, at most 500"),
        ({"edge": "x" * 10_000_000}, "too_long: edge"),
        ({"request_id": "a\0b"}, "control_character: request_id holds a NUL"),
        ({"ratelimit": RateLimit(remaining_tokens=-1)}, "out_of_bounds: remaining_tokens"),
    ],
)
def test_reasons_are_named(change: dict[str, object], reason: str) -> None:
    """A rejection has a name that can be counted, and the wrong value."""
    found = reason_of(replace(SAMPLE, **change))  # type: ignore[arg-type]  # a table of mixed fields
    assert found is not None
    assert found.startswith(reason)


@pytest.mark.parametrize(
    "change",
    [
        {"late_us": -1_000_000},
        {"clock_offset_us": -3_600_000_000},
        {"ttft_us": None, "outcome": Outcome.SKIPPED_BUDGET},
        {"quality": Quality.LAGGED | Quality.REUSED},
        {"ratelimit": RateLimit(limit_tokens=2**62, retry_after_us=0)},
        {"error": "ü" * 500},
    ],
)
def test_odd_but_valid_samples_are_accepted(change: dict[str, object]) -> None:
    """A stepped clock, a skipped round and a high limit are valid."""
    assert reason_of(replace(SAMPLE, **change)) is None  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(
    ("round_at", "reason"),
    [
        (WINDOW.from_at, None),
        (WINDOW.from_at - 1, "too_old"),
        (WINDOW.until_at - 1, None),
        (WINDOW.until_at, "in_the_future"),
    ],
)
def test_rounds_without_a_partition_are_late(round_at: int, reason: str | None) -> None:
    """The window is half-open, as the partitions are."""
    assert late_reason(round_at, WINDOW, now_at=NOW_AT) == reason


@pytest.mark.parametrize(
    ("window", "round_at", "reason"),
    [
        (Window(from_at=NOW_AT, until_at=NOW_AT), NOW_AT, "no_partition"),
        (Window(from_at=NOW_AT - 5, until_at=NOW_AT - 2), NOW_AT - 1, "no_partition"),
        (Window(from_at=NOW_AT - 5, until_at=NOW_AT - 2), NOW_AT - 6, "too_old"),
        (Window(from_at=NOW_AT - 5, until_at=NOW_AT - 2), NOW_AT + 1, "in_the_future"),
    ],
)
def test_partitions_that_could_not_be_made_are_named(window: Window, round_at: int, reason: str) -> None:
    """A current round without a partition is neither too old nor in the future."""
    assert late_reason(round_at, window, now_at=NOW_AT) == reason


def test_a_huge_sample_is_refused_before_it_is_decoded() -> None:
    """An error of 64 KiB would cost the time of a thousand samples; the agent finds it by splitting the batch."""
    message = codec.encode(BATCH)
    message.samples[0].error = "x" * 1000
    decode_push(message.SerializeToString(), NOW_AT)
    message.samples[0].error = "x" * MAX_SAMPLE_BYTES
    with pytest.raises(BadRequest, match="more than 65536 bytes"):
        decode_push(message.SerializeToString(), NOW_AT)


def test_the_counts_add_up() -> None:
    """Fresh, late and rejected samples together are the samples pushed, each at its own place."""
    old = replace(SAMPLE, round_at=NOW_AT - 40 * DAY_US)
    message = codec.encode(replace(BATCH, samples=(SAMPLE, SAMPLE, replace(SAMPLE, ttft_us=-5), old, SAMPLE)))
    message.samples[1].outcome = 99
    validated = validated_of(decode_push(message.SerializeToString(), NOW_AT))
    assert validated.fresh.tolist() == [0, 4]
    assert validated.late == ((3, "too_old"),)
    assert [(r.index, r.reason) for r in validated.rejections] == [
        (1, "unreadable: Sample.outcome: 99"),
        (2, "out_of_bounds: ttft_us = -5 (0 to 86400000000)"),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seq": -1}, "seq is -1"),
        ({"seq": 0}, "heartbeat"),
        ({"samples": ()}, "no samples"),
        ({"epoch": 0}, "epoch"),
        ({"samples": (SAMPLE,) * (MAX_SAMPLES + 1)}, "split"),
        ({"vantage": Vantage(name="", region="us")}, r"vantage\.name"),
        ({"vantage": Vantage(name="x" * 101, region="us")}, r"vantage\.name"),
        ({"vantage": Vantage(name="us-1", region="us\n")}, r"vantage\.region"),
        ({"vantage": Vantage(name="us-1", region="\0")}, r"vantage\.region"),
    ],
)
def test_an_invalid_batch_is_a_bad_request(change: dict[str, object], message: str) -> None:
    """A fault of the whole batch is raised for the whole batch."""
    with pytest.raises(BadRequest, match=message):
        check_batch(batch(**change))


def test_a_heartbeat_needs_no_epoch() -> None:
    """A vantage may send a heartbeat before it has recorded anything."""
    check_batch(batch(seq=0, samples=(), epoch=0))


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        Heartbeat,
        agent_version=st.text(max_size=300),
        plan_version=st.integers(-(2**63), 2**63 - 1),
        spool_depth=st.integers(-(2**63), 2**63 - 1),
        spool_oldest_at=st.integers(-(2**63), 2**63 - 1),
        dropped=st.dictionaries(st.text(max_size=120), st.integers(-(2**63), 2**63 - 1), max_size=80),
        next_heartbeat_us=st.integers(-(2**63), 2**63 - 1),
        rounds_missed=st.integers(-(2**63), 2**63 - 1),
        clock_offset_us=st.none() | st.integers(-(2**63), 2**63 - 1),
        loop_lag_us=st.none() | st.integers(-(2**63), 2**63 - 1),
        refused_plan_version=st.none() | st.integers(-(2**63), 2**63 - 1),
        refused_plan_reason=st.none() | st.text(max_size=700),
        missing_keys=st.none() | st.text(max_size=700),
        refused_targets=st.none() | st.text(max_size=700),
        spend=st.lists(
            st.builds(
                Spend,
                provider=st.text(max_size=120),
                day_at=st.integers(-(2**63), 2**63 - 1),
                usd=st.floats(),
                tokens=st.integers(-(2**63), 2**63 - 1),
            ),
            max_size=120,
        ).map(tuple),
    )
)
def test_a_heartbeat_is_trimmed_not_refused(heartbeat: Heartbeat) -> None:
    """Any heartbeat fits its columns afterwards."""
    fit = trimmed(heartbeat)
    assert fit == trimmed(fit)
    assert "\0" not in fit.agent_version + "".join(fit.dropped)
    assert "\0" not in (fit.refused_plan_reason or "") + "".join(line.provider for line in fit.spend)
    sentences = [text or "" for text in (fit.refused_plan_reason, fit.missing_keys, fit.refused_targets)]
    assert "\0" not in "".join(sentences)
    assert max(map(len, sentences)) <= 500
    assert len(fit.spend) <= 100
    assert all(0 <= line.usd <= 1e9 and line.tokens >= 0 and 0 <= line.day_at < 2**58 for line in fit.spend)
    assert abs(fit.clock_offset_us or 0) < 2**62
    assert min(fit.loop_lag_us or 0, fit.refused_plan_version or 0, fit.rounds_missed) >= 0
    assert len(fit.agent_version) <= 100
    assert len(fit.dropped) <= 50
    assert (
        min(fit.plan_version, fit.spool_depth, fit.spool_oldest_at, fit.next_heartbeat_us, *fit.dropped.values(), 0)
        == 0
    )
    assert NOW_AT + fit.next_heartbeat_us < 2**62
