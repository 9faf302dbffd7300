"""The display of the demo on real pseudo-terminals and pipes; views are made up, so that no demo has to run."""

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from testdata.pseudo_terminal import PseudoTerminal
from testdata.waiting import eventually

# Shows views until it is ended: one place warms up, becomes firm after two views, and has changed after four.
PROGRAM = """
import itertools, sys
from isochrone_client.demo.display import Progress, View, display
from isochrone_client.pages.matrix import Cell, Matrix
from isochrone_client.screen import StopRequests
from isochrone_wire.answers import Decision, Differential, Metric

def view(step):
    firm = dict(shift=35e3, shift_low=33e3, shift_high=37e3, decision=Decision.SLOWER) if step >= 2 else {}
    cells = {("acme/large", "home"): Cell(value=2e5)}
    row = Differential(target="acme/large", provider="acme", model="large", metric=Metric.TTFT, unit="us",
        baseline="home", region="away", **firm)
    cells["acme/large", "away"] = Cell(value=235e3, rounds=step, difference=row, changed=4e5 if step >= 4 else None)
    matrix = Matrix(metric=Metric.TTFT, baseline="home", regions=("away",), targets=("acme/large",), cells=cells)
    progress = Progress(elapsed=float(step), total=1e4, recorded=step)
    return View(progress=progress, matrix=matrix, events=("it happens",), advice=("isochrone routes",))

print("before")
with StopRequests() as stop, display() as show:
    for step in range(int(sys.argv[1])):
        show(view(step), ["it happens"] if step == 4 else [])
        stop.sleep(0.1)
        if stop.wanted:
            break
print("after")
"""
ENDLESS, SHORT = "100000", "6"


def program(steps: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, steps]


def test_a_terminal_is_redrawn_in_place_and_restored() -> None:
    """On a terminal the view stays in place; in the end, the lines before and after it and the events remain, and the
    cursor is visible.
    """
    with PseudoTerminal(program(ENDLESS), columns=80, lines=24) as terminal:
        terminal.wait_for(lambda text: "235▲" in text, 30, "the change on the screen")
        assert terminal.is_alternate()
        assert not terminal.shows_cursor()
        assert terminal.lines[0].startswith("Isochrone demo")
        assert terminal.text.count("last 60 s, in ms") == 1
        assert "before" not in terminal.text
        terminal.process.terminate()
        terminal.wait_for(lambda text: "after" in text, 30, "the end")
        assert terminal.shows_cursor()
        assert [line for line in terminal.lines if line] == ["before", "· it happens", "after"]


def has_width(columns: int, text: str) -> bool:
    """Return whether the first line, which the bar of the progress fills, has this width."""
    return len(text.splitlines()[0]) == columns


def test_the_view_follows_the_size_of_the_terminal() -> None:
    """After a change of size the view is drawn for the new one, without remains of the old one."""
    with PseudoTerminal(program(ENDLESS), columns=80, lines=24) as terminal:
        for columns, lines in ((80, 24), (140, 40), (70, 20), (80, 24)):
            terminal.resize(columns=columns, lines=lines)
            terminal.wait_for(partial(has_width, columns), 30, f"{columns} columns")
            terminal.wait_for(lambda text: text.count("last 60 s, in ms") == 1, 30, "one table")


@pytest.mark.parametrize(("environment", "colours"), [({}, {"red"}), ({"NO_COLOR": "1"}, {"default"})])
def test_colours_can_be_switched_off(environment: dict[str, str], colours: set[str]) -> None:
    """A place that has changed is red, and marked without colours too."""
    with PseudoTerminal(program(ENDLESS), columns=80, lines=24, **environment) as terminal:
        terminal.wait_for(lambda text: "235▲" in text, 30, "the change on the screen")
        assert terminal.styles_of("+35 ±2") == colours


def test_a_dumb_terminal_gets_lines() -> None:
    """A terminal that cannot be redrawn gets tables below each other, without control sequences."""
    with PseudoTerminal(program(SHORT), columns=80, lines=50, TERM="dumb") as terminal:
        assert terminal.process.wait(30) == 0
        terminal.wait_for(lambda text: "after" in text.splitlines(), 30, "the end")
        assert b"\x1b" not in terminal.output
        assert terminal.text.count("last 60 s, in ms") == 3


def test_a_pipe_gets_a_table_when_there_is_news() -> None:
    """On a pipe there is a table when each cell has a value, when each is firm, and when one has changed; not with
    every view. Events are on stderr, and so is the progress after ten seconds without a table.
    """
    done = subprocess.run(program("40"), capture_output=True, text=True, check=True, timeout=60)
    tables = [block for block in done.stdout.split("\n\n") if "last 60 s" in block]
    assert [block.splitlines()[-1].split()[3:] for block in tables] == [
        ["warming", "up", "0/6"],
        ["+35", "±2", "slower"],
        ["+35", "±2", "slower"],
    ]
    assert tables[0].startswith("before\nafter 0 of 10000 s · 0 samples, 0 failed:\n")
    assert "235▲" in tables[2]
    progress = [f"· {second} of 10000 s · {second} samples, 0 failed" for second in (14, 24, 34)]
    assert done.stderr.splitlines() == ["· it happens", *progress]
    assert "\x1b" not in done.stdout + done.stderr


def state_of(process: int) -> str:
    """The state of a process: T if it is stopped."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="reads the state of a process in /proc, which is Linux's"
)
def test_a_suspended_demo_gives_the_terminal_back() -> None:
    """Ctrl-Z stops the program with the terminal as it was before; when it continues, it takes the screen again."""
    with PseudoTerminal(program(ENDLESS), columns=80, lines=24) as terminal:
        terminal.wait_for(lambda text: "235▲" in text, 30, "the change on the screen")
        terminal.press("\x1a")
        eventually(30, lambda: state_of(terminal.process.pid) == "T", "stopped")
        terminal.wait_for(lambda text: text.strip() == "before", 30, "the lines from before")
        assert terminal.shows_cursor()
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for(lambda text: "235▲" in text, 30, "the screen again")
        assert terminal.is_alternate()


def test_an_error_restores_the_terminal() -> None:
    """An error while the view is shown leaves the alternate screen before its message is printed."""
    broken = PROGRAM.replace("        stop.sleep(0.1)", "        stop.sleep(0.1)\n        assert step < 3, 'broken'")
    with PseudoTerminal([sys.executable, "-c", broken, ENDLESS], columns=80, lines=24) as terminal:
        assert terminal.process.wait(30) == 1
        terminal.wait_for(lambda text: "broken" in text, 30, "the message")
        assert terminal.shows_cursor()
        assert not terminal.is_alternate()
