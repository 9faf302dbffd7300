"""Commands of a page of the documentation, run as a reader would."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from testdata.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
MODULES = {"isochrone": "isochrone_client"}
_REPORT_FAILURES = """trap 'echo "exit code $?: $BASH_COMMAND"' ERR"""
_NOTED_CHARS = 10_000


def section(page: str, title: str) -> str:
    """Return the section of a page of docs/ under a heading of the second level, with that heading."""
    _, *sections = re.split(r"^(?=## )", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)
    (found,) = [text for text in sections if text.startswith(f"## {title}\n")]
    return found


def blocks_of(text: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def unused_ports(written: Sequence[str]) -> dict[str, int]:
    return dict(zip(written, free_ports(len(written)), strict=True))


def with_ports(text: str, ports: Mapping[str, int]) -> str:
    """Return a text with these ports in place of those of the page, in addresses and after `--port`."""
    for written, port in ports.items():
        text = re.sub(rf"(127\.0\.0\.1:|--port[ =]){written}\b", rf"\g<1>{port}", text)
    return text


@contextmanager
def short_checkout() -> Iterator[Path]:
    """A folder for `make_checkout`, with a short path: that of the collector's socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="page-") as name:
        make_checkout(Path(name))
        yield Path(name)


def make_checkout(folder: Path) -> None:
    """Make a folder look like a checkout, with the commands of this one."""
    (folder / "deploy").symlink_to(ROOT / "deploy")
    commands = folder / "bin"
    commands.mkdir()
    for command in ("isochrone", "isochrone-agent", "isochrone-collector", "isochrone-sim"):
        module = MODULES.get(command, command.replace("-", "_"))
        (commands / command).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (commands / command).chmod(0o755)


@contextmanager
def running(blocks: Sequence[str], folder: Path) -> Iterator[Path]:
    """Run these blocks in a folder of `make_checkout`; yield their log, whose end is a note of an error of the test."""
    log = folder / "log"
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_DATA_HOME": str(folder / "data"),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-ec", "\n".join([_REPORT_FAILURES, *blocks, "wait"])],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield log
    except BaseException as error:
        printed = log.read_text()[-_NOTED_CHARS:]
        error.add_note(f"the page's commands, whose exit code is {process.poll()}, printed:\n{printed}")
        raise
    finally:
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
