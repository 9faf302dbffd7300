"""`--watch`: refreshed answers on a terminal and in a pipe, across failures of the collector."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from fixtures.fake_collector import FakeCollector
from testdata.preforked import Program
from testdata.waiting import eventually

SECONDS = 30


def start(observatory: FakeCollector, *arguments: str) -> "subprocess.Popen[str]":
    """The command as a process with pipes."""
    return Program[str](
        "isochrone_client",
        *arguments,
        env={**os.environ, "ISOCHRONE_COLLECTOR": observatory.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stopped(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Interrupt the process as Ctrl-C does, and return what else it printed; the exit code must be 0."""
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    return output


@pytest.mark.parametrize("command", ["diff", "leaderboard"])
def test_json_is_a_document_per_line(observatory: FakeCollector, command: str) -> None:
    """Each refresh is one line of JSON with a window of its own, and Ctrl-C ends with exit code 0."""
    process = start(observatory, command, "--watch", "1", "--output", "json")
    assert process.stdout is not None
    first, second = (json.loads(process.stdout.readline()) for _ in range(2))
    assert first["schema"] == second["schema"] == f"isochrone.{command}/1"
    assert len(first["rows"]) == len(second["rows"]) > 1
    assert first["window"]["until_at"] < second["window"]["until_at"]
    assert stopped(process)[1] == ""


def test_csv_has_one_head(observatory: FakeCollector) -> None:
    """The head comes once, the fields chosen in each refresh."""
    process = start(observatory, "leaderboard", "--watch", "1", "-o", "csv", "--fields", "rank,model")
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(5)]
    assert lines == ["rank,model", "1,deepseek-v4-flash", "2,gpt-5-mini", "1,deepseek-v4-flash", "2,gpt-5-mini"]
    stopped(process)


def test_it_survives_a_collector_that_is_away(observatory: FakeCollector) -> None:
    """An outage is one error line, whatever its length; then the refreshes continue."""
    process = start(observatory, "leaderboard", "--watch", "1", "--output", "json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    observatory.failure = ("database-unavailable", "restarting")
    line = process.stderr.readline()
    assert line.startswith("error: ")
    assert "trying again every 1 s" in line
    refused = len(observatory.requests)
    eventually(20, lambda: len(observatory.requests) >= refused + 2, "two more refusals")
    observatory.failure = None
    for _ in range(3):
        assert json.loads(process.stdout.readline())["rows"]
    assert stopped(process)[1] == ""


def test_a_collector_that_was_never_there_is_an_error(observatory: FakeCollector) -> None:
    """Without a first answer --watch fails as the command does without it."""
    observatory.failure = ("database-unavailable", "starting")
    process = start(observatory, "diff", "--watch")
    _, stderr = process.communicate(timeout=SECONDS)
    assert (process.returncode, stderr.startswith("error: ")) == (3, True)


def test_a_terminal_is_refreshed_in_place(observatory: FakeCollector) -> None:
    """Each refresh clears the screen first, so that the table stays where it was."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "isochrone_client", "leaderboard", "--watch", "1"],
        env={**os.environ, "ISOCHRONE_COLLECTOR": observatory.address, "TERM": "xterm", "COLUMNS": "100"},
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while shown.count(b"\x1b[H\x1b[2J") < 2:
        shown += os.read(ours, 65_536)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=SECONDS) == 0
    os.close(ours)
    assert b"deepseek" in shown
