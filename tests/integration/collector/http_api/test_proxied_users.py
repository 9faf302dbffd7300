"""Users of a trusted proxy, also behind the nginx of docs/page.md."""

import asyncio
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import Popen

import httpx
import pytest

from fixtures.collector import Collector, StartCollector
from fixtures.web import TIMEOUT_SECONDS, StartWeb
from isochrone_collector.auth import authenticator
from isochrone_collector.http_api import bearer_auth
from isochrone_collector.http_api.queries import ENDPOINTS
from isochrone_collector.trusted_proxy import TrustedProxy
from testdata import reverse_proxy
from testdata.ports import free_port
from testdata.reverse_proxy import COOKIE, SECRET_HEADER, USER_HEADER
from testdata.trust import system_trust
from testdata.waiting import eventually

SECRET = "0123456789abcdef-of-a-test"
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@contextmanager
def proxy_of(collector: Collector, secret: str = SECRET) -> Iterator[str]:
    port = free_port()
    with Popen([sys.executable, reverse_proxy.__file__, collector.http, str(port), secret]) as process:
        try:
            eventually(15, lambda: _answers(f"http://127.0.0.1:{port}/"), "the proxy listens")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, verify=system_trust()).status_code == 403
    except httpx.TransportError:
        return False


def client(url: str, **headers: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60, verify=system_trust())


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "proxy-secret"
    file.write_text(f"{SECRET}\n")
    return file


@pytest.fixture
def collector(start_collector: StartCollector, secret_file: Path) -> Collector:
    options = ["--proxy-user-header", USER_HEADER, "--proxy-secret-file", str(secret_file)]
    return start_collector(more=options, trusting=False)


def test_a_user_of_the_proxy_reads(collector: Collector) -> None:
    """A user of the proxy reads what a reader reads, also streams, as `oidc:USER`, and is logged once."""
    with proxy_of(collector) as url:
        with client(url) as nobody:
            assert nobody.get("/v1/targets").status_code == 403
        with client(url) as ida:
            ida.cookies.set(COOKIE, "ida@example.org")
            assert ida.get("/session").json() == {
                "name": "oidc:ida@example.org",
                "reads": True,
                "ends": False,
                "public": False,
            }
            for endpoint in ENDPOINTS:
                answer = ida.get(re.sub(r"{\w+}", "x", endpoint.path))
                assert answer.status_code not in (401, 403), (endpoint.path, answer.text)
            assert ida.get("/metrics").status_code == 200
            with ida.stream("GET", "/v1/changes") as stream:
                assert stream.status_code == 200
                assert next(line for line in stream.iter_lines() if line.startswith("data: "))
    lines = [line for line in collector.log().splitlines() if "reader.proxied" in line]
    assert len(lines) == 1
    assert "oidc:ida@example.org" in lines[0]
    assert SECRET not in collector.log()


def test_a_user_of_the_proxy_only_reads(collector: Collector) -> None:
    """Other methods need a credential, and the user cannot become another one with headers of its own."""
    with proxy_of(collector) as url, client(url, **{USER_HEADER: "root", SECRET_HEADER: SECRET}) as ida:
        ida.cookies.set(COOKIE, "ida")
        assert ida.get("/session").json()["name"] == "oidc:ida"
        assert ida.post("/v3/discovery:clusters", json={"node": {"locality": {"region": "us"}}}).status_code == 401
        assert ida.post("/session", data={"credential": "isochrone-key-wrong"}, headers=SAME_ORIGIN).status_code == 401
        assert ida.put("/v1/targets").status_code == 401


def test_who_reaches_the_port_cannot_forge_a_user(collector: Collector) -> None:
    """Without the secret, or without the chosen header, a request has no user, whatever else it has."""
    for headers in (
        {USER_HEADER: "ida"},
        {USER_HEADER: "ida", SECRET_HEADER: "0123456789abcdef-of-another"},
        {USER_HEADER: "ida", SECRET_HEADER: ""},
        {USER_HEADER: "ida", "X-Forwarded-For": "127.0.0.1"},
        {"X-Forwarded-Email": "ida@example.org", SECRET_HEADER: SECRET},
        {SECRET_HEADER: SECRET},
    ):
        with client(collector.http, **headers) as direct:
            assert direct.get("/v1/targets").status_code == 401, headers
            assert direct.get("/metrics").status_code == 401, headers
            assert direct.get("/session").json()["name"] is None, headers


def test_a_proxy_at_another_address_is_not_trusted(start_collector: StartCollector, secret_file: Path) -> None:
    """With an address both count: the secret alone, from this machine, is not enough."""
    proof = ["--proxy-secret-file", str(secret_file), "--proxy-address", "192.0.2.7"]
    collector = start_collector(more=["--proxy-user-header", USER_HEADER, *proof], trusting=False)
    with proxy_of(collector) as url, client(url) as ida:
        ida.cookies.set(COOKIE, "ida")
        assert ida.get("/v1/targets").status_code == 401


async def test_a_stream_is_opened_again(start_web: StartWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector sees no logout at the proxy, so it ends streams after a while."""
    monkeypatch.setattr(authenticator, "RECHECK_S", 0.05)
    monkeypatch.setattr(bearer_auth, "PROXIED_STREAM_S", 0.2)
    web = await start_web(required=True)
    web.sources.authenticator.proxy = TrustedProxy(user_header=USER_HEADER, secret=SECRET)
    web.client.headers.update({USER_HEADER: "ida", SECRET_HEADER: SECRET})
    for _ in range(2):
        async with asyncio.timeout(TIMEOUT_SECONDS), web.client.stream("GET", "/v1/changes") as stream:
            assert stream.status_code == 200
            assert any([line.startswith("data: ") async for line in stream.aiter_lines()])


PAGE = Path(__file__).parents[4] / "docs" / "page.md"
LOGIN_COOKIE = "_oauth2_proxy"


class Login(BaseHTTPRequestHandler):
    """The answers of oauth2-proxy: the cookie's value is the user."""

    def do_GET(self) -> None:
        user = re.search(rf"{LOGIN_COOKIE}=([^;]+)", self.headers.get("Cookie", ""))
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
    program = shutil.which("nginx")
    if program is None:
        pytest.skip("nginx is not installed (Debian package: nginx)")
    log = folder / "error.log"
    with subprocess.Popen([program, "-p", folder, "-c", main, "-e", log]) as process:
        try:
            eventually(10, lambda: process.poll() is None and _listens(url), "nginx listens")
            yield
        finally:
            process.terminate()
            process.wait(30)


def _listens(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, verify=system_trust()).status_code > 0
    except httpx.TransportError:
        return False


def test_the_example_works(start_collector: StartCollector, tmp_path: Path) -> None:
    """A user reads as `oidc:USER`, also streams; others see the public page only, without headers of the client."""
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
            http.cookies.set(LOGIN_COOKIE, "ida@example.org")
            assert http.get("/session", headers=forged).json()["name"] == "oidc:ida@example.org"
            assert http.get("/", headers=forged).status_code == 200
            assert http.get("/v1/targets", headers=forged).status_code == 200
            assert http.get("/metrics").status_code == 404
            with http.stream("GET", "/v1/changes") as stream:
                assert next(line for line in stream.iter_lines() if line.startswith("data: "))
