"""Fixtures for the Portkey gateway: the real program of npm, with the module that gives it the followed file."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from testdata.ports import free_port
from testdata.waiting import eventually

VARIABLE = "ISOCHRONE_TEST_PORTKEY"
MODULE = Path(__file__).parents[1] / "deploy" / "portkey" / "isochrone.mjs"
PATIENCE = 30.0
_STARTS = 5


def _program() -> Path | None:
    """The program that starts the gateway, in the packages of `ISOCHRONE_TEST_PORTKEY`."""
    folder = os.environ.get(VARIABLE)
    if not folder or shutil.which("node") is None:
        return None
    return Path(folder).resolve() / "@portkey-ai" / "gateway" / "build" / "start-server.js"


PORTKEY = _program()
requires_portkey = pytest.mark.skipif(
    PORTKEY is None or not PORTKEY.exists(),
    reason=f"Node.js or the Portkey gateway is not installed: .ci/node-modules portkey FOLDER creates the folder, and "
    f"{VARIABLE} names its node_modules",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the gateway. `model` is the member's, `option` the gateway's name of the target that answered."""

    status: int
    model: str | None
    option: str | None
    body: str


@dataclass(frozen=True, slots=True)
class Portkey:
    """A running gateway, and the path of its messages."""

    process: "subprocess.Popen[bytes]" = field(repr=False)
    url: str
    log: Path

    def ask(self, model: str = "chat", *, path: str = "/v1/chat/completions", **headers: str) -> Answer:
        """Send one request for a route; `headers` have underscores."""
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        response = httpx.post(f"{self.url}{path}", json=body, headers=sent, timeout=PATIENCE, trust_env=False)
        return _answer(response)

    def until(self, model: str) -> float:
        """Send requests until a member answers; return the seconds it took."""
        began = time.monotonic()
        eventually(PATIENCE, lambda: self.ask().model == model, f"an answer of {model}", every=0.01)
        return time.monotonic() - began


def _answer(response: httpx.Response) -> Answer:
    try:
        model = json.loads(response.text).get("model")
    except ValueError:
        model = None
    option = response.headers.get("x-portkey-last-used-option-index")
    return Answer(response.status_code, model, option, response.text)


@dataclass(slots=True)
class StartPortkey:
    """Starts gateways, which are stopped after the test."""

    folder: Path
    running: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def __call__(self, config: Path, keys: Mapping[str, str] | None = None) -> Portkey:
        """Start a gateway that reads this file, with these variables, and wait until it listens."""
        for _ in range(_STARTS):
            port = free_port()
            log = self.folder / f"portkey-{len(self.running)}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    ["node", "--import", str(MODULE), str(PORTKEY), "--headless", f"--port={port}"],
                    cwd=self.folder,
                    env={**_environment(), "ISOCHRONE_PORTKEY_CONFIG": str(config), **(keys or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            self.running.append(process)
            gateway = Portkey(process, f"http://127.0.0.1:{port}", log)
            if _listens(gateway):
                return gateway
        raise AssertionError(f"the gateway did not start: {log.read_text()}")


def _environment() -> dict[str, Any]:
    # The gateway refuses addresses of its own machine that are not in this list.
    return {**os.environ, "TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost", "NODE_ENV": "production"}


def _listens(gateway: Portkey) -> bool:
    """True once the gateway answers; False if it has ended, because another program took its port."""
    deadline = time.monotonic() + 4 * PATIENCE
    while gateway.process.poll() is None:
        try:
            httpx.get(gateway.url, timeout=PATIENCE, trust_env=False)
        except httpx.TransportError:
            assert time.monotonic() < deadline, gateway.log.read_text()
            time.sleep(0.05)
        else:
            return True
    return False


@pytest.fixture
def start_portkey(tmp_path: Path) -> Iterator[StartPortkey]:
    """Starts gateways."""
    start = StartPortkey(tmp_path)
    yield start
    for process in start.running:
        process.terminate()
        process.wait(PATIENCE)
