"""The export for LiteLLM, run by LiteLLM's router: it is accepted, splits by weight and fails over."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from isochrone_client.gateways import gateway
from isochrone_wire.routes import RegionTables
from testdata.insights import NOW_AT
from testdata.routes import CHAT

PYTHON = os.environ.get("ISOCHRONE_TEST_LITELLM_PYTHON") or (
    sys.executable if importlib.util.find_spec("litellm") else None
)
pytestmark = pytest.mark.skipif(
    PYTHON is None,
    reason="LiteLLM is not installed: pip install litellm into a virtualenv of its own, "
    "and say where its python is with ISOCHRONE_TEST_LITELLM_PYTHON",
)
# LiteLLM resolves `os.environ/NAME` in its proxy, not in the router.
_ASKING = """
import json, logging, os, sys, yaml
logging.disable(logging.CRITICAL)
from litellm import Router
def ask(path, times):
    config = yaml.safe_load(open(path))
    for model in config["model_list"]:
        key = model["litellm_params"]["api_key"]
        if key.startswith("os.environ/"):
            model["litellm_params"]["api_key"] = os.environ[key.removeprefix("os.environ/")]
    router = Router(model_list=config["model_list"], **config["router_settings"])
    message = [{"role": "user", "content": "Hello"}]
    return [router.completion(model="chat", messages=message).model for _ in range(int(times))]
print(json.dumps([ask(*one) for one in zip(sys.argv[1::2], sys.argv[2::2])]))
"""
FIRST, SECOND = "deepseek-v4-flash", "qwen3-32b"


@dataclass(slots=True)
class Providers:
    """The APIs of all members on one port: each answers with the requested model, except the dead one. `requests` are
    as many as are sent, and `served` counts those that each model answered.
    """

    requests: int
    dead: str = ""
    port: int = 0
    keys: dict[str, str | None] = field(default_factory=dict)
    served: Counter[str] = field(default_factory=Counter)


@contextmanager
def running(providers: Providers) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            model = json.loads(self.rfile.read(int(self.headers["content-length"])))["model"]
            providers.keys[model] = self.headers.get("authorization")
            choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
            answer = {"id": "1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
            body = json.dumps(answer).encode()
            self.send_response(500 if model == providers.dead else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    providers.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def write_config(providers: Providers, config: Path) -> None:
    """Write the export for a route whose members these are."""
    base_url = f"http://127.0.0.1:{providers.port}/v1"
    table = replace(CHAT, entries=tuple(replace(entry, base_url=base_url) for entry in CHAT.entries))
    tables = RegionTables(client_region="us-east-2", generation=48, etag="e", answered_at=NOW_AT, tables=(table,))
    config.write_text(gateway("litellm").render(tables)[""])


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Providers, Providers]:
    """Providers that are well, and some with a dead first choice, after their requests; LiteLLM is imported once."""
    folder = tmp_path_factory.mktemp("litellm")
    well, ill = Providers(requests=80), Providers(requests=10, dead=FIRST)
    with running(well), running(ill):
        words: list[str] = []
        for place, providers in enumerate((well, ill)):
            config = folder / f"{place}.yaml"
            write_config(providers, config)
            words += [str(config), str(providers.requests)]
        done = subprocess.run(
            [str(PYTHON), "-c", _ASKING, *words],
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DEEPSEEK_API_KEY": "d", "QWEN_API_KEY": "q"},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
    assert done.returncode == 0, done.stderr
    well.served, ill.served = map(Counter, json.loads(done.stdout.splitlines()[-1]))
    return well, ill


def test_traffic_is_split_by_the_weights(asked: tuple[Providers, Providers]) -> None:
    """Traffic is split by the weights, each with its key; if the first choice fails, others serve all requests."""
    well, _ = asked
    assert set(well.served) == {FIRST, SECOND}
    assert 42 <= well.served[FIRST] <= 75
    assert well.keys == {FIRST: "Bearer d", SECOND: "Bearer q"}
    _, ill = asked
    assert ill.served.total() == 10
    assert FIRST not in ill.served
