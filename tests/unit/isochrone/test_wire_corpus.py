"""The Python client on the streams of real providers: it passes an answer on, and tries another member on a failure."""

import re
from pathlib import Path

import pytest

from isochrone.routing.requests import FirstContent, Progress
from isochrone_common.dialects.failures import FAILED_REASON
from testdata.wire_corpus import CORPUS, Stream

AI_CLIENT = Path(__file__).parents[3] / "clients" / "typescript" / "src" / "ai.ts"
STREAMS = pytest.mark.parametrize("stream", [stream for stream in CORPUS if stream.is_stream], ids=repr)


def first_progress(stream: Stream, size: int | None = None) -> tuple[Progress, int | None]:
    """The verdict on a stream and the frame that it needs, in whole frames or in pieces of some bytes."""
    finder = FirstContent(stream.dialect)
    for place, (_, frame) in enumerate(stream.frames):
        step = size or max(1, len(frame))
        for begin in range(0, len(frame), step):
            progress = finder.receive(frame[begin : begin + step])
            if progress is not Progress.WAITING:
                return progress, place
    return finder.end(), None


@STREAMS
def test_what_a_caller_gets(stream: Stream) -> None:
    """A token or a regular end is content, anything else at the end of the stream a failure."""
    progress, place = first_progress(stream)
    is_content = progress is Progress.CONTENT
    assert ("content" if is_content else "failed") == stream.expected.client
    if stream.expected.first_content is not None and is_content:
        assert place == stream.expected.first_content


@STREAMS
def test_the_boundaries_of_reads_change_nothing(stream: Stream) -> None:
    """A verdict needs the same frame whether bytes arrive one by one or in whole frames."""
    assert first_progress(stream, 1) == first_progress(stream)


def test_the_clients_know_the_same_failed_finish_reasons() -> None:
    """The pattern of the TypeScript client is that of the dialects."""
    source = re.search(r"FAILED_REASON = new RegExp\((.+?)\);", AI_CLIENT.read_text(), re.DOTALL)
    assert source
    assert "".join(re.findall(r'"(.+?)"', source[1])) == FAILED_REASON.pattern
