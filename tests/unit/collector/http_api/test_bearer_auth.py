"""Requests over HTTP without TLS have to name this machine: a page of another site cannot read through a browser."""

from collections.abc import Collection
from typing import cast

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.http_api.bearer_auth import BearerAuth, session_token
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.trusted_proxy import TrustedProxy
from isochrone_wire.workloads import MAX_NAME_CHARS


async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


HOSTS = frozenset({"localhost", "::1"})


async def answer_to(
    path: str,
    host: str,
    *,
    required: bool,
    hosts: Collection[str] | None = HOSTS,
    is_exposed: bool = False,
    proxy: TrustedProxy | None = None,
) -> httpx.Response:
    authenticator = Authenticator(database=cast("Database", None), clock=lambda: 0, required=required, proxy=proxy)
    transport = httpx.ASGITransport(
        BearerAuth(app, authenticator, hosts=hosts, is_public=lambda path: path == "/", is_exposed=is_exposed)
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://collector") as client:
        return await client.get(path, headers={"Host": host})


@pytest.mark.parametrize(
    ("host", "path", "status"),
    [
        ("localhost:4680", "/v1/routes", 204),
        ("LOCALHOST", "/v1/routes", 204),
        ("[::1]:4680", "/v1/routes", 204),
        ("evil.example:4680", "/v1/routes", 400),
        ("localhost.evil.example", "/v1/routes", 400),
        ("localhost:80:80", "/v1/routes", 400),
        ("http://localhost", "/v1/routes", 400),
        ("", "/v1/routes", 400),
        ("evil.example", "/", 400),
        ("evil.example", "/healthz", 204),
    ],
)
async def test_a_foreign_host_is_refused(host: str, path: str, status: int) -> None:
    """The port does not count, and health checks come under any name. The answer is a problem document."""
    answer = await answer_to(path, host, required=False)
    assert answer.status_code == status
    assert status == 204 or answer.json()["type"] == "urn:isochrone:problem:bad-request"


@pytest.mark.parametrize(
    ("host", "path", "hosts", "status"),
    [
        ("localhost", "/v1/routes", HOSTS, 401),
        ("localhost", "/", HOSTS, 204),
        ("localhost", "/metrics", HOSTS, 204),
        ("evil.example", "/metrics", HOSTS, 400),
        ("collector.example", "/metrics", None, 401),
        ("collector.example", "/healthz", None, 204),
    ],
)
async def test_open_paths_need_no_credential(host: str, path: str, hosts: Collection[str] | None, status: int) -> None:
    """The page's files need no credential, nor does Prometheus in plain text, which never leaves this machine."""
    assert (await answer_to(path, host, required=True, hosts=hosts)).status_code == status


async def test_metrics_are_closed_where_others_come_through_a_proxy() -> None:
    """With a public page, and with a proxy that logs users in, loopback is not only this machine."""
    proxy = TrustedProxy(user_header="X-User", secret="0123456789abcdef")
    assert (await answer_to("/metrics", "localhost", required=True, is_exposed=True)).status_code == 401
    assert (await answer_to("/metrics", "localhost", required=True, proxy=proxy)).status_code == 401


async def test_a_refused_method_is_cut_in_the_log() -> None:
    """A method is a word of any length, of a caller without a credential."""
    authenticator = Authenticator(database=cast("Database", None), clock=lambda: 0, required=True)
    transport = httpx.ASGITransport(BearerAuth(app, authenticator, hosts=None, is_public=lambda _path: False))
    with capture_logs() as lines:
        async with httpx.AsyncClient(transport=transport, base_url="http://collector") as client:
            assert (await client.request("X" * 10_000, "/v1/routes")).status_code == 401
    assert [len(line["method"]) for line in lines] == [MAX_NAME_CHARS]


@pytest.mark.parametrize(
    ("cookies", "token"),
    [
        (["isochrone-session=abc-_"], "abc-_"),
        (["other=1; isochrone-session=abc; more=2"], "abc"),
        (["other=1", "isochrone-session=abc"], "abc"),
        (["isochrone-session=abc; isochrone-session=def"], "abc"),
        (["isochrone-session=a=b"], "a=b"),
        (["__Host-isochrone-session=abc"], ""),
        (["isochrone-session"], ""),
        ([";;=;"], ""),
        ([], ""),
    ],
)
def test_a_session_is_in_its_own_cookie(cookies: list[str], token: str) -> None:
    """Other cookies of the same host do not matter; the first of two counts."""
    assert session_token(request_with(cookies)) == token


def test_cookies_are_read_in_linear_time() -> None:
    """Nothing is unquoted: Python takes quadratic time for that, seconds for the largest head."""
    assert session_token(request_with(['isochrone-session="a\\"b"'])) == '"a\\"b"'


def request_with(cookies: list[str]) -> Request:
    headers = [(b"cookie", cookie.encode()) for cookie in cookies]
    return Request({"type": "http", "scheme": "http", "path": "/", "server": ("localhost", 80), "headers": headers})
