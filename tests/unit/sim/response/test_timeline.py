"""Timelines: absolute offsets that follow from request, region and instant, and from nothing else."""

import statistics
from dataclasses import replace
from typing import Any

import pytest

from isochrone_sim.dialects import DIALECTS, ResponseMetadata
from isochrone_sim.requests import RequestParameters, invalid, throttled
from isochrone_sim.response import Timeline, error_timeline, timeline
from isochrone_sim.world import default_world

CHAT = DIALECTS["openai-chat"]
WORLD = default_world()
MONDAY_AT = 1_779_235_200_000_000
METADATA = ResponseMetadata(request_id="req_1", model="qwen3-32b", created_at=MONDAY_AT)


def planned(
    name: str = "qwen3-32b", *, region: str = "us-east-2", at: int = MONDAY_AT, content: bytes = b"", **model: Any
) -> Timeline:
    parameters = RequestParameters(model=name, stream=True, include_usage=True)
    metadata = replace(METADATA, created_at=at)
    return timeline(
        replace(WORLD.models[name], **model), WORLD, parameters, metadata, dialect=CHAT, region=region, content=content
    )


def test_offsets_are_absolute() -> None:
    """Head, first token, and every later frame stand at their own offset from the request, in order."""
    played = planned(steady=True, jitter_us=0)
    offsets = [frame.offset_ns for frame in played.frames]
    assert offsets == sorted(offsets)
    said = [frame.offset_ns for frame in played.frames if frame.token_counts]
    assert (offsets[0], said[0]) == (75_000_000, 250_000_000)
    assert said[-1] == pytest.approx(250_000_000 + 149 / 45 * 1e9, abs=2)
    assert (played.ttft_us, played.tokens_per_second, played.status) == (250_000, 45.0, 200)


def test_the_plan_names_the_rate() -> None:
    """Tokens but one, over the time between the first and the last, is the planned rate."""
    played = planned()
    said = [frame.offset_ns for frame in played.frames if frame.token_counts]
    assert played.tokens_per_second is not None
    assert (len(said) - 1) / ((said[-1] - said[0]) / 1e9) == pytest.approx(played.tokens_per_second, rel=1e-6)
    assert played.tokens_per_second == pytest.approx(45, rel=0.021)


def test_equal_requests_get_equal_answers() -> None:
    """Same content, region and instant: the same bytes at the same offsets. Another nonce changes both."""
    assert planned(content=b"a") == planned(content=b"a")
    assert planned(content=b"a").ttft_us != planned(content=b"b").ttft_us
    assert planned(content=b"a").frames[1].data != planned(content=b"b").frames[1].data


def test_the_median_is_the_published_one() -> None:
    """Over a day of requests the median time to first token is the leaderboard's, to within 2 %."""
    times = [planned(at=MONDAY_AT + n * 301_000_000, content=str(n).encode()).ttft_us for n in range(288)]
    assert statistics.median(time for time in times if time) == pytest.approx(250_000, rel=0.02)


def test_a_fault_may_be_rare() -> None:
    """A model with a share of faults fails that often, and the same requests each time."""
    faults = [planned(content=str(n).encode(), fault="cut", fault_share=0.2).fault for n in range(400)]
    assert faults.count("cut") == pytest.approx(80, abs=30)
    assert set(faults) == {"cut", None}
    again = [planned(content=str(n).encode(), fault="cut", fault_share=0.2).fault for n in range(400)]
    assert again == faults


def test_refusals_come_at_once() -> None:
    """An error response goes out five milliseconds after the request, and plans no token."""
    played = error_timeline(invalid("no"), METADATA, CHAT)
    assert (played.status, played.ttft_us, [frame.offset_ns for frame in played.frames]) == (400, None, [5_000_000])
    assert b"retry-after" not in played.frames[0].data


@pytest.mark.parametrize(("wait_us", "seconds"), [(1, 1), (1_000_000, 1), (1_000_001, 2)])
def test_a_wait_is_rounded_up(wait_us: int, seconds: int) -> None:
    """`retry-after` counts whole seconds, and never too few."""
    played = error_timeline(throttled("m", "requests", retry_after_us=wait_us), METADATA, CHAT)
    assert b"\r\nretry-after: %d\r\n" % seconds in played.frames[0].data
