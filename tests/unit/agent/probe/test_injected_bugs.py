"""Mutation tests of the measurement laws: each bug of a real tool, injected here, fails the test of its law."""

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isochrone_agent.probe import measurement
from isochrone_common import receive_stamps
from isochrone_common.dialects.openai_chat import OpenAIChat
from isochrone_common.dialects.signals import Answer, Finished, Signal, Usage
from isochrone_common.receive_stamps import Stamp
from isochrone_common.sse import Event
from testdata.transcripts import OPENAI_CHAT

UNIT_TESTS = Path(__file__).parents[2]


def laws(name: str) -> ModuleType:
    """Load another module of unit tests by its path."""
    spec = importlib.util.spec_from_file_location(f"laws_{Path(name).name}", UNIT_TESTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def count_the_role(patch: pytest.MonkeyPatch) -> None:
    """VLLM's benchmark: the first event ends the TTFT, whatever it contains."""
    honest = OpenAIChat._choice

    def choice(self: OpenAIChat, said: dict[str, Any]) -> list[Signal]:
        return honest(self, said) or ([Answer(1)] if (said.get("delta") or {}).get("role") else [])

    patch.setattr(OpenAIChat, "_choice", choice)


def count_chunks(patch: pytest.MonkeyPatch) -> None:
    """Many scripts: a chunk counts as a token."""
    honest = measurement.count_tokens
    patch.setattr(
        measurement,
        "count_tokens",
        lambda _usage, **seen: honest(Usage(output_tokens=len(seen["content"].at_ns)), **seen),
    )


def ignore_usage(patch: pytest.MonkeyPatch) -> None:
    """Tools that expect usage only in the last event: usage is ignored."""
    patch.setattr(OpenAIChat, "_usage", staticmethod(lambda _usage: Usage()))


def trust_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """`time.time()`: timestamps of a clock that can be set."""
    patch.setattr(receive_stamps, "read_stamp", lambda _words: Stamp(time.time_ns(), 0, kernel=False))


def keep_the_first_chunk(patch: pytest.MonkeyPatch) -> None:
    """Speed as all tokens over the span, although the tokens of the first chunk took no time."""
    honest = measurement.tokens_per_second

    def speed(chunks: Any, tokens: measurement.Tokens, *, resolution_ns: int) -> float | None:
        every = measurement.Tokens(output=tokens.output, streamed=tokens.streamed, first_chunk=0, source=None)
        return honest(chunks, every, resolution_ns=resolution_ns)

    patch.setattr(measurement, "tokens_per_second", speed)


def forgive_errors_inside(patch: pytest.MonkeyPatch) -> None:
    """Several tools: an error inside a stream of status 200 counts as the end of a success."""
    honest = OpenAIChat.interpret

    def interpret(self: OpenAIChat, event: Event) -> list[Signal]:
        return [Finished("error")] if b'"error"' in event.data else honest(self, event)

    patch.setattr(OpenAIChat, "interpret", interpret)


def forget_the_end(patch: pytest.MonkeyPatch) -> None:
    """A truncated stream counts as a success: no terminal marker is required."""
    patch.setattr(measurement.Measurement, "_implied_failure", lambda _self: None)


def the_transcript(name: str) -> Any:
    return next(case for case in OPENAI_CHAT if case.name == name)


def dialect_law(transcript: str) -> Callable[[], None]:
    return lambda: laws("wire/test_dialects").test_each_shape_comes_to_its_sample(the_transcript(transcript))


def stamp_law() -> None:
    module = laws("wire/test_receive_stamps")
    vars(module)["read_stamp"] = receive_stamps.read_stamp
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic_ns", lambda: module.MONOTONIC_NS)
        patch.setattr(time, "time_ns", lambda: module.WALL_NS)
        module.test_a_step_between_two_reads_moves_nothing(patch)


CASES: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = {
    "role delta counted": (count_the_role, lambda: laws("wire/test_dialects").test_the_role_is_not_a_token()),
    "chunk = token": (
        count_chunks,
        lambda: laws("agent/probe/test_measurement").test_a_bundled_first_chunk_is_taken_out_by_its_share(),
    ),
    "usage ignored": (ignore_usage, dialect_law("openai")),
    "wall clock": (trust_the_wall_clock, stamp_law),
    "first chunk kept": (
        keep_the_first_chunk,
        lambda: laws("agent/probe/test_measurement").test_a_bundled_first_chunk_is_taken_out_by_its_share(),
    ),
    "in-band error forgiven": (forgive_errors_inside, dialect_law("in-band-error")),
    "cut stream a success": (forget_the_end, dialect_law("cut")),
}


@pytest.mark.parametrize("name", CASES)
def test_the_bug_turns_its_law_red(name: str) -> None:
    """The law's test passes without the bug, and fails with it."""
    inject, law = CASES[name]
    law()
    with pytest.MonkeyPatch.context() as patch:
        inject(patch)
        with pytest.raises(AssertionError):
            law()
