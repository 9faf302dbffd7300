"""The display of the demo on real pseudo-terminals; its answers are made up, so that no demo has to run."""

import sys
from pathlib import Path

import pytest

from testdata.pseudo_terminal import PseudoTerminal

# Shows the same answers until it is ended; one place has changed.
PROGRAM = """
import sys
from collections import deque
from dataclasses import replace
sys.path.insert(0, sys.argv[1])
from isochrone_client.window import now_at
from isochrone_client.demo.display import QUESTION, Display
from isochrone_client.demo.scenario import Timeline
from isochrone_client.screen import StopRequests
from testdata.client_answers import ANSWERS, OTHER, SLOW

class Observer:
    recorded, failed, switches = 7, 0, deque(["it happens"])

    def observe(self, question, detail=""):
        return replace(ANSWERS, question=question, changed={(SLOW, OTHER): 4e5}, incidents=(),
            targets=ANSWERS.targets[:-1]), None

seconds = float(sys.argv[2])
print("before")
with StopRequests() as stop:
    Display(observer=Observer(), timeline=Timeline((), seconds=seconds), stop=stop, check=lambda: BROKEN,
        started_at=now_at(), seconds=seconds, address="live page: here", advice=("isochrone routes",)).run()
print("after")
"""
TESTS = str(Path(__file__).resolve().parents[3])


def program(seconds: str, broken: str = "None") -> list[str]:
    return [sys.executable, "-c", PROGRAM.replace("BROKEN", broken), TESTS, seconds]


@pytest.mark.parametrize(("environment", "colours"), [({}, {"red"}), ({"NO_COLOR": "1"}, {"default"})])
def test_a_terminal_is_redrawn_in_place_and_restored(environment: dict[str, str], colours: set[str]) -> None:
    """The view stays in place and marks changes, red unless colours are off; what is around it and the cursor stay."""
    with PseudoTerminal(program("1000"), columns=80, lines=24, **environment) as terminal:
        terminal.wait_for(lambda text: "408▲" in text, 30, "the change on the screen")
        assert terminal.is_alternate()
        assert not terminal.shows_cursor()
        assert terminal.lines[0].startswith("Isochrone demo")
        assert terminal.text.count("last 60s, ttft in ms") == 1
        assert terminal.styles_of("+88 ±5") == colours
        assert "before" not in terminal.text
        terminal.process.terminate()
        terminal.wait(30)
        assert "after" in terminal.lines
        assert terminal.shows_cursor()
        events = ["· 0 s: measured: openai/gpt-5-mini takes 400 ms longer from eu-central-1 than at the start"]
        assert " ".join(line for line in terminal.lines if line).startswith(f"before {events[0][:60]}")
        assert "· 0 s: it happens" in terminal.lines


def test_a_dumb_terminal_gets_lines() -> None:
    """A terminal that cannot be redrawn gets tables below each other, without control sequences, until the end."""
    with PseudoTerminal(program("2"), columns=80, lines=50, TERM="dumb") as terminal:
        assert terminal.wait(30) == 0
        assert "after" in terminal.lines
        assert b"\x1b" not in terminal.output
        assert "last 60s, in ms" in terminal.text
        assert "· 0 s: it happens" in terminal.lines


def test_an_error_restores_the_terminal() -> None:
    """An error while the view is shown leaves the alternate screen before its message is printed."""
    with PseudoTerminal(program("1000", "1 / 0"), columns=80, lines=24) as terminal:
        assert terminal.wait(30) == 1
        assert "ZeroDivisionError" in terminal.text
        assert terminal.shows_cursor()
        assert not terminal.is_alternate()
