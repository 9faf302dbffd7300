"""The Python client on the streams of real providers: it passes an answer on, and tries another member on a failure."""

import re
from pathlib import Path
from typing import Any

from isochrone.routing.requests import FirstContent, Progress
from isochrone_common.dialects.failures import FAILED_REASON
from testdata.client_cases import cases
from testdata.wire_corpus import CORPUS, Stream

FIRST_CONTENT = Path(__file__).parents[3] / "clients" / "typescript" / "src" / "firstContent.ts"


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


@cases("first_content")
def test_what_a_caller_gets(case: dict[str, Any]) -> None:
    """A token or a regular end is content, anything else at the end of a stream a failure; by bytes as by frames."""
    for stream in (one for one in CORPUS if one.is_stream and one.dialect == case["dialect"]):
        progress, place = first_progress(stream)
        is_content = progress is Progress.CONTENT
        assert ("content" if is_content else "failed") == stream.expected.client, stream
        if stream.expected.first_content is not None and is_content:
            assert place == stream.expected.first_content, stream
        assert first_progress(stream, 1) == (progress, place), stream


def test_the_clients_know_the_same_failed_finish_reasons() -> None:
    """The pattern of the TypeScript client is that of the dialects."""
    source = re.search(r"FAILED_REASON = new RegExp\((.+?)\);", FIRST_CONTENT.read_text(), re.DOTALL)
    assert source
    assert "".join(re.findall(r'"(.+?)"', source[1])) == FAILED_REASON.pattern
