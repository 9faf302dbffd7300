"""Programs started on a terminal end with it, and leave nothing behind."""

import sys
import time
import uuid
from pathlib import Path

import pytest

from testdata.pseudo_terminal import PseudoTerminal, marked_processes
from testdata.waiting import eventually

PROGRAMS = {
    "collector": ("isochrone_collector serve --listen 127.0.0.1:0 --http-listen off --data-dir {folder}", "listen"),
    "agent": (
        "isochrone_agent run --vantage v-1 --region us-east-2 --collector 127.0.0.1:9 --data-dir {folder}",
        "v-1",
    ),
    "simulator": ("isochrone_sim serve --listen us-east-2=127.0.0.1:0", "us-east-2"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_closed_terminal_ends_a_server(name: str, tmp_path: Path) -> None:
    """A server stops when the window in which it runs is closed, with its PostgreSQL and its other processes."""
    line, ready = PROGRAMS[name]
    mark = uuid.uuid4().hex
    command = ["sh", "-c", f"exec {sys.executable} -m {line.format(folder=tmp_path / 'data')}"]
    with PseudoTerminal(command, columns=100, lines=30, ISOCHRONE_TEST_MARK=mark) as terminal:
        terminal.wait_for(lambda text: ready in text, 60, "the program is ready")
        time.sleep(1)
        assert list(marked_processes(mark))
        terminal.close()
        eventually(20, lambda: not list(marked_processes(mark)), "no process is left")
