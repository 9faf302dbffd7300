"""The signals that stop a program which draws on a terminal. A handler only notes a signal, so that none interrupts a
start or a cleanup.

The first Ctrl-C asks for the results; the second one, SIGTERM and SIGHUP (a closed terminal) ask for the end at once.
"""

import os
import select
import signal
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

import click

# A shell adds this to the number of a signal for the exit code of a program that the signal ended.
_SIGNAL_EXIT_CODE = 128


class StopRequests:
    """The requests to stop since the block began. Only one block at a time, in the main thread."""

    def __init__(self) -> None:
        self._received: list[int] = []
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # `nohup` ignores SIGHUP.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._note)
        self._previous[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, self._wake)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def fileno(self) -> int:
        """A descriptor that becomes readable with each signal, until `sleep` returns."""
        return self._wake_read

    @property
    def wanted(self) -> bool:
        """Return whether a signal has arrived."""
        return bool(self._received)

    def check(self, *, results: bool = False) -> None:
        """Raises `click.exceptions.Exit` if the program is to end; with `results`, if it is to end without results."""
        ending = [number for number in self._received if number != signal.SIGINT]
        if ending or len(self._received) > results:
            raise click.exceptions.Exit(_SIGNAL_EXIT_CODE + (ending or self._received)[0])

    def sleep(self, seconds: float) -> None:
        """Wait until the time is over, a signal arrives, or the size of the terminal changes."""
        if select.select([self], [], [], max(0.0, seconds))[0]:
            os.read(self._wake_read, 1024)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)
        self._wake(number, frame)

    def _wake(self, _number: int, _frame: FrameType | None) -> None:
        with suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._wake_write, b"!")
