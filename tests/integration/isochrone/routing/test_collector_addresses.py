"""Collectors that are reached as other commands reach them: over a Unix socket, or with a certificate of their own."""

import json
import shutil
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest

from fixtures.gateway import StartGateway
from fixtures.loopback import Handler
from fixtures.routing_client import PATIENCE, REGION, World
from fixtures.simulator import certificate_for
from isochrone.routing import Routes
from isochrone_common.trust import Trust
from isochrone_wire.json_format import to_json_value
from isochrone_wire.routes import RouteTable
from testdata.routes import fresh
from testdata.waiting import BUSY, eventually

LIMIT_S = PATIENCE * BUSY


@contextmanager
def collector(table: RouteTable, make: Any) -> Iterator[tuple[Any, list[str | None]]]:
    """A server that `make` creates, which streams a table; and the credentials of its readers."""
    credentials, ending = list[str | None](), threading.Event()

    class Connection(Handler):
        protocol_version = "HTTP/1.0"
        disable_nagle_algorithm = False  # a Unix socket has none

        def answer(self) -> None:
            credentials.append(self.headers["authorization"])
            self.send_response_only(200)
            self.end_headers()
            self.wfile.write(b"id: 1\ndata: " + json.dumps(to_json_value(table)).encode() + b"\n\n")
            ending.wait(LIMIT_S)

    with make(Connection) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server, credentials
        ending.set()
        server.shutdown()
        thread.join()


def on_socket(path: Path) -> Any:
    class Server(ThreadingUnixStreamServer):
        daemon_threads = True

    return lambda handler: Server(str(path), handler)


def with_tls(folder: Path) -> Any:
    from http.server import ThreadingHTTPServer

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")

    def make(handler: Any) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        return server

    return make


def test_a_collector_on_a_unix_socket(world: World, gateway: StartGateway, tmp_path: Path) -> None:
    """Its tables are followed by a client, and by the gateway of the same user."""
    path = tmp_path / "collector.http.sock"
    table = world.table(world.entry("none", weight=1.0))
    with collector(table, on_socket(path)) as (_, credentials):
        with Routes(f"unix:{path}", REGION, cache_folder=None) as routes:
            assert routes.wait(LIMIT_S)
            eventually(PATIENCE, lambda: routes.table("chat") is not None, "the table")
        running = gateway("--collector", f"unix:{tmp_path / 'collector.sock'}")
        eventually(PATIENCE, lambda: running.get("/readyz").is_success, "the table of the gateway")
        assert running.post().json()["model"] == "fault-none"
        assert set(credentials) == {None}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed (Debian package: openssl)")
def test_a_collector_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    """It is verified under the name in the identity file, and receives the credential; another one receives none."""
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        certificate_for(tmp_path / name, "DNS:isochrone-collector")
    trusts = {
        name: Trust(roots=(tmp_path / name / "certificate.pem").read_text(), server_name="isochrone-collector")
        for name in ("own", "other")
    }
    with collector(fresh(1), with_tls(tmp_path / "own")) as (server, credentials):
        url = f"https://127.0.0.1:{server.server_address[1]}"
        with Routes(url, REGION, token="secret", trust=trusts["own"], cache_folder=None) as routes:
            assert routes.wait(LIMIT_S)
        assert credentials == ["Bearer secret"]
        with Routes(url, REGION, token="secret", trust=trusts["other"], cache_folder=None) as routes:
            eventually(PATIENCE, lambda: not routes.wait(0) and routes.counters["disconnected"] > 0, "the refusal")
        assert credentials == ["Bearer secret"]
