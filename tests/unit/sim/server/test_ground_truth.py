"""The truth: records that grow, a bounded memory, and a file that misses none."""

import asyncio
import json
from pathlib import Path

import pytest

from isochrone_sim.errors import SettingsError
from isochrone_sim.response import Timeline
from isochrone_sim.script import Channel
from isochrone_sim.server import ground_truth
from isochrone_sim.server.ground_truth import GroundTruth, Record, new_record
from isochrone_sim.server.service import Arrival, Reply


def record(number: int = 1) -> Record:
    arrival = Arrival(region="us-east-2", at_ns=1_000_000, at=1_779_235_200_000_000, request_id=f"req_{number}")
    played = Timeline(status=200, frames=(), ttft_us=150, tokens_per_second=50.0, fault="stall")
    reply = Reply(timeline=played, dialect="openai-chat", model="m", provider="p", nonce="abcdef", stream=True)
    made = new_record(reply, arrival)
    assert made is not None
    return made


def test_a_record_begins_with_the_plan() -> None:
    """What is planned and parameters is there from the start; what happens is not yet."""
    told = record().to_json()
    assert (told["planned_ttft_us"], told["fault"], told["nonce"], told["status"]) == (150, "stall", "abcdef", 200)
    assert (told["first_token_at_ns"], told["true_ttft_us"], told["ending"]) == (None, None, None)
    assert told["tokens"] == {"reasoning": 0, "answer": 0, "tool": 0}


def test_the_true_ttft_is_worked_out() -> None:
    """First token minus request, in whole microseconds."""
    grown = record()
    grown.first_token_at_ns = grown.request_at_ns + 151_900
    grown.tokens[Channel.ANSWER] += 3
    assert (grown.to_json()["true_ttft_us"], grown.to_json()["tokens"]["answer"]) == (151, 3)


def test_pages_are_no_exchanges() -> None:
    """A request that asks no model for anything leaves no record."""
    arrival = Arrival(region="r", at_ns=0, at=0, request_id="req_1")
    assert new_record(Reply(timeline=Timeline(status=200, frames=())), arrival) is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest records make room; one can be parameters for by its request."""
    monkeypatch.setattr(ground_truth, "KEPT", 3)
    kept = GroundTruth()
    for number in range(5):
        kept.begin(record(number))
    assert [each.request_id for each in kept.find()] == ["req_2", "req_3", "req_4"]
    assert [each.request_id for each in kept.find("req_3")] == ["req_3"]
    assert kept.find("req_0") == []


async def test_the_file_gets_every_exchange_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended exchanges are appended while it runs; those in flight when it closes are too, as stopped."""
    monkeypatch.setattr(ground_truth, "FLUSH_SECONDS", 0.01)
    path = tmp_path / "truth.jsonl"
    path.write_text("{}\n")
    kept = GroundTruth(path)
    writing = asyncio.create_task(kept.flush_periodically())
    for number, ending in ((1, "complete"), (2, "client_left"), (3, None)):
        each = record(number)
        kept.begin(each)
        if ending:
            kept.end(each, ending)
            kept.end(each, "too late")
    async with asyncio.timeout(5):
        while path.read_text().count("\n") < 3:
            await asyncio.sleep(0.01)
    writing.cancel()
    kept.close()
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert told[0] == {}
    assert [(line["request_id"], line["ending"]) for line in told[1:]] == [
        ("req_1", "complete"),
        ("req_2", "client_left"),
        ("req_3", "stopped"),
    ]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """Is told before anything is served."""
    with pytest.raises(SettingsError, match="cannot write"):
        GroundTruth(tmp_path / "none" / "truth.jsonl")
