"""Plan documents are parsed outside the event loop, and large ones outside the process."""

import json
import subprocess
from typing import Any

import pytest

from isochrone_collector.errors import DeadlineExceeded
from isochrone_collector.plans import document_reader
from isochrone_collector.plans.document_reader import SMALL_CHARS, DocumentReader
from isochrone_wire.plan_document.document import load

TARGETS = [{"provider": "sim", "model": f"m{n}", "base_url": "http://h"} for n in range(1000)]
LARGE = json.dumps({"baseline": "us", "targets": TARGETS})


async def test_a_large_document_is_parsed_by_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan and its problems are the same as those of the parser, which this process does not run."""
    assert len(LARGE) > SMALL_CHARS
    usual = load(LARGE, version=0)
    assert usual.plan is not None
    monkeypatch.setattr(document_reader, "load", None)
    assert await DocumentReader().read(LARGE) == usual
    reading = await DocumentReader().read(LARGE.replace("baseline", "basline"))
    assert reading.plan is None
    assert "baseline" in reading.problems[0]


async def test_quick_documents_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a usual plan nor a document above the limit of 4 MB, which is refused unparsed."""
    monkeypatch.setattr(subprocess, "run", None)
    reading = await DocumentReader().read(json.dumps({"baseline": "us", "targets": TARGETS[:10]}))
    assert reading.plan is not None
    assert len(reading.plan.targets) == 10
    assert "larger than" in (await DocumentReader().read("x" * 4_000_001)).problems[0]


async def test_a_parser_that_is_lost_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed, or takes too long, fails the call and no other."""
    usual = subprocess.run

    def killed(_command: list[str], **options: Any) -> Any:
        return usual(["sh", "-c", "kill -9 $$"], **options)

    monkeypatch.setattr(subprocess, "run", killed)
    reader = DocumentReader()
    with pytest.raises(DeadlineExceeded, match="not parsed"):
        await reader.read(LARGE)
    monkeypatch.setattr(subprocess, "run", usual)
    monkeypatch.setattr(document_reader, "_WITHIN_S", 0.001)
    with pytest.raises(DeadlineExceeded, match="not parsed"):
        await reader.read(LARGE)
    monkeypatch.setattr(document_reader, "_WITHIN_S", 60.0)
    assert (await reader.read(LARGE)).plan is not None
