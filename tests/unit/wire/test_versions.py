"""Compatibility with the previous version: today's messages against its .proto files."""

import subprocess
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from isochrone_wire import codec
from isochrone_wire.model import Batch, Outcome, Plan, Route, Sample, Target, Vantage, Vitals
from isochrone_wire.operations import Receipt

BEFORE = Path(__file__).resolve().parents[2] / "testdata" / "wire_before"
VANTAGE = Vantage(name="sg-1", region="ap-southeast-1")
SAMPLE = Sample(target_id=5, round_at=60_000_000, outcome=Outcome.OK, dispatched_at=60_000_123, ttft_us=200_000)
TARGET = Target(id=5, name="t", provider="p", model="m", base_url="http://h/v1")
# What the version before knows of each value, and so must survive a way through it.
THROUGH: list[tuple[str, str, object]] = [
    ("fleet", "PushRequest", Batch(vantage=VANTAGE, epoch=1, seq=2, samples=(SAMPLE,), vitals=Vitals(spool_depth=3))),
    ("fleet", "PushResponse", Receipt(stored=1, plan_version=4, server_at=9)),
    ("plan", "Plan", Plan(version=1, baseline="us-east-2", targets=(TARGET,))),
]
RELAY = """
import sys
from importlib import import_module
module, name = sys.argv[1:]
message = getattr(import_module(f"isochrone_wire.v1.{module}_pb2"), name).FromString(sys.stdin.buffer.read())
message.DiscardUnknownFields()
sys.stdout.buffer.write(message.SerializeToString())
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated code of the previous version, as a folder to import from."""
    folder = tmp_path_factory.mktemp("before")
    protos = [str(path.relative_to(BEFORE)) for path in sorted(BEFORE.rglob("*.proto"))]
    well_known = files("grpc_tools") / "_proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(BEFORE), "-I", str(well_known)]
    subprocess.run([*command, f"--python_out={folder}", *protos], check=True, cwd=BEFORE)
    # Without these today's package, which has them, would be imported instead.
    for package in ("isochrone_wire", "isochrone_wire/v1"):
        (folder / package / "__init__.py").touch()
    return folder


@pytest.mark.parametrize(("module", "name", "value"), THROUGH, ids=lambda part: part if isinstance(part, str) else "")
def test_a_message_survives_the_version_before(before: Path, module: str, name: str, value: object) -> None:
    """The previous version preserves known fields; unknown fields are unset, not garbled."""
    assert through(before, module, name, value) == value


def test_an_agent_of_the_version_before_probes_a_plan_with_routes(before: Path) -> None:
    """An older agent ignores routes and probes the same targets."""
    plan = Plan(version=1, baseline="us-east-2", targets=(TARGET,), routes=(Route(name="r", members=("t",)),))
    assert through(before, "plan", "Plan", plan) == replace(plan, routes=())


def through(before: Path, module: str, name: str, value: object) -> object:
    """Return the value after the previous version has read and written its message."""
    relay = [sys.executable, "-c", RELAY, module, name]
    sent = codec.encode(value).SerializeToString()
    back = subprocess.run(
        relay, input=sent, capture_output=True, check=True, cwd=before, env={"PYTHONPATH": str(before)}
    )
    decoded: object = codec.decode(type(value), type(codec.encode(value)).FromString(back.stdout))
    return decoded
