"""Parsing of plan documents outside the event loop, one at a time.

A document of 4 MB takes seconds. A thread would compete with pushes for Python's global lock all that time, so a large
document is parsed by another process, at a low priority.
"""

import asyncio
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from isochrone_collector.errors import DeadlineExceeded
from isochrone_wire.plan_document.document import MAX_BYTES, Reading, load

SMALL_CHARS = 16_000
"""The size of a document up to which it is parsed in a thread, for which a process takes too long to start."""

_WITHIN_S = 60.0


class DocumentReader:
    """A queue of documents that wait for a single parser."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="plan-documents")

    async def read(self, document: str) -> Reading:
        """Return the plan of a document, with version 0, or its problems. Raises `DeadlineExceeded`."""
        is_quick = len(document) <= SMALL_CHARS or len(document) > MAX_BYTES
        parse = _parse if is_quick else _parse_in_process
        return await asyncio.get_running_loop().run_in_executor(self._thread, parse, document)


def _parse(document: str) -> Reading:
    return load(document, version=0)


def _parse_in_process(document: str) -> Reading:
    program = f"from {__name__} import run; run()"
    try:
        done = subprocess.run(  # noqa: S603  # this module, by this interpreter
            [sys.executable, "-c", program],
            input=document.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_WITHIN_S,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise DeadlineExceeded(
            "the document was not parsed in time, or there was not enough memory; try again"
        ) from error
    reading: Reading = pickle.loads(done.stdout)  # noqa: S301  # written by `run`
    return reading


def run() -> None:
    """Parse the document of stdin, and write its `Reading` to stdout, pickled."""
    os.nice(10)
    sys.stdout.buffer.write(pickle.dumps(_parse(sys.stdin.buffer.read().decode())))
