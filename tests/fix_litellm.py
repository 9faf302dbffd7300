"""LiteLLM with Isochrone's callback: its real proxy, and its `Router` in a program, each a process of its own, and the
tables that they follow.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fix_table_server import TableServer
from isochrone_client.clock import now_at
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteEntry
from testdata.documented_commands import ROOT
from testdata.ports import free_port
from testdata.routes import CHAT

PYTHON = os.environ.get("ISOCHRONE_TEST_LITELLM_PYTHON", "")
PATIENCE = 240.0
MASTER_KEY = "sk-master"
REGION, OTHER_REGION = "us-east-2", "eu-central-1"
REGION_HEADER = "x-client-region"
KEY_OF_OTHER_REGION = "sk-eu"
# As an operator writes it beside the configuration of a proxy without a database.
AUTHENTICATION = f"""
from litellm.proxy._types import UserAPIKeyAuth

async def by_key(request, api_key):
    metadata = {{"client_region": "{OTHER_REGION}"}} if api_key == "{KEY_OF_OTHER_REGION}" else {{}}
    return UserAPIKeyAuth(api_key=api_key, metadata=metadata)
"""
_PROGRAM = Path(__file__).parent / "testdata" / "litellm_router.py"
# LiteLLM would ask the internet for prices for half a minute.
_SETTINGS = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": f"{ROOT / 'proto'}:{ROOT / 'clients' / 'python'}"}


@cache
def has_proxy() -> bool:
    """Return whether LiteLLM's proxy is installed."""
    # Importing them would take several seconds in each worker, also in those without a test of LiteLLM.
    found = "import sys; from importlib.util import find_spec; sys.exit(None in map(find_spec, sys.argv[1:]))"
    command = [PYTHON, "-c", found, "litellm", "fastapi", "prometheus_client"]
    return bool(PYTHON) and subprocess.run(command, capture_output=True, check=False).returncode == 0


requires_litellm = pytest.mark.skipif(
    not has_proxy(),
    reason="LiteLLM's proxy is not installed: pip install 'litellm[proxy]' prometheus-client into a virtualenv of its "
    "own, and say where its python is with ISOCHRONE_TEST_LITELLM_PYTHON",
)


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a program that imports LiteLLM and the callback."""
    return {**os.environ, **_SETTINGS, "HOME": str(home), **more}


@dataclass(slots=True)
class Proxy:
    """A proxy with this configuration, in a folder of its own."""

    config: Mapping[str, Any]
    folder: Path
    port: int = 0
    process: "subprocess.Popen[bytes] | None" = None
    client: httpx.Client = field(default_factory=lambda: httpx.Client(trust_env=False, timeout=60))

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.folder / "proxy.log"

    def start(self) -> None:
        """Start, and wait until it serves."""
        self.port = free_port()
        (self.folder / "config.yaml").write_text(yaml.safe_dump(self.config))
        program = str(Path(PYTHON).parent / "litellm")
        command = [program, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(self.port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env=environment(self.folder)
            )
        until = time.monotonic() + PATIENCE
        while not self._is_alive():
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < until, self.log.read_text()[-4000:]
            time.sleep(0.3)

    def stop(self) -> None:
        """Stop it."""
        self.client.close()
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def ask(
        self, model: str = "chat", *, region: str | None = None, key: str = MASTER_KEY, stream: bool = False
    ) -> str:
        """Return the deployment that served a request, or its error."""
        body = {"model": model, "messages": [{"role": "user", "content": "[0123456789ab] Hi"}], "max_tokens": 3}
        headers = {"authorization": f"Bearer {key}"} | ({REGION_HEADER: region} if region else {})
        response = self.client.post(
            f"http://127.0.0.1:{self.port}/v1/chat/completions", json=body | {"stream": stream}, headers=headers
        )
        if response.status_code != httpx.codes.OK or "error" in response.text:
            return f"error: {response.status_code} {response.text}"
        return response.headers["x-litellm-model-id"]

    def metrics(self) -> str:
        """Its metrics."""
        headers = {"authorization": f"Bearer {MASTER_KEY}"}
        return self.client.get(f"http://127.0.0.1:{self.port}/metrics/", headers=headers).text

    def _is_alive(self) -> bool:
        try:
            return self.client.get(f"http://127.0.0.1:{self.port}/health/liveliness").is_success
        except httpx.TransportError:
            return False


@dataclass(slots=True)
class RouterProgram:
    """A program with the SDK's `Router`, or with several of other settings."""

    config: Mapping[str, Any]
    folder: Path
    process: "subprocess.Popen[str] | None" = None

    @property
    def log(self) -> Path:
        """What it reports."""
        return self.folder / "router.log"

    def start(self) -> None:
        """Start it."""
        (self.folder / "router.json").write_text(json.dumps(self.config))
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [PYTHON, "-P", str(_PROGRAM), str(self.folder / "router.json")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(self.folder),
            )

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            with self.process:
                self.process.terminate()

    def ask(self, model: str = "chat", *, region: str | None = None, router: str = "retries") -> str:
        """Return the deployment that served a request, or its error."""
        return self._command({"model": model, "region": region, "router": router})

    def metrics(self) -> str:
        """Its metrics."""
        return self._command("metrics")

    def _command(self, command: object) -> str:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.log.read_text()[-4000:]
        return str(json.loads(line))


