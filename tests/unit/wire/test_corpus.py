"""The corpus of streams: every file becomes its sample, with any boundaries of reads, and cut anywhere."""

import pytest

from isochrone_common.dialects import DIALECTS
from isochrone_common.dialects.providers import CATALOGUE
from isochrone_wire.model import Outcome
from testdata.transcripts import replay
from testdata.wire_corpus import CORPUS, Stream, facts
from tools.wire_table import BEGIN, PAGE, current

STREAMS = [stream for stream in CORPUS if stream.is_stream]
SELF_HOSTED = {"vllm", "sglang", "tgi", "llamacpp", "ollama", "lmstudio", "tensorrt-llm", "litellm"}


def by_name(stream: Stream) -> str:
    return stream.name


@pytest.mark.parametrize("stream", STREAMS, ids=by_name)
def test_a_stream_becomes_its_sample(stream: Stream) -> None:
    """Outcome, message, instants, tokens and speed are those that the file states."""
    sample, expected = replay(stream.dialect, stream.frames), stream.expected
    assert facts(sample) == {name: getattr(expected, name) for name in facts(sample)}, sample.error
    assert (expected.error or "") in (sample.error or "")
    assert (sample.error is None) == (expected.error is None)
    times = (expected.ttft_ms, expected.ttfat_ms, expected.e2e_ms)
    assert (sample.ttft_us, sample.ttfat_us, sample.e2e_us) == tuple(ms and ms * 1000 for ms in times)
    assert (sample.tokens_per_second is not None) == expected.has_speed


@pytest.mark.parametrize("stream", STREAMS, ids=by_name)
def test_boundaries_of_reads_change_nothing(stream: Stream) -> None:
    """The same bytes at the same instants, one by one, give the same sample."""
    single = [(at_ms, data[at : at + 1]) for at_ms, data in stream.frames for at in range(len(data))]
    assert replay(stream.dialect, single) == replay(stream.dialect, stream.frames)


@pytest.mark.parametrize("stream", STREAMS, ids=by_name)
def test_a_cut_stream_is_a_success_only_if_its_answer_is_complete(stream: Stream) -> None:
    """Cut after any frame, the stream is `ok` only with the terminal marker of a complete answer."""
    complete = len(stream.frames) if stream.expected.complete is None else stream.expected.complete
    for end in range(len(stream.frames)):
        sample = replay(stream.dialect, stream.frames[: end + 1])
        assert (sample.outcome is Outcome.OK) == (end >= complete), f"cut after frame {end}: {sample.error}"


def test_the_corpus_covers_every_provider_and_dialect() -> None:
    """Every provider and dialect has success and failure, each file a source and one of three origins."""
    for provider in {*CATALOGUE, *SELF_HOSTED, "mistral"}:
        is_ok = {stream.expected.outcome is Outcome.OK for stream in CORPUS if stream.provider == provider}
        assert is_ok == {True, False}, provider
    for dialect in DIALECTS:
        outcomes = {stream.expected.outcome for stream in CORPUS if stream.dialect == dialect}
        assert {*Outcome} & outcomes >= {
            *(Outcome.OK, Outcome.TRUNCATED, Outcome.STREAM_ERROR, Outcome.THROTTLED, Outcome.FILTERED, Outcome.EMPTY)
        }
    assert all(stream.source and stream.situation for stream in CORPUS)
    assert {stream.origin for stream in CORPUS} <= {"recorded", "documented", "derived"}


def test_the_table_of_streams_in_the_documentation_is_current() -> None:
    """docs/agent.md has the rows that follow from the files; `tests/tools/wire_table.py` writes them."""
    text = PAGE.read_text()
    assert BEGIN in text
    assert current(text) == text
