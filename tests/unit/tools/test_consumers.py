"""The table of `make test-consumers`: pytest with the plugin, on the contract tests of an invented consumer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.consumers import CASES, CONSUMERS, MOVES

TESTS = Path(__file__).parents[2]
ALL = "\n".join(f"@pytest.mark.consumer({name!r}, {case!r})" for name in CONSUMERS for case in CASES)
WHOLE = f"import pytest\n\n{ALL}\ndef test_all(record_property): "


def run(folder: Path, text: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin on a module, and without others: to load them takes longer than all tests."""
    (folder / "test_contract.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  consumer(name, case): a contract test\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tools.consumers", *more]
    return subprocess.run(
        [*command, "-m", "consumer", "test_contract.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def cell(done: subprocess.CompletedProcess[str], name: str, case: str) -> str:
    heading, *lines = done.stdout.partition("consumers =")[2].splitlines()[1:]
    begin = heading.index(f"  {name}") + 2
    (line,) = [line for line in lines if line.startswith(case)]
    return line[begin:].split("  ")[0].strip()


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["one process", "workers"])
def test_all_cases_pass(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """Every consumer has every case, also when the tests run in other processes; the table has the time of a move."""
    done = run(tmp_path, WHOLE + "record_property('moved_s', 0.25)", *workers)
    assert done.returncode == 0, done.stdout
    shown = {case: {cell(done, name, case) for name in CONSUMERS} for case in CASES}
    assert shown == {case: {"ok 0.25 s" if case == MOVES else "ok"} for case in CASES}


@pytest.mark.parametrize(
    ("text", "shown", "exit_code"),
    [
        ("assert False", "failed", 1),
        ("pytest.skip('not installed')", "skipped", 0),
        ("record_property('moved_s', 2.5)", "failed 2.50 s", 1),
    ],
)
def test_other_outcomes(tmp_path: Path, text: str, shown: str, exit_code: int) -> None:
    """A failure fails the run, and so does a move that takes more than two seconds; a skip has its reason."""
    done = run(tmp_path, WHOLE + text)
    assert (cell(done, "Envoy", MOVES), done.returncode) == (shown, exit_code), done.stdout
    assert ("Envoy, collector gone: not installed" in done.stdout) == (shown == "skipped")


def test_a_missing_case_fails_the_run(tmp_path: Path) -> None:
    """A consumer without a test of a case, or a mark with another word, fails the run."""
    done = run(tmp_path, WHOLE.replace("@pytest.mark.consumer('Envoy', 'collector gone')\n", "") + "pass")
    assert (cell(done, "Envoy", "collector gone"), done.returncode) == ("-", 1)
    assert "Envoy, collector gone: no test" in done.stdout
    done = run(tmp_path, WHOLE.replace("'collector gone'", "'collector away'") + "pass")
    assert done.returncode
    assert "is not in tools/consumers.py" in done.stdout + done.stderr
