"""How `isochrone` is called in another terminal, which may not have it on its PATH."""

import shlex
import shutil
from pathlib import Path


def called(line: str, *, python: Path, here: Path) -> str:
    """A line of a shell that begins with `isochrone`, so that it works in the folder `here` too when the program only
    stands beside the interpreter `python`.
    """
    program = python.with_name("isochrone")
    if shutil.which("isochrone") is not None or not program.exists():
        return line
    path = program.relative_to(here) if program.is_relative_to(here) else program
    return f"{shlex.quote(str(path))}{line.removeprefix('isochrone')}"
