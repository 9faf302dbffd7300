"""docs/routing.md keeps its word: every `curl` in it works on the demo, as it is written there."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = "http://127.0.0.1:4680"
START_SECONDS = 120.0
# Names that the page asks for because they are not there.
UNKNOWN = "eu-central-2"

BLOCKS = [
    block
    for block in re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs/routing.md").read_text(), re.DOTALL | re.MULTILINE)
    if "curl" in block
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here"),
]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running demo that has tables of every route in every region."""
    folder = tmp_path_factory.mktemp("demo")
    log = folder / "demo.log"
    command = [sys.executable, "-m", "isochrone_client", "demo", "--folder", str(folder / "run")]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file)
    try:
        yield _url_with_tables(process, log)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _url_with_tables(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        told = re.search(r"HTTP API at (http://\S+)", log.read_text())
        if told and _tables(told[1]) == 9:
            return told[1]
        time.sleep(0.5)
    pytest.fail(f"the demo has no tables: {log.read_text()}")


def _tables(url: str) -> int:
    try:
        with urllib.request.urlopen(f"{url}/v1/routes", timeout=10) as answer:
            return len(json.load(answer)["tables"])
    except urllib.error.URLError:
        return 0


def test_the_page_has_examples() -> None:
    """There is something to run, and it all goes to the address that the demo usually has."""
    assert len(BLOCKS) >= 8
    assert all(WRITTEN in block for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_works_as_written(demo: str, block: str) -> None:
    """Each example succeeds and gives an answer, and a problem only where the page shows one."""
    text = block.replace(WRITTEN, demo)
    done = subprocess.run(["sh", "-ec", text], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert ('"type": "urn:isochrone:problem:' in done.stdout) == (UNKNOWN in block), done.stdout
    assert "HTTP/1.1 5" not in done.stdout
    if "If-None-Match" in block:
        assert re.match(r"HTTP/1.1 (304|200) ", done.stdout)
    if "/watch" in block:
        assert done.stdout.count("event: table") == 2
