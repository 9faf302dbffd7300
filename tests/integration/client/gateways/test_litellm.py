"""The export for LiteLLM, run by LiteLLM's router: it is accepted, splits by weight and fails over."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from isochrone_client.gateways import renderer
from isochrone_wire.routes import RegionTables
from testdata.routes import CHAT, NOW_AT

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
config = yaml.safe_load(open(sys.argv[1]))
for model in config["model_list"]:
    key = model["litellm_params"]["api_key"]
    if key.startswith("os.environ/"):
        model["litellm_params"]["api_key"] = os.environ[key.removeprefix("os.environ/")]
router = Router(model_list=config["model_list"], **config["router_settings"])
message = [{"role": "user", "content": "Hello"}]
print(json.dumps([router.completion(model="chat", messages=message).model for _ in range(int(sys.argv[2]))]))
"""


@dataclass(slots=True)
class Providers:
    """The APIs of all members on one port: each answers with the requested model, except the dead one."""

    dead: str = ""
    port: int = 0
    keys: dict[str, str | None] = field(default_factory=dict)


@pytest.fixture
def providers() -> Iterator[Providers]:
    """The APIs on loopback."""
    providers = Providers()

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
    yield providers
    server.shutdown()
    server.server_close()


def asked(providers: Providers, folder: Path, times: int) -> Counter[str]:
    """Count the models that answered `times` requests for the route."""
    base_url = f"http://127.0.0.1:{providers.port}/v1"
    table = replace(CHAT, entries=tuple(replace(entry, base_url=base_url) for entry in CHAT.entries))
    tables = RegionTables(client_region="us-east-2", generation=48, etag="e", answered_at=NOW_AT, tables=(table,))
    config = folder / "litellm.yaml"
    config.write_text(renderer("litellm")(tables)[""])
    done = subprocess.run(
        [str(PYTHON), "-c", _ASKING, str(config), str(times)],
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DEEPSEEK_API_KEY": "d", "QWEN_API_KEY": "q"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def test_traffic_is_split_by_the_weights(providers: Providers, tmp_path: Path) -> None:
    """Of 80 requests about three in four go to the first member, the others to the second, each with its key."""
    served = asked(providers, tmp_path, 80)
    assert set(served) == {"deepseek-v4-flash", "qwen3-32b"}
    assert 42 <= served["deepseek-v4-flash"] <= 75
    assert providers.keys == {"deepseek-v4-flash": "Bearer d", "qwen3-32b": "Bearer q"}


def test_requests_survive_a_dead_first_choice(providers: Providers, tmp_path: Path) -> None:
    """If the first choice fails, ten of ten requests are served by other members."""
    providers.dead = "deepseek-v4-flash"
    served = asked(providers, tmp_path, 10)
    assert served.total() == 10
    assert "deepseek-v4-flash" not in served
