"""Write the hashes of Python packages and the digests of images that deploy/ installs, as their registries state them.

usage: pins.py

The versions are those of constraints.txt. Packages take `uv`, images `docker buildx`. What no registry answers for is
left as it is and named, and the exit code is 1: a hash or a digest is never made up.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = {
    "agent": ("pyproject.toml", "--extra", "kubernetes"),
    "collector": ("pyproject.toml", "--extra", "collector", "--extra", "embedded"),
    "build": ("-",),
}
"""The source of each deploy/requirements-….txt: what `install.sh` and the images need besides the project itself; of
`build`, what builds its wheel.
"""

IMAGES = {"BASE_IMAGE": "python:3.13-slim", "POSTGRES_IMAGE": "postgres:18"}
"""The images by their variable in deploy/images.env."""

_BUILD = "hatchling\n"
_PYTHON = "3.11"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_INSPECT = ("docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}")


def main(root: Path = ROOT) -> int:
    """Write what the registries answer, and return the exit code."""
    problems = [*_write_requirements(root), *_write_images(root / "deploy" / "images.env")]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)  # noqa: T201  # the answer
    return 1 if problems else 0


def _write_requirements(root: Path) -> list[str]:
    options = ["--universal", "--python-version", _PYTHON, "--only-binary", ":all:", "--generate-hashes"]
    options += ["--constraints", "constraints.txt", "--no-header", "--no-annotate", "--quiet"]
    problems = []
    for role, source in REQUIREMENTS.items():
        file = f"deploy/requirements-{role}.txt"
        answer = _answer(["uv", "pip", "compile", *source, *options, "--output-file", file], root)
        if answer is None or answer.returncode:
            problems.append(f"{file} is as before: no registry answers ({_reason(answer, 'uv')})")
    return problems


def _write_images(file: Path) -> list[str]:
    known = dict(re.findall(r"^(\w+)=(.+)$", file.read_text(), re.MULTILINE)) if file.exists() else {}
    problems = []
    for variable, image in IMAGES.items():
        answer = _answer([*_INSPECT, image], file.parent)
        digest = answer.stdout.strip() if answer else ""
        if _DIGEST.fullmatch(digest):
            known[variable] = f"{image}@{digest}"
        else:
            problems.append(f"{variable} is as before: no registry answers for {image} ({_reason(answer, 'docker')})")
    if known:
        file.write_text("".join(f"{variable}={known[variable]}\n" for variable in IMAGES if variable in known))
    return problems


def _answer(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str] | None":
    try:
        return subprocess.run(
            command, cwd=folder, input=_BUILD, capture_output=True, text=True, check=False, timeout=600
        )
    except FileNotFoundError:
        return None


def _reason(answer: "subprocess.CompletedProcess[str] | None", program: str) -> str:
    if answer is None:
        return f"{program} is not installed"
    return (answer.stderr.strip().splitlines() or ["it states no digest"])[-1]


if __name__ == "__main__":
    sys.exit(main())
