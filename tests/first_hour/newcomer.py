"""A newcomer at several terminals: runs commands as they are documented, and notes every defect on the screen."""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from first_hour.defects import defects, plain
from first_hour.documented import is_endless, is_for_programs
from testdata.pseudo_terminal import CTRL_C, PseudoTerminal, marked_processes

NARROW, WIDE = 80, 140
_LINES = 40
_COMMAND_SECONDS = 90.0
_READING_SECONDS = 3.0
# The last one is what a shell reports as 130: Ctrl-C while the command was starting.
_INTERRUPTED = (0, 130, -signal.SIGINT)
_ANY_WIDTH = 1_000_000


class Newcomer:
    """A person with a clone of the repository and an empty home folder.

    `commands` counts what was run, `failures` lists the defects. `names` are the names that must not be broken.
    """

    def __init__(self, clone: Path, home: Path) -> None:
        self.clone, self.home = clone, home
        self.names: set[str] = set()
        self.commands = 0
        self.failures: list[str] = []
        self._mark = uuid.uuid4().hex
        self.environment = {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "XDG_STATE_HOME": str(home / ".local" / "state"),
            "PATH": f"{clone}/.venv/bin:{os.environ['PATH']}",
            "PYTHONPATH": "",
            # Of the make that runs this.
            "MAKEFLAGS": "",
            "ARGS": "",
            "FIRST_HOUR_MARK": self._mark,
        }

    def terminal(
        self, line: str, *, columns: int = NARROW, lines: int = 24, folder: Path | None = None
    ) -> PseudoTerminal:
        command = ["sh", "-c", f"cd '{folder or self.home}' && exec {line}"]
        return PseudoTerminal(command, columns=columns, lines=lines, **self.environment)

    def run(self, line: str, *, columns: int, fine: tuple[int, ...] = (0,)) -> str:
        """Run a command to its end, an endless one for a few seconds; return its output, and note its defects."""
        with self.terminal(line, columns=columns, lines=_LINES) as terminal:
            if is_endless(line):
                time.sleep(_READING_SECONDS)
                terminal.press(CTRL_C)
                fine = _INTERRUPTED
            with contextlib.suppress(subprocess.TimeoutExpired):
                terminal.process.wait(_COMMAND_SECONDS)
            code = terminal.process.poll()
            terminal.close()
            output = plain(terminal.output)
        self.commands += 1
        self.note(f"{line} ({columns} columns)", output, _ANY_WIDTH if is_for_programs(line) else columns)
        if code not in fine:
            ended = f"still running after {_COMMAND_SECONDS:g} s" if code is None else f"exit code {code}"
            self.fail(f"{line} ({columns} columns): {ended}: {output.strip()[-300:]}")
        return output

    def note(self, what: str, text: str, columns: int) -> None:
        for defect in defects(text, width=columns, names=self.names):
            self.fail(f"{what}: {defect}")

    def fail(self, sentence: str) -> None:
        self.failures.append(sentence)
        print(f"DEFECT {sentence}", flush=True)  # noqa: T201  # progress

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Run a part of the hour; an exception is a defect, and the next part follows."""
        begun, before = time.monotonic(), len(self.failures)
        try:
            yield
        except (AssertionError, OSError, ValueError, TimeoutError, subprocess.SubprocessError) as error:
            self.fail(f"{title}: {error}")
        outcome = f"{len(self.failures) - before} defects" if len(self.failures) > before else "fine"
        print(f"{title}: {outcome} ({time.monotonic() - begun:.0f} s)", flush=True)  # noqa: T201  # progress

    def left_running(self, seconds: float) -> list[str]:
        """Return the command lines of processes that are still there after this time."""
        until = time.monotonic() + seconds
        while (left := list(marked_processes(self._mark))) and time.monotonic() < until:
            time.sleep(0.2)
        return [words for _, words in left]
