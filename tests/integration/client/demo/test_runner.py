"""However the demo ends, nothing of it remains. Each test runs a real demo on a real terminal."""

import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.demo import one_demo_at_a_time
from fixtures.network import unavailable_reason
from testdata import demo_screens
from testdata.pseudo_terminal import CTRL_C, PseudoTerminal, marked_processes
from testdata.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc, which is Linux's"),
]
DEMO = [sys.executable, "-m", "isochrone_client", "demo"]
ENDED_SECONDS = 60


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a short path: those of sockets have at most 107 bytes."""
    with one_demo_at_a_time(tmp_path_factory), tempfile.TemporaryDirectory(prefix="d-") as name:
        yield Path(name)


@pytest.fixture
def mark() -> str:
    """A value by which all processes of a demo are found, whatever their parent and session."""
    return f"isochrone-test-{uuid.uuid4()}"


@pytest.fixture
def demo(folder: Path, mark: str) -> Iterator[PseudoTerminal]:
    """A demo on a terminal, in a temporary folder below the test's."""
    with PseudoTerminal(DEMO, columns=100, lines=30, TMPDIR=str(folder), DEMO_TEST_MARK=mark) as terminal:
        yield terminal


def leftovers(folder: Path) -> list[str]:
    """The folders of demos and sockets in a folder."""
    return [path.name for path in folder.iterdir() if path.name.startswith("isochrone")]


def wait_until_it_runs(demo: PseudoTerminal, mark: str) -> None:
    demo.wait_for(lambda text: "Isochrone demo" in text, 180, "the screen")
    running = [words for _, words in marked_processes(mark)]
    programs = ["isochrone_collector serve", "isochrone_sim serve", "isochrone_agent run", "/postgres -D"]
    for program in (*programs, *([] if unavailable_reason() else ["isochrone_sim.network"])):
        assert any(program in words for words in running), running


def assert_nothing_is_left(mark: str) -> None:
    eventually(ENDED_SECONDS, lambda: not list(marked_processes(mark)), "no process of the demo is left")


def test_a_signal_ends_everything(demo: PseudoTerminal, folder: Path, mark: str) -> None:
    """After SIGTERM no process and no folder is left, the exit code names the signal, and the terminal is as it was."""
    wait_until_it_runs(demo, mark)
    assert demo.is_alternate()
    assert not demo.shows_cursor()
    demo.process.terminate()
    assert demo.wait(ENDED_SECONDS) == 128 + signal.SIGTERM
    assert_nothing_is_left(mark)
    assert leftovers(folder) == []
    assert demo.shows_cursor()
    assert not demo.is_alternate()
    assert "Traceback" not in demo.scrollback


def test_a_closed_terminal_ends_everything(demo: PseudoTerminal, folder: Path, mark: str) -> None:
    """When the window of the demo is closed (SIGHUP), no process and no folder is left."""
    wait_until_it_runs(demo, mark)
    demo.close()
    demo.process.wait(ENDED_SECONDS)
    assert_nothing_is_left(mark)
    assert leftovers(folder) == []


def test_a_second_interrupt_ends_everything(folder: Path, mark: str) -> None:
    """Two Ctrl-C end the demo without results or waiting; with --keep its files are left, in the folder it states."""
    with PseudoTerminal([*DEMO, "--keep"], columns=200, lines=30, TMPDIR=str(folder), DEMO_TEST_MARK=mark) as demo:
        wait_until_it_runs(demo, mark)
        demo.wait_for(demo_screens.samples, 180, "samples to report")
        os.kill(next(pid for pid, words in marked_processes(mark) if "isochrone_agent run" in words), signal.SIGSTOP)
        demo.press(CTRL_C)
        demo.wait_for(lambda _: "stopping" in demo.scrollback, ENDED_SECONDS, "the first one's answer")
        demo.press(CTRL_C)
        assert demo.wait(ENDED_SECONDS) == 128 + signal.SIGINT
        assert_nothing_is_left(mark)
        [left] = leftovers(folder)
        assert demo.shows_cursor()
        assert not demo.is_alternate()
        assert f"its files stay in {folder / left}" in demo.scrollback
        assert "ground truth" not in demo.scrollback


def test_the_next_demo_follows_a_killed_one(demo: PseudoTerminal, folder: Path, mark: str) -> None:
    """After SIGKILL a demo's processes end; one started meanwhile waits for them, tidies up, and obeys signals."""
    wait_until_it_runs(demo, mark)
    left, old = leftovers(folder), {pid for pid, _ in marked_processes(mark)}
    demo.process.kill()
    demo.process.wait()
    with PseudoTerminal(DEMO, columns=100, lines=30, TMPDIR=str(folder), DEMO_TEST_MARK=mark) as following:
        following.wait_for(lambda text: "a simulated world of" in text, 2 * ENDED_SECONDS, "the first step")
        assert old.isdisjoint(pid for pid, _ in marked_processes(mark))
        assert set(left).isdisjoint(leftovers(folder))
        following.process.terminate()
        assert following.wait(2 * ENDED_SECONDS) == 128 + signal.SIGTERM
    assert_nothing_is_left(mark)
    assert leftovers(folder) == []
