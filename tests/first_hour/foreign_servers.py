"""Servers of other projects that speak an LLM API, on loopback: those whose environments `.ci/run` has made."""

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from fixtures import transformers
from testdata.ports import free_port

LITELLM = "ISOCHRONE_TEST_LITELLM_PYTHON"
_START_SECONDS = 120.0
_ANSWER = "Recursion is a function that calls itself on a smaller part of its problem, until the part is trivial."


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignServer:
    """A server's project, the base URL of its API, and a model that it serves."""

    project: str
    base_url: str
    model: str


@contextmanager
def foreign_servers(folder: Path) -> Iterator[list[ForeignServer]]:
    with ExitStack() as stack:
        found = []
        if _has_proxy():
            found.append(stack.enter_context(_litellm(folder)))
        if transformers.ENVIRONMENT_VARIABLE in os.environ:
            served = stack.enter_context(transformers.serve_tiny_model(folder))
            found.append(ForeignServer(project="transformers", base_url=served.base_url, model=served.model))
        yield found


def _has_proxy() -> bool:
    """Return whether LiteLLM is installed with the packages of its proxy, `litellm[proxy]`."""
    if LITELLM not in os.environ:
        return False
    imported = [os.environ[LITELLM], "-c", "import litellm, fastapi, websockets"]
    return subprocess.run(imported, capture_output=True, check=False).returncode == 0


@contextmanager
def _litellm(folder: Path) -> Iterator[ForeignServer]:
    """Run a LiteLLM proxy that answers with a fixed text."""
    port = free_port()
    parameters = {"model": "openai/fixed", "api_key": "none", "mock_response": _ANSWER}
    configuration = folder / "litellm.yaml"
    configuration.write_text(yaml.safe_dump({"model_list": [{"model_name": "fixed", "litellm_params": parameters}]}))
    program = str(Path(os.environ[LITELLM]).parent / "litellm")
    command = [program, "--config", str(configuration), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "litellm.log").open("wb") as log:
        # Otherwise it asks the internet for prices for half a minute, and refuses to start without a key.
        settings = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }
        environment = os.environ | settings
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)
    try:
        _await(f"http://127.0.0.1:{port}/health/liveliness", process, folder / "litellm.log")
        yield ForeignServer(project="litellm", base_url=f"http://127.0.0.1:{port}/v1", model="fixed")
    finally:
        process.terminate()
        process.wait(30)


def _await(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise SystemExit(f"{url} did not answer:\n{log.read_text()[-2000:]}")
