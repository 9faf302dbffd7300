"""Fixture for Prometheus: Debian's real server, which scrapes and evaluates every second.

Tests are skipped with the reason if it is not installed.
"""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from testdata.ports import free_port

START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus, at `url`."""

    url: str

    def api(self, path: str, **parameters: str) -> Any:
        """Return the `data` of its answer to a call of the API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[float]:
        """Return the values of a query now, without NaN."""
        found = [float(one["value"][1]) for one in self.api("query", query=expression)["result"]]
        return [value for value in found if value == value]  # noqa: PLR0124  # NaN is not itself


class StartPrometheus(Protocol):
    """Starts Prometheus on targets of one job, `isochrone`, with files of rules."""

    def __call__(self, *addresses: str, rules: Sequence[Path] = ()) -> Prometheus:
        """Return the running server."""
        ...


@pytest.fixture
def start_prometheus(tmp_path: Path) -> Iterator[StartPrometheus]:
    """Prometheus servers that are stopped after the test."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Debian's prometheus")
    started: list[subprocess.Popen[bytes]] = []

    def start(*addresses: str, rules: Sequence[Path] = ()) -> Prometheus:
        folder = tmp_path / f"prometheus-{len(started)}"
        folder.mkdir()
        document = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [{"job_name": "isochrone", "static_configs": [{"targets": list(addresses)}]}],
        }
        # JSON is YAML.
        (folder / "prometheus.yaml").write_text(json.dumps(document))
        return Prometheus(_run(program, folder, started))

    try:
        yield start
    finally:
        for process in started:
            process.terminate()
            process.wait(20)


def _run(program: str, folder: Path, started: list[subprocess.Popen[bytes]]) -> str:
    """Start the program on a free port, and return its URL once it is ready."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    options = [
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        started.append(subprocess.Popen([program, *options], stdout=log, stderr=log))
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with _quiet(), urllib.request.urlopen(f"{url}/-/ready", timeout=1) as answer:
            if answer.status == 200:
                return url
        time.sleep(0.05)
    raise AssertionError((folder / "log").read_text()[-2000:])


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore that it does not answer yet."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        pass
