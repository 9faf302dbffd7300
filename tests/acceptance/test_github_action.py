"""action.yml, run step by step as a runner of GitHub does, against the simulator; and docs/github-action.md."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.simulator import API_KEY, Simulator
from testdata.documented_commands import ROOT, blocks_of, make_checkout, running
from testdata.ports import free_port
from testdata.waiting import eventually

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
PAGE = (ROOT / "docs" / "github-action.md").read_text()
INSTALL, PROBE = ACTION["runs"]["steps"]
EXPRESSION = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")
# The shell `bash` of a composite action.
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
SLOW_MODEL = "kimi-k2.5"

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The end of a step: its exit code, log, outputs and summary, and the document of the probe."""

    code: int
    log: str
    outputs: Mapping[str, str]
    summary: str
    document: Mapping[str, Any]


def run_step(step: Mapping[str, Any], temp: Path, folder: Path, **inputs: str) -> Done:
    """Run a step with these inputs and the defaults of the others; underscores in names stand for hyphens."""
    given = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
    given |= {name.replace("_", "-"): text for name, text in inputs.items()}
    variables = {
        name: EXPRESSION.sub(lambda found: given[found[1]], text) for name, text in step.get("env", {}).items()
    }
    script, output, summary = (folder / name for name in ("script.sh", "output", "summary.md"))
    script.write_text(step["run"])
    output.touch()
    summary.touch()
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        **{name: text for name, text in os.environ.items() if name.startswith("PIP_")},
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
        "RUNNER_TEMP": str(temp),
        **variables,
    }
    done = subprocess.run([*BASH, script], env=environment, cwd=folder, capture_output=True, text=True, check=False)
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    text = Path(outputs["result"]).read_text() if "result" in outputs else ""
    return Done(
        code=done.returncode,
        log=done.stdout + done.stderr,
        outputs=outputs,
        summary=summary.read_text(),
        document=json.loads(text) if text else {},
    )


