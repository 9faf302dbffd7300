"""Fixture for a browser: headless Chromium, controlled by its DevTools protocol over a pair of pipes.

Tests are skipped with the reason if it is not installed. Pages are local files or of a collector of the tests.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testdata.waiting import eventually

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless",
    "--no-sandbox",  # tests may run as root, and the page is our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-pipe",
)
_END = b"\0"
# The protocol requires the pipes as descriptors 3 and 4.
_PIPE_SETUP = """
import fcntl, os, sys
spare = [fcntl.fcntl(int(pipe), fcntl.F_DUPFD, 10) for pipe in sys.argv[1:3]]
os.dup2(spare[0], 3), os.dup2(spare[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


@dataclass(slots=True, repr=False)
class Browser:
    """One tab. `events` are the received events, oldest first."""

    to: int
    by: int
    process: "subprocess.Popen[bytes]"
    session: str = ""
    sent: int = 0
    pending: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result; fail on an error."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + _END)
        while (answer := self._next()).get("id") != self.sent:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, event: str) -> None:
        """Wait until an event was received since the page was opened."""
        while all(seen.get("method") != event for seen in self.events):
            self.events.append(self._next())

    def open(self, page: Path | str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Open a file or URL in a window of this width and height in pixels; discard earlier events."""
        # First an empty page: the one before may still notice that its server has ended.
        self._load("about:blank")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._load(page if isinstance(page, str) else page.as_uri())

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str, *, seconds: float = 10.0) -> None:
        """Wait until a JavaScript expression is true in the page."""
        eventually(seconds, lambda: bool(self.evaluate(f"Boolean({expression})")), expression)

    def screenshot(self) -> bytes:
        """Return the visible part of the page as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])

    def press(self, key: str) -> None:
        """Press and release a key, by its name in JavaScript."""
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def seen(self, *methods: str) -> list[dict[str, Any]]:
        """Return the parameters of all events of these methods."""
        return [event["params"] for event in self.events if event.get("method") in methods]

    def _load(self, url: str) -> None:
        self.events.clear()
        self.ask("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def _next(self) -> dict[str, Any]:
        while _END not in self.pending:
            piece = os.read(self.by, 1 << 16)
            assert piece, "the browser has exited"
            self.pending += piece
        message, _, self.pending = self.pending.partition(_END)
        found: dict[str, Any] = json.loads(message)
        return found


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A tab of a browser that is stopped after the tests."""
    program = installed()
    if program is None:
        pytest.skip("Chromium is not installed (Debian package: chromium)")
    with tab_of(program, tmp_path_factory.mktemp("browser")) as tab:
        yield tab


def installed() -> str | None:
    """The path of the browser; `None` if there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def tab_of(program: str, profile: Path, *options: str) -> Iterator[Browser]:
    """A tab of a browser with its data in the folder `profile` and further `options` in its command. It is stopped at
    the end of the block.
    """
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    command = [sys.executable, "-c", _PIPE_SETUP, str(their_in), str(their_out), program, *_OPTIONS]
    process = subprocess.Popen(
        [*command, *options, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(their_in, their_out),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(their_in)
    os.close(their_out)
    tab = Browser(to=our_out, by=our_in, process=process)
    try:
        target = tab.ask("Target.createTarget", url="about:blank")["targetId"]
        tab.session = tab.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            tab.ask(f"{domain}.enable")
        yield tab
    finally:
        process.terminate()
        process.wait(15)
        os.close(our_out)
        os.close(our_in)
