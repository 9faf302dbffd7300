"""The example of docs/page.md in a real nginx: users who are logged in read, all others see the public page only.

The test is skipped where nginx is not installed. In place of oauth2-proxy there is a server that answers as it does.
"""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from fixtures.collector import StartCollector
from testdata.ports import free_port
from testdata.waiting import eventually

PAGE = Path(__file__).parents[4] / "docs" / "page.md"
SECRET = "0123456789abcdef-of-a-test"
COOKIE = "_oauth2_proxy"


class Login(BaseHTTPRequestHandler):
    """The answers of oauth2-proxy: the cookie's value is the user."""

    def do_GET(self) -> None:
        """Answer 202 with the user, or 401; and the page of the login."""
        user = re.search(rf"{COOKIE}=([^;]+)", self.headers.get("Cookie", ""))
        is_check = self.path == "/oauth2/auth"
        self.send_response(200 if not is_check else 202 if user else 401)
        if is_check and user:
            self.send_header("X-Auth-Request-Email", user[1])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_parts: object) -> None:
        """Print nothing."""


@contextmanager
def logins() -> Iterator[int]:
    """Serve logins; yields the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Login) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def configuration(folder: Path, *, port: int, login_port: int, collector: str) -> Path:
    """Write the files of the example, with the ports of the test, without TLS and without a folder of the system."""
    server, included, public = re.findall(r"^```nginx\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    server = server.replace("    location / {", f"{public}\n    location / {{").replace(
        "listen 443 ssl", f"listen {port}"
    )
    server = re.sub(r"^ *ssl_.*\n", "", server, flags=re.MULTILINE)
    inner = folder / "isochrone-collector.inc"
    changes = {
        "127.0.0.1:4180": f"127.0.0.1:{login_port}",
        "127.0.0.1:4680": collector,
        "/etc/nginx/isochrone-collector.inc": str(inner),
        "the line in /etc/isochrone/proxy-secret": SECRET,
    }
    for old, new in changes.items():
        assert old in server + included
        server, included = server.replace(old, new), included.replace(old, new)
    inner.write_text(included)
    paths = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = folder / "nginx.conf"
    main.write_text(f"daemon off; pid {folder}/pid; events {{}} http {{ access_log off; {paths}\n{server}}}\n")
    return main


@contextmanager
def nginx(folder: Path, main: Path, url: str) -> Iterator[None]:
    """Run nginx until the end of the block."""
    program = shutil.which("nginx")
    if program is None:
        pytest.skip("nginx is not installed (Debian package: nginx)")
    log = folder / "error.log"
    with subprocess.Popen([program, "-p", folder, "-c", main, "-e", log]) as process:
        try:
            eventually(10, lambda: process.poll() is None and _answers(url), "nginx listens")
            yield
        finally:
            process.terminate()
            process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code > 0
    except httpx.TransportError:
        return False


def test_the_example_works(start_collector: StartCollector, tmp_path: Path) -> None:
    """A user reads as `oidc:USER`, also streams. Without a login the page leads to that of oauth2-proxy, data is
    refused, the public page is open, and neither headers of the client nor `/metrics` get through.
    """
    secret, port = tmp_path / "secret", free_port()
    secret.write_text(SECRET)
    options = ["--proxy-user-header", "X-Forwarded-User", "--proxy-secret-file", str(secret), "--public-page"]
    collector = start_collector(more=options, trusting=False)
    url = f"http://127.0.0.1:{port}"
    forged = {"X-Forwarded-User": "root", "Authorization": "Basic cm9vdDo="}
    with logins() as login_port:
        address = collector.http.removeprefix("http://")
        main = configuration(tmp_path, port=port, login_port=login_port, collector=address)
        with nginx(tmp_path, main, url), httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
            assert http.get("/").headers["location"].endswith("/oauth2/sign_in?rd=/")
            assert http.get("/v1/targets", headers=forged).status_code == 401
            assert http.get("/v1/status", headers=forged).status_code == 200
            assert http.get("/session", headers=forged).json()["name"] is None
            http.cookies.set(COOKIE, "ida@example.org")
            assert http.get("/session", headers=forged).json()["name"] == "oidc:ida@example.org"
            assert http.get("/", headers=forged).status_code == 200
            assert http.get("/v1/targets", headers=forged).status_code == 200
            assert http.get("/metrics").status_code == 404
            with http.stream("GET", "/v1/changes") as stream:
                assert next(line for line in stream.iter_lines() if line.startswith("data: "))