@dataclass(slots=True)
class Tables:
    """The tables of both regions, from a table server."""

    server: TableServer = field(default_factory=lambda: TableServer(by_region=True))
    generation: int = 0
    stale_at: int = 0

    def publish(
        self,
        *targets: str,
        region: str = REGION,
        route: str = "chat",
        weights: tuple[float, ...] = (1.0,),
        seconds: float = 600,
        static_order: tuple[str, ...] = (),
    ) -> None:
        """Publish the next table; the first targets have the weights."""
        self.generation += 1
        self.stale_at = now_at() + round(seconds * SECOND_US)
        shares = [*weights, *[0.0] * (len(targets) - len(weights))]
        entries = tuple(
            RouteEntry(
                rank=rank,
                weight=share,
                target=target,
                provider="sim",
                model=target.replace("sim/", "fault-"),
                dialect="openai-chat",
                base_url="http://provider.example/v1",
            )
            for rank, (target, share) in enumerate(zip(targets, shares, strict=True), start=1)
        )
        self.server.publish(
            replace(
                CHAT,
                client_region=region,
                route=route,
                generation=self.generation,
                etag=f"{self.generation}-e",
                built_at=now_at(),
                fresh_until_at=self.stale_at,
                stale_until_at=self.stale_at,
                entries=entries,
                static_order=static_order or targets,
            )
        )


def deployment(group: str, name: str | None, model: str, url: str, **more: Any) -> dict[str, Any]:
    """A deployment of a model group, whose provider is the simulator's model for a fault."""
    parameters = {"model": f"openai/fault-{model}", "api_base": url, "api_key": "none", **more}
    return {"model_name": group, "litellm_params": parameters} | ({"model_info": {"id": name}} if name else {})


def plugin_settings(tables: Tables, folder: Path) -> dict[str, Any]:
    """The settings of the callback that follows the tables."""
    return {
        "url": tables.server.url,
        "default_region": REGION,
        "regions": [OTHER_REGION],
        "cache_folder": str(folder / "cache"),
    }


def proxy(models: list[dict[str, Any]], settings: dict[str, Any], folder: Path) -> Proxy:
    """A proxy as docs/litellm.md configures it."""
    (folder / "authentication.py").write_text(AUTHENTICATION)
    config = {
        "model_list": models,
        "litellm_settings": {"callbacks": ["prometheus", "isochrone.litellm.plugin"]},
        "callback_settings": {"isochrone": settings},
        "router_settings": {"enable_weighted_failover": True},
        "general_settings": {"master_key": MASTER_KEY, "custom_auth": "authentication.by_key"},
    }
    return Proxy(config, folder)