@pytest.fixture(scope="module")
def temp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runner's temporary folder after the first step."""
    folder = tmp_path_factory.mktemp("runner")
    done = run_step(INSTALL, folder, tmp_path_factory.mktemp("install"))
    if "No matching distribution" in done.log or "Connection" in done.log:
        pytest.skip("no package registry can be reached from here")
    assert done.code == 0, done.log
    return folder


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_no_input_is_part_of_a_script() -> None:
    """Scripts have no expressions; only variables have, each the value of one input, and each input is used."""
    assert [step["run"] for step in (INSTALL, PROBE) if "${{" in step["run"]] == []
    used = [EXPRESSION.fullmatch(text) for text in PROBE["env"].values()]
    assert sorted(found[1] for found in used if found) == sorted(ACTION["inputs"])
    assert "env" not in INSTALL
    outputs = {name: f"${{{{ steps.{PROBE['id']}.outputs.{name} }}}}" for name in ACTION["outputs"]}
    assert {name: one["value"] for name, one in ACTION["outputs"].items()} == outputs


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
@pytest.mark.parametrize("step", [INSTALL, PROBE], ids=lambda step: step["name"])
def test_shellcheck_finds_nothing(step: Mapping[str, Any]) -> None:
    """The scripts are valid bash without the usual mistakes."""
    done = subprocess.run(
        ["shellcheck", "--shell=bash", "-"], input=step["run"], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""


DEAD = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
SLOW = {"model": SLOW_MODEL, "runs": "1"}
KEPT = "limit kept: first token after at most 60000 ms; the median of 3 runs is"
TTFT, SPEED = "limit not kept: first token after at most 50.0 ms", "limit not kept: at least 1000000.0 tokens/s"


@pytest.mark.parametrize(
    "case",
    [
        ({"model": "fault-none", "runs": "3", "max_ttft": "60s", "min_tps": "0.1"}, 0, 0, "", (KEPT,)),
        ({**SLOW, "max_ttft": "50ms", "min_tps": "0.1"}, 5, 1, TTFT, (TTFT,)),
        ({**SLOW, "max_ttft": "60s", "min_tps": "1000000"}, 5, 1, SPEED, (SPEED,)),
        ({**DEAD, "runs": "2", "max_ttft": "5s"}, 1, None, "", ("2 of 2 runs failed", "connect\\_failed")),
        ({**DEAD, "max_ttft": "500"}, 2, None, "'500' is not a duration: write for example 500ms", ()),
    ],
    ids=["kept", "ttft", "speed", "dead", "usage"],
)
def test_the_step_ends_as_its_limits(
    temp: Path,
    fault_simulator: Simulator,
    tmp_path: Path,
    case: tuple[dict[str, str], int, int | None, str, tuple[str]],
) -> None:
    """Kept limits succeed, a broken one fails with 5, dead APIs with 1 and usage with 2; log and summary state why."""
    inputs, code, broken, log, summary = case
    done = run_step(PROBE, temp, tmp_path, **{"base_url": fault_simulator.base_url, **inputs})
    assert (done.code, done.outputs["exit-code"]) == (code, str(code)), done.log
    assert log in done.log
    assert [part for part in summary if part not in done.summary] == []
    assert bool(done.summary) is bool(summary)
    if broken is not None:
        assert [verdict["kept"] for verdict in done.document["limits"]].count(False) == broken
        assert {verdict["metric"] for verdict in done.document["limits"]} == {"ttft_us", "tokens_per_second"}
        assert len(done.document["samples"]) == int(inputs["runs"])
        assert done.log.count("not kept") == broken
        assert broken or done.summary.count("| ok") == 3  # a busy machine may be named behind it


@pytest.mark.parametrize("key", [API_KEY, "sk-simulator-other-key"], ids=["right", "wrong"])
def test_the_key_is_nowhere(temp: Path, simulator_with_key: Simulator, tmp_path: Path, key: str) -> None:
    """The key opens the API, and is in no log, output, summary or document, also if the API refuses it."""
    done = run_step(
        PROBE, temp, tmp_path, base_url=simulator_with_key.base_url, model="fault-none", runs="1", api_key=key
    )
    assert done.code == (0 if key == API_KEY else 1), done.log
    written = [path.read_text() for folder in (temp, tmp_path) for path in folder.glob("**/*.json")]
    assert key not in "".join([done.log, done.summary, str(done.outputs), *written])


@pytest.mark.parametrize(
    "text", ["$(touch pwned)", '"; touch pwned; "', "`touch pwned`", "x\nexit-code=0", "--help", "a\n::error::b"]
)
def test_inputs_are_no_commands(temp: Path, tmp_path: Path, text: str) -> None:
    """Whatever the inputs contain, nothing of it is run, is an option, or is a separate line in outputs or log."""
    done = run_step(
        PROBE, temp, tmp_path, target=text, base_url=text, model=text, dialect=text, runs="1", max_ttft="1s"
    )
    assert done.code not in (0, 5), done.log
    assert done.outputs["exit-code"] == str(done.code)
    assert set(done.outputs) == {"exit-code", "result"}
    assert not list(tmp_path.rglob("pwned"))
    assert not [line for line in done.log.splitlines() if line.lstrip().startswith("::")]


def test_the_page_describes_the_action() -> None:
    """The workflow of the page uses inputs that exist, and the tables have all inputs and outputs."""
    (workflow,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (probe, upload) = yaml.safe_load(workflow)["jobs"]["probe"]["steps"]
    assert set(probe["with"]) <= set(ACTION["inputs"])
    assert upload["with"]["path"] == f"${{{{ steps.{probe['id']}.outputs.result }}}}"
    named = re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)
    assert named == [*ACTION["inputs"], *ACTION["outputs"]]


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    """The limits are kept, and the summary is written."""
    make_checkout(tmp_path)
    port = free_port()
    serve, probe = (block.replace("8081", str(port)) for block in blocks_of(PAGE))
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    with running([f"{serve.strip()} &"], tmp_path):
        eventually(20, lambda: is_open(port), "the simulator listens")
        done = subprocess.run(
            ["bash", "-ec", probe], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "summary.md").read_text().count("limit kept") == 2
