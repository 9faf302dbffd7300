"""The commands that a newcomer copies from the pages, and from `--help`."""

import re
import shlex
from pathlib import Path

from tools.readme_drift import command_lines

_ENDLESS = {"--follow", "-f", "--watch", "watch", "kubernetes", "gateway"}
# These take a token, change which collector is asked, or need an extra.
_SETTING_UP = ("join", "context", "demo", "completion", "mcp")


def commands(page: str) -> list[str]:
    """Return the lines of the page's shell blocks that run one of our programs, without comments."""
    return [re.sub(r" {2,}# .*", "", line) for line in command_lines(page)]


def questions(folder: Path) -> list[str]:
    """Return every command of docs/asking.md that asks the collector in use, in order."""
    found = commands((folder / "docs" / "asking.md").read_text())
    return [line for line in found if line.split()[1] not in _SETTING_UP and "lab" not in shlex.split(line)]


def examples(help_text: str) -> list[str]:
    section = re.split(r"^ *Examples?:$", help_text, flags=re.MULTILINE)[-1]
    return [line.strip() for line in re.findall(r"^ +(isochrone .+)$", section, re.MULTILINE)]


def subcommands(help_text: str) -> list[str]:
    """Return the names of the commands in a `--help` that ask a collector."""
    names: list[str] = re.findall(r"^  ([a-z][a-z-]*)(?: {2,}|$)", help_text, re.MULTILINE)
    return [name for name in names if name not in _SETTING_UP]


def is_endless(line: str) -> bool:
    return bool(_ENDLESS & set(shlex.split(line)))


def exit_codes(line: str) -> tuple[int, ...]:
    """Return the codes with which a command may end: an export writes nothing while there is nothing to write, and the
    status has the code of what is wrong.
    """
    return (0, 1) if " export " in line else (0, 5, 6) if line.startswith("isochrone status") else (0,)


def is_for_programs(line: str) -> bool:
    """Return whether the output is not for a screen: CSV, JSON, Markdown or a script."""
    words = shlex.split(line)
    return any(word in ("--output", "-o") for word in words) or "completion" in words
