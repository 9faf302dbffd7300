"""The wheel, installed into an empty environment: an agent VM gets what it needs and nothing heavy."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from fixtures.network import started_with_json

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "httpx",
    "httpx2",
    "psycopg",
    "alembic",
    "sqlalchemy",
    "numpy",
    "scipy",
    "starlette",
    "uvicorn",
    "pydantic",
    "mcp",
    "yaml",
)
# Plan documents take the extra `collector` or `standalone`, LiteLLM and MCP their own; the SDKs of providers bring
# httpx or httpx2.
EXTRA = (
    "isochrone_wire.plan_document.",
    "isochrone_agent.otlp",
    "isochrone.routing.httpx",
    "isochrone.gateway.",
    "isochrone.litellm.",
    "isochrone_client.mcp",
    "isochrone_client.kubernetes.",
)
LIST_HEAVY = f"""
import importlib, pkgutil, sys
for room in ("isochrone_wire", "isochrone_agent", "isochrone_client", "isochrone_sim", "isochrone"):
    package = importlib.import_module(room)
    for module in pkgutil.walk_packages(package.__path__, room + "."):
        if not module.name.endswith("__main__") and not module.name.startswith({EXTRA!r}):
            importlib.import_module(module.name)
print(sorted(set(sys.modules) & set({HEAVY!r})))
"""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that holds the base wheel and its dependencies only."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    assert built.returncode == 0, built.stderr
    venv.create(folder / "venv", with_pip=False)
    programs = folder / "venv" / "bin"
    wheel = next(folder.glob("*.whl"))
    install(programs, str(wheel))
    return programs


def install(programs: Path, *wanted: str) -> None:
    """Install with the pip of this environment, as another one would take longer to install than all else."""
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"]
    done = run(*pip, "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt", *wanted)
    if "No matching distribution" in done.stderr or "Connection" in done.stderr:
        pytest.skip("no package registry can be reached from here")
    assert done.returncode == 0, done.stderr


def test_the_callback_of_litellm_fits_beside_a_collector(installed: Path) -> None:
    """An environment can have both at the versions of constraints.txt, with LiteLLM and what it needs."""
    (wheel,) = installed.parents[1].glob("*.whl")
    install(installed, "--dry-run", f"{wheel}[collector,embedded,litellm]")


def test_the_base_install_imports_nothing_heavy(installed: Path) -> None:
    """Every module of the wire, the agent, the reading side and the simulator imports without an extra's packages."""
    done = run(installed / "python", "-c", LIST_HEAVY)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


@pytest.mark.parametrize("command", ["isochrone", "isochrone-agent", "isochrone-sim"])
def test_the_base_commands_work(installed: Path, command: str) -> None:
    """The commands that need no extra say what they can do."""
    done = run(installed / command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_the_base_agent_probes(installed: Path) -> None:
    """A probe succeeds with the base install, and no request searches every folder for a module that is missing."""
    with started_with_json([str(installed / "isochrone-sim"), "serve", "--listen", "us-east-2=127.0.0.1:0"]) as ready:
        where = ["--base-url", ready["endpoints"]["us-east-2"], "--model", "glm-4-32b", "--runs", "1"]
        done = run(installed / "isochrone-agent", "probe", *where, "--output", "json")
    assert done.returncode == 0, done.stderr
    assert [sample["outcome"] for sample in json.loads(done.stdout)["samples"]] == ["ok"]
    assert run(installed / "python", "-c", "import sniffio").returncode == 0


def test_the_collector_names_its_extra(installed: Path) -> None:
    """Without its extra the collector says what to install; from the wheel it has the schema's revisions."""
    done = run(installed / "isochrone-collector", "serve")
    assert done.returncode != 0
    assert "isochrone[collector]" in done.stderr
    assert "Traceback" not in done.stderr
    script = "import isochrone_migrations as m, pathlib; print(*pathlib.Path(m.__file__).parent.rglob('v*.py'))"
    done = run(installed / "python", "-c", script)
    assert "v0001" in done.stdout, done.stderr
