"""Regenerate the wire's code, or fail when what is committed differs from what the .proto files say.

usage: proto_drift.py [--write]
"""

import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "proto"
GENERATED = "isochrone_wire/v1"


def generate(into: Path) -> None:
    """Run protoc over every .proto; the import path of the code is the path of its .proto."""
    well_known = files("grpc_tools") / "_proto"
    options = [f"--{kind}_out={into}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    protos = sorted(str(path.relative_to(SOURCES)) for path in (SOURCES / GENERATED).glob("*.proto"))
    script_folder = Path(sys.executable).parent
    plugins = [f"--plugin={name}={script_folder / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(SOURCES), "-I", str(well_known)]
    subprocess.run([*command, *plugins, *options, *protos], cwd=SOURCES, check=True, stderr=subprocess.DEVNULL)


def texts(folder: Path) -> dict[str, str]:
    """Name and text of every generated file below `folder`."""
    return {path.name: path.read_text() for path in sorted((folder / GENERATED).glob("*_pb2*.py*"))}


def main() -> int:
    """Return 0 when the committed code is what the .proto files give."""
    if "--write" in sys.argv[1:]:
        generate(SOURCES)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh, committed = texts(Path(scratch)), texts(SOURCES)
    stale = sorted(name for name in fresh | committed if fresh.get(name) != committed.get(name))
    if stale:
        sys.stderr.write(f"proto drift: {', '.join(stale)} differ; run `make proto` and commit the result\n")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
