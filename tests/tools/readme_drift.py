"""Fail when a page names a make target, command, option or file that does not exist.

usage: PYTHONPATH=tests readme_drift.py
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "llms.txt", *sorted((ROOT / "docs").glob("*.md"))]
_SHELLS = ("", "sh", "console", "bash")
NAMES = ("isochrone", "isochrone-agent", "isochrone-collector", "isochrone-sim")


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
    return [line for line in lines if line.split(" ")[0].rpartition("/")[2] in NAMES]


def check_command(line: str) -> list[str]:
    """The problems of one command line: an unknown subcommand or option."""
    import click

    from tools.docs_reference import PROGRAMS  # imports every program, which finding the lines does not need

    first, *words = line.split()
    program = first.rpartition("/")[2]
    context = click.Context(PROGRAMS[program], info_name=program, **PROGRAMS[program].context_settings)
    path = ""
    for word in words:
        if not isinstance(context.command, click.Group) or not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        path = f"{path} {word}".lstrip()
        command = context.command.get_command(context, word)
        if command is None:
            return [f"`{program} {path}` is no command"]
        context = click.Context(command, parent=context, info_name=word, **command.context_settings)
    options = set(re.findall(r"\s(--[a-z][a-z-]*)", line)) if path else set()
    text = context.get_help() if options else ""
    return [f"`{program} {path}` has no {option}" for option in sorted(options) if option not in text]


if __name__ == "__main__":
    sys.exit(main())
