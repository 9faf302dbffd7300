"""Fail when the README promises what is not there: a make target, a command or option, a file it links to.

usage: readme_drift.py
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# The end of click's usage line of a command with subcommands, which may be optional.
_A_GROUP = ("COMMAND [ARGS]...", "[COMMAND] [ARGS]...")
_SHELLS = ("", "sh", "console", "bash")
PROGRAMS = ("isochrone", "isochrone-agent", "isochrone-collector", "isochrone-sim")


def main() -> int:
    """Return 0 when every promise of the pages holds."""
    problems = [problem for page in PAGES for problem in check(page)]
    for problem in problems:
        sys.stderr.write(f"drift: {problem}\n")
    return bool(problems)


def check(page: Path) -> list[str]:
    """The broken promises of one page."""
    text = page.read_text()
    name = page.relative_to(ROOT)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    broken = [
        f"{name}: `make {t}` is no target"
        for t in re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)", code(text))
        if t not in targets
    ]
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    broken += [f"{name}: link to missing {link}" for link in links if not (page.parent / link).exists()]
    return broken + [f"{name}: {problem}" for line in command_lines(text) for problem in check_command(line)]


def code(text: str) -> str:
    """Everything in backticks or fences."""
    return "\n".join(re.findall(r"```.*?```|`[^`]+`", text, re.DOTALL))


def command_lines(text: str) -> list[str]:
    """Lines of fenced blocks that call one of our programs, continuation lines joined."""
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    fenced = "\n".join(block for language, block in blocks if language in _SHELLS).replace("\\\n", " ")
    lines = (line.strip().removeprefix("$ ") for line in fenced.splitlines())
    return [line for line in lines if line.split(" ")[0].rpartition("/")[2] in PROGRAMS]


def check_command(line: str) -> list[str]:
    """What is wrong with one command line: an unknown subcommand or option."""
    first, *words = line.split()
    program, path, text = first.rpartition("/")[2], "", ""
    for word in words:
        if not re.fullmatch(r"[a-z][a-z-]*", word) or (path and not any(end in text for end in _A_GROUP)):
            break
        path = f"{path} {word}".lstrip()
        executable = Path(sys.executable).parent / program
        shown = subprocess.run([executable, *path.split(), "--help"], capture_output=True, text=True, check=False)
        if shown.returncode:
            return [f"`{program} {path}` is no command"]
        text = shown.stdout
    options = set(re.findall(r"\s(--[a-z][a-z-]*)", line)) if path else ()
    return [f"`{program} {path}` has no {option}" for option in sorted(options) if option not in text]


if __name__ == "__main__":
    sys.exit(main())
