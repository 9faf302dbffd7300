"""Users of a reverse proxy, which is a real process: only its requests have a user."""

import asyncio
import re
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
from testdata.ports import free_port
from testdata.reverse_proxy import COOKIE, SECRET_HEADER, USER_HEADER
from testdata.waiting import eventually

SECRET = "0123456789abcdef-of-a-test"
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@contextmanager
def proxy_of(collector: Collector, secret: str = SECRET) -> Iterator[str]:
    """Run a proxy of a collector; yields its URL."""
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
        return httpx.get(url, trust_env=False).status_code == 403
    except httpx.TransportError:
        return False


def client(url: str, **headers: str) -> httpx.Client:
    """Return a client of a URL."""
    return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60)


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    """The file of the secret."""
    file = tmp_path / "proxy-secret"
    file.write_text(f"{SECRET}\n")
    return file


@pytest.fixture
def collector(start_collector: StartCollector, secret_file: Path) -> Collector:
    """A collector that trusts the proxy with the secret."""
    options = ["--proxy-user-header", USER_HEADER, "--proxy-secret-file", str(secret_file)]
    return start_collector(more=options, trusting=False)


def test_a_user_of_the_proxy_reads(collector: Collector) -> None:
    """A user of the proxy reads all that a reader reads, also streams, as `oidc:USER`, and is logged once. Requests
    without a login do not reach the collector.
    """
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


@pytest.mark.parametrize(
    "headers",
    [
        {USER_HEADER: "ida"},
        {USER_HEADER: "ida", SECRET_HEADER: "0123456789abcdef-of-another"},
        {USER_HEADER: "ida", SECRET_HEADER: ""},
        {USER_HEADER: "ida", "X-Forwarded-For": "127.0.0.1"},
        {"X-Forwarded-Email": "ida@example.org", SECRET_HEADER: SECRET},
        {SECRET_HEADER: SECRET},
    ],
)
def test_who_reaches_the_port_cannot_forge_a_user(collector: Collector, headers: dict[str, str]) -> None:
    """Without the secret, or without the chosen header, a request has no user, whatever else it has."""
    with client(collector.http, **headers) as direct:
        assert direct.get("/v1/targets").status_code == 401
        assert direct.get("/metrics").status_code == 401
        assert direct.get("/session").json()["name"] is None


def test_another_proxy_is_not_trusted(collector: Collector) -> None:
    """A proxy with another secret forwards in vain."""
    with proxy_of(collector, "fedcba9876543210-of-another") as url, client(url) as ida:
        ida.cookies.set(COOKIE, "ida")
        assert ida.get("/v1/targets").status_code == 401


def test_a_proxy_at_another_address_is_not_trusted(start_collector: StartCollector, secret_file: Path) -> None:
    """With an address both count: the secret alone, from this machine, is not enough."""
    proof = ["--proxy-secret-file", str(secret_file), "--proxy-address", "192.0.2.7"]
    collector = start_collector(more=["--proxy-user-header", USER_HEADER, *proof], trusting=False)
    with proxy_of(collector) as url, client(url) as ida:
        ida.cookies.set(COOKIE, "ida")
        assert ida.get("/v1/targets").status_code == 401


def test_it_is_off_by_default(start_collector: StartCollector) -> None:
    """Without the options the headers mean nothing."""
    collector = start_collector(trusting=False)
    with proxy_of(collector) as url, client(url) as ida:
        ida.cookies.set(COOKIE, "ida")
        assert ida.get("/v1/targets").status_code == 401
        assert ida.get("/session").json()["name"] is None


async def test_a_stream_is_opened_again(start_web: StartWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector does not see a logout at the proxy, so it ends streams after a while; opening another one shows
    whether the user is still logged in.
    """
    monkeypatch.setattr(authenticator, "RECHECK_S", 0.05)
    monkeypatch.setattr(bearer_auth, "PROXIED_STREAM_S", 0.2)
    web = await start_web(required=True)
    web.sources.authenticator.proxy = TrustedProxy(user_header=USER_HEADER, secret=SECRET)
    web.client.headers.update({USER_HEADER: "ida", SECRET_HEADER: SECRET})
    for _ in range(2):
        async with asyncio.timeout(TIMEOUT_SECONDS), web.client.stream("GET", "/v1/changes") as stream:
            assert stream.status_code == 200
            assert any([line.startswith("data: ") async for line in stream.aiter_lines()])
