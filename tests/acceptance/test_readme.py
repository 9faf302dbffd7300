"""The README's way to a first differential works when its commands are executed one after another."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from testdata.ports import free_ports
from testdata.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "README.md").read_text().partition("## Run it for real\n")[2].partition("\n## ")[0]
KEEPS_RUNNING = ("serve", "run")
PROVIDER_PORTS = ("8081", "8082")
DECIDED_SECONDS = 240
STOP_SECONDS = 30
# Until the agent of the region has reported for the first time.
UNKNOWN_REGION = 2


@pytest.fixture
def section() -> str:
    text = SECTION
    for written, free in zip(PROVIDER_PORTS, free_ports(len(PROVIDER_PORTS)), strict=True):
        assert written in text
        text = text.replace(written, str(free))
    return text


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """The environment of a new user, whose commands find the collector by themselves."""
    # The path of a socket is short.
    with tempfile.TemporaryDirectory() as home:
        folders = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), home)
        yield {**os.environ, **folders, "COLUMNS": "200"}


def test_the_commands_lead_to_a_differential(section: str, environment: dict[str, str], tmp_path: Path) -> None:
    """The README's plan and commands end in a decided differential of the true size, and state what lacks before."""
    (tmp_path / "plan.yaml").write_text(re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)[0])
    lines = re.findall(r"^\$ (isochrone.*?)(?: +#.*)?$", section, re.MULTILINE)
    with ExitStack() as stack:
        for line in lines[:-1]:
            program, command, *options = shlex.split(line)
            if command in KEEPS_RUNNING:
                stack.enter_context(running(program, command, *options, environment=environment, folder=tmp_path))
            else:
                run(program, command, *options, environment=environment, folder=tmp_path)
        asking, shown = shlex.split(lines[-1]), list[str]()

        def decided() -> bool:
            done = run(*asking, environment=environment, folder=tmp_path, fine=(0, UNKNOWN_REGION))
            shown.append(done.stdout)
            is_decided = re.search(r"^sim/kimi-k2\.5 .* faster( \[\d+\])?$", done.stdout, re.MULTILINE) is not None
            states_reason = re.search("^(note|error: unknown region)", done.stderr) or "undecided" in done.stdout
            assert is_decided or states_reason, (done.stdout, done.stderr)
            return is_decided

        eventually(DECIDED_SECONDS, decided, "ap-southeast-1 is faster", every=3)
        shift = re.search(r"sim/kimi-k2\.5.* (-1\d\d) ", shown[-1])
        assert shift is not None, shown[-1]
        assert -150 < int(shift[1]) < -100


def run(
    *words: str, environment: dict[str, str], folder: Path, fine: tuple[int, ...] = (0,)
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; its exit code must be in `fine`."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / words[0]), *words[1:]],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode in fine, (words, done.stderr)
    return done


@contextmanager
def running(*words: str, environment: dict[str, str], folder: Path) -> Iterator[None]:
    """Run a command until the end of the block; a server is awaited until it is ready."""
    program, command, *options = words
    if program == "isochrone-collector":
        options += ["--listen", "127.0.0.1:0", "--http-listen", "off"]
    log = folder / f"{program}-{len(list(folder.glob('*.log')))}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / program), command, *options],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert process.stdout is not None
    try:
        if command == "serve":
            assert process.stdout.readline(), log.read_text()
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.communicate(timeout=STOP_SECONDS)
