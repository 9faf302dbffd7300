"""Users of a trusted proxy, also behind the Apache of docs/page.md."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
from testdata.oidc_provider import CLIENT_SECRET, provider
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
MODULES = Path("/usr/lib/apache2/modules")
LOADED = ("mpm_event", "authn_core", "authz_core", "authz_user", "proxy", "proxy_http", "headers", "auth_openidc")
SECRETS = {"PROXY_SECRET": SECRET, "CLIENT_SECRET": CLIENT_SECRET, "PASSPHRASE": "passphrase-of-a-test"}


def configuration(folder: Path, *, port: int, issuer: str, collector: str) -> Path:
    """Write the files of the example, with the addresses of the test, without TLS and folders of the system."""
    site, public = re.findall(r"^```apache\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    site = re.sub(r"^ *SSL.*\n", "", site.replace("</VirtualHost>", f"{public}</VirtualHost>"), flags=re.MULTILINE)
    secrets = folder / "secrets.conf"
    changes = {
        "/etc/apache2/isochrone-secrets.conf": str(secrets),
        "*:443": f"127.0.0.1:{port}",
        "https://login.example": issuer,
        "https://isochrone.example": f"http://127.0.0.1:{port}",
        "127.0.0.1:4680": collector,
    }
    for old, new in changes.items():
        assert old in site
        site = site.replace(old, new)
    secrets.write_text("".join(f'Define {name} "{value}"\n' for name, value in SECRETS.items()))
    files = f"ServerRoot {folder}\nPidFile {folder}/pid\nErrorLog {folder}/error.log\nMutex file:{folder}\n"
    user = "User www-data\nGroup www-data\n" if os.geteuid() == 0 else ""
    modules = "".join(f"LoadModule {name}_module {MODULES}/mod_{name}.so\n" for name in LOADED)
    main = folder / "apache.conf"
    main.write_text(f"{files}{user}ServerName 127.0.0.1\nListen 127.0.0.1:{port}\n{modules}{site}")
    return main


@contextmanager
def apache(main: Path, url: str) -> Iterator[None]:
    program = shutil.which("apache2", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None or not (MODULES / "mod_auth_openidc.so").exists():
        pytest.skip("mod_auth_openidc is not installed (Debian package: libapache2-mod-auth-openidc)")
    with Popen([program, "-D", "FOREGROUND", "-f", main]) as process:
        try:
            eventually(10, lambda: process.poll() is None and _listens(url), "Apache listens")
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
    """A user logs in at the provider and reads as `oidc:USER`, also streams; others see the public page only."""
    secret, port = tmp_path / "secret", free_port()
    secret.write_text(SECRET)
    options = ["--proxy-user-header", "X-Forwarded-User", "--proxy-secret-file", str(secret), "--public-page"]
    collector = start_collector(more=options, trusting=False)
    url = f"http://127.0.0.1:{port}"
    forged = {USER_HEADER: "root", SECRET_HEADER: SECRET, "Authorization": "Basic cm9vdDo="}
    with provider() as login:
        main = configuration(tmp_path, port=port, issuer=login.issuer, collector=collector.http_address)
        with apache(main, url), client(url) as http:
            assert http.get("/").headers["location"].startswith(f"{login.issuer}/authorization?")
            assert http.get("/v1/targets", headers=forged).status_code == 401
            assert http.get("/v1/status").status_code == 200
            assert http.get("/session").json()["name"] is None
            with client(url) as other:
                login.email = "eve@other.example"
                assert other.get("/", follow_redirects=True).status_code == 401
                assert other.get("/session").json()["name"] is None
            login.email = "ida@example.org"
            answer = http.get("/?metric=speed", follow_redirects=True)
            assert (answer.status_code, str(answer.url)) == (200, f"{url}/?metric=speed")
            assert http.get("/session", headers=forged).json()["name"] == "oidc:ida@example.org"
            assert http.get("/v1/targets", headers=forged).status_code == 200
            assert http.get("/metrics").status_code == 403
            with http.stream("GET", "/v1/changes") as stream:
                assert next(line for line in stream.iter_lines() if line.startswith("data: "))
