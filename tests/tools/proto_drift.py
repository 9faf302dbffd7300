"""Regenerate the protobuf code, or fail when the committed code differs from what the .proto files give.

usage: proto_drift.py [--write]
"""

import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE, TYPES, SERVICES, SERVICE_TYPES = "python", "mypy", "grpc_python", "mypy_grpc"
# Source root and folder below it → what protoc generates there. The messages of `ingest` and `xds` have no services.
GENERATED = {
    ("proto", "isochrone_wire/v1"): (CODE, TYPES, SERVICES, SERVICE_TYPES),
    ("collector", "isochrone_collector/ingest"): (CODE, TYPES),
    ("collector", "isochrone_collector/xds"): (CODE, TYPES),
}


def generate(into: Path) -> None:
    """Run protoc over every .proto; the import path of the code is the path of its .proto."""
    well_known = files("grpc_tools") / "_proto"
    includes = [part for root, _ in GENERATED for part in ("-I", str(ROOT / root))]
    script_folder = Path(sys.executable).parent
    plugins = [f"--plugin={name}={script_folder / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    command = [sys.executable, "-m", "grpc_tools.protoc", *includes, "-I", str(well_known), *plugins]
    for (root, folder), kinds in GENERATED.items():
        (into / root).mkdir(exist_ok=True)
        options = [f"--{kind}_out={into / root}" for kind in kinds]
        protos = sorted(str(path.relative_to(ROOT / root)) for path in (ROOT / root / folder).glob("*.proto"))
        subprocess.run([*command, *options, *protos], cwd=ROOT / root, check=True, stderr=subprocess.DEVNULL)


def texts(base: Path) -> dict[str, str]:
    found = (path for root, folder in GENERATED for path in (base / root / folder).glob("*_pb2*.py*"))
    return {str(path.relative_to(base)): path.read_text() for path in sorted(found)}


def main() -> int:
    """Return 0 when the committed code is up to date."""
    if "--write" in sys.argv[1:]:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh, committed = texts(Path(scratch)), texts(ROOT)
    stale = sorted(name for name in fresh | committed if fresh.get(name) != committed.get(name))
    if stale:
        sys.stderr.write(f"proto drift: {', '.join(stale)} differ; run `make proto` and commit the result\n")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
