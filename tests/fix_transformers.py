"""Fixture for a third-party model server: `transformers serve`, with a tiny model of random weights.

The server runs in its own virtual environment, which `.ci/transformers-venv FOLDER` creates and the variable
`ISOCHRONE_TEST_TRANSFORMERS_VENV` names; without it, its tests are skipped.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

ENVIRONMENT_VARIABLE = "ISOCHRONE_TEST_TRANSFORMERS_VENV"
MODEL = "tiny"
MODEL_SCRIPT = Path(__file__).parent / "acceptance" / "tiny_model.py"
START_SECONDS = 120.0
STOP_SECONDS = 10.0
LISTENING = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that answers `POST {base_url}/chat/completions`; `base_url` ends in `/v1`, without a slash."""

    base_url: str
    model: str


@pytest.fixture(scope="session")
def transformers_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    """Yield a `transformers serve` on loopback that has loaded its model and answered one streaming request."""
    with serve_tiny_model(tmp_path_factory.mktemp("transformers")) as served:
        yield served


@contextmanager
def serve_tiny_model(folder: Path) -> Iterator[ServedModel]:
    """Run `transformers serve` with a model made in this folder; skip or fail the test when that is impossible."""
    venv = _environment()
    deadline = time.monotonic() + START_SECONDS
    _build_model(venv, folder)
    with _server(venv, folder) as process:
        served = ServedModel(base_url=f"{_address(process, folder, deadline)}/v1", model=MODEL)
        _warm_up(served, deadline)
        yield served


def _environment() -> Path:
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if not named:
        pytest.skip(f"{ENVIRONMENT_VARIABLE} is not set; .ci/transformers-venv creates the environment")
    venv = Path(named).resolve()
    if not (venv / "bin" / "transformers").exists():
        pytest.skip(f"{ENVIRONMENT_VARIABLE}={named} has no bin/transformers; run .ci/transformers-venv")
    return venv


def _variables(folder: Path) -> dict[str, str]:
    home = folder / "huggingface"
    (home / "hub").mkdir(parents=True, exist_ok=True)  # without it, `GET /v1/models` returns status 500
    return os.environ | {
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",  # one core for the server, the others for the measurement
    }


def _build_model(venv: Path, folder: Path) -> None:
    command = [venv / "bin" / "python", MODEL_SCRIPT, folder / MODEL]
    built = subprocess.run(
        command, env=_variables(folder), capture_output=True, text=True, timeout=START_SECONDS, check=False
    )
    if built.returncode != 0:
        pytest.fail(f"{MODEL_SCRIPT.name} exited with {built.returncode}:\n{built.stderr[-2000:]}")


@contextmanager
def _server(venv: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    # Named relative to the working directory, the model is called `tiny`; port 0 lets the kernel choose one.
    program = str(venv / "bin" / "transformers")
    command = [program, "serve", MODEL, "--host", "127.0.0.1", "--port", "0", "--device", "cpu"]
    with _log(folder).open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_variables(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:  # a response that is still streaming delays the exit
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], folder: Path, deadline: float) -> str:
    """Return the address that the server logs once the model is loaded."""
    while time.monotonic() < deadline:
        if listening := LISTENING.search(_output(folder)):
            return listening[1]
        if process.poll() is not None:
            pytest.fail(f"transformers serve exited with {process.returncode}:\n{_output(folder)[-2000:]}")
        time.sleep(0.05)
    pytest.fail(f"transformers serve did not listen within {START_SECONDS:.0f} s:\n{_output(folder)[-2000:]}")


def _log(folder: Path) -> Path:
    return folder / "serve.log"


def _output(folder: Path) -> str:
    return _log(folder).read_text(errors="replace")


def _warm_up(served: ServedModel, deadline: float) -> None:
    request = {
        "model": served.model,
        "messages": [{"role": "user", "content": "Are you there?"}],
        "max_tokens": 2,
        "stream": True,
    }
    timeout = httpx.Timeout(max(1.0, deadline - time.monotonic()))
    with httpx.Client(timeout=timeout, trust_env=False) as client:
        answer = client.post(f"{served.base_url}/chat/completions", json=request)
    if answer.status_code != httpx.codes.OK or '"finish_reason":"length"' not in answer.text:
        pytest.fail(f"transformers serve answered its first request with {answer.status_code}: {answer.text[:2000]}")
