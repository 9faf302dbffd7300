"""The live page over HTTP: its files, the sessions of browsers, and notices of new data."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from fixtures.web import TIMEOUT_SECONDS, StartWeb, Web, shares_web
from isochrone_collector.auth import authenticator
from isochrone_collector.auth.authenticator import LIFETIME_US
from isochrone_collector.http_api import queries, streams
from isochrone_collector.publishing.changes import Topic
from isochrone_collector.store import access
from isochrone_collector.store.access import CredentialRow
from isochrone_common.credentials import Credential, hash_secret
from isochrone_wire.json_format import rfc3339
from isochrone_wire.operations import Role
from testdata.routes import NOW_AT

READER = Credential(id=7, secret=bytes(32))
VANTAGE = Credential(id=8, secret=bytes(32))
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def guarded(start_web: StartWeb) -> Web:
    """The interface where credentials are required, with those of a reader and of a vantage."""
    return await guarded_by(await start_web(required=True))


async def guarded_by(web: Web) -> Web:
    """Issue the credentials."""
    async with web.local.database.connection() as connection:
        for credential, role, region in ((READER, Role.READER, None), (VANTAGE, Role.VANTAGE, "us")):
            row = CredentialRow(
                id=credential.id,
                name=f"the {role}",
                role=role,
                region=region,
                secret_hash=hash_secret(credential.secret),
                created_at=NOW_AT,
            )
            await access.issue(connection, row)
    return web


async def log_in(web: Web, credential: object = READER, headers: dict[str, str] | None = None) -> httpx.Response:
    """Return the answer to the form."""
    return await web.client.post(
        "/session", data={"credential": str(credential)}, headers=SAME_ORIGIN if headers is None else headers
    )


@asynccontextmanager
async def notices(web: Web) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Yield the notices of a stream."""
    async with web.client.stream("GET", "/v1/changes") as response:
        assert response.status_code == 200, await response.aread()
        # The events of a compressed stream would wait for each other.
        assert "content-encoding" not in response.headers
        yield (
            json.loads(line.removeprefix("data: "))
            async for line in response.aiter_lines()
            if line.startswith("data: ")
        )


@shares_web
@pytest.mark.parametrize("path", ["/", "/fleet", "/target/a/b%3Cscript%3E"])
async def test_each_view_is_the_document(shared_web: Web, path: str) -> None:
    """The document has the policy, and is compressed for clients that accept it."""
    answer = await shared_web.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "<script>alert" not in answer.text
    plain = await shared_web.get(path, accept_encoding="identity")
    assert (plain.text, plain.headers.get("content-encoding")) == (answer.text, None)


@shares_web
@pytest.mark.parametrize(
    ("path", "window"),
    [("/", "24h"), ("/?window=7d&metric=speed", "7d"), ("/?window=", "24h"), ("/fleet", ""), ("/?from=2026-11-01", ""),
     ("/?window=1h>;rel=x,<", "")],
)  # fmt: skip
async def test_a_browser_asks_the_queries_of_the_matrix_at_once(shared_web: Web, path: str, window: str) -> None:
    """The document names them for windows up to now, and nothing else that is in its address."""
    link = (await shared_web.get(path)).headers.get("link", "")
    assert ("rel=preload" in link) == bool(window)
    query = f"window={window}&quantity=ttft_p50_us&quantity=e2e_p50_us&quantity=tokens_per_second_p50&quantity=success"
    assert not window or link.startswith(f"</v1/leaderboard?{query}>; rel=preload; as=fetch; crossorigin, ")


@shares_web
async def test_an_unchanged_file_is_not_sent_again(shared_web: Web) -> None:
    """A file answers its entity tag with 304; one of another version does not exist."""
    document = await shared_web.get("/")
    assert (await shared_web.get("/", if_none_match=document.headers["etag"])).status_code == 304
    script = next(line for line in document.text.split('"') if line.endswith("main.js"))
    found = await shared_web.get(script)
    assert found.headers["cache-control"].endswith("immutable")
    assert (await shared_web.get(script, if_none_match=found.headers["etag"])).status_code == 304
    assert (await shared_web.get("/page/0123/main.js")).status_code == 404


async def test_the_page_is_open_and_the_data_is_not(guarded: Web) -> None:
    """Without a credential the files are served, and nothing else."""
    statuses = [
        (await guarded.get(path)).status_code for path in ("/", "/fleet", "/session", "/v1/routes", "/v1/changes")
    ]
    assert statuses == [200, 200, 200, 401, 401]
    assert (await guarded.get("/session")).json() == {"name": None, "reads": False, "ends": False, "public": False}


async def test_a_credential_begins_a_session(guarded: Web) -> None:
    """The cookie is for this site and no script, and reads what the credential reads."""
    answer = await log_in(guarded)
    assert (answer.status_code, answer.content) == (204, b"")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "isochrone-key" not in cookie
    assert (await guarded.get("/v1/routes")).status_code == 200
    assert (await guarded.get("/session")).json() == {
        "name": "the reader",
        "reads": True,
        "ends": True,
        "public": False,
    }


async def test_a_session_only_reads(guarded: Web) -> None:
    """Other methods than GET and HEAD take the credential itself."""
    await log_in(guarded)
    answer = await guarded.client.post("/v3/discovery:clusters", json={"node": {"locality": {"region": "us-east-2"}}})
    assert answer.status_code == 401
    wrong = await guarded.get("/v1/routes", authorization="Bearer isochrone-key-wrong")
    assert wrong.status_code == 401


@pytest.mark.parametrize(
    ("credential", "status"),
    [
        ("", 400),
        ("isochrone-key-AAAA", 401),
        (Credential(id=READER.id, secret=b"x" * 32), 401),
        (Credential(id=99, secret=bytes(32)), 401),
        (VANTAGE, 403),
        ("x" * 5000, 413),
    ],
)
async def test_other_credentials_begin_none(guarded: Web, credential: object, status: int) -> None:
    """A wrong credential, one of another role and an oversized form are refused without a cookie or an echo."""
    answer = await log_in(guarded, credential)
    assert answer.status_code == status
    assert "set-cookie" not in answer.headers
    assert not str(credential) or str(credential) not in answer.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "HERE"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "HERE"}, 204),
    ],
)
async def test_other_sites_begin_and_end_none(guarded: Web, headers: dict[str, str], status: int) -> None:
    """Only the collector's own page changes a session."""
    own = {name: value.replace("HERE", f"http://{guarded.address}") for name, value in headers.items()}
    assert (await log_in(guarded, headers=own)).status_code == status
    await log_in(guarded)
    assert (await guarded.client.request("DELETE", "/session", headers=own)).status_code == status
    assert (await guarded.get("/v1/routes")).status_code == (401 if status == 204 else 200)


async def test_a_session_ends_with_its_credential(guarded: Web) -> None:
    """After a revocation the cookie is worth nothing, and a later session neither."""
    await log_in(guarded)
    async with guarded.local.database.connection() as connection:
        await access.revoke_credential(connection, READER.id, revoked_at=NOW_AT)
    await guarded.sources.authenticator.refresh()
    assert (await guarded.get("/v1/routes")).status_code == 401
    assert (await log_in(guarded)).status_code == 401


async def test_a_session_ends_with_its_lifetime(guarded: Web) -> None:
    """A cookie that a browser kept for longer is refused."""
    await log_in(guarded)
    guarded.local.clock.at += LIFETIME_US
    assert (await guarded.get("/v1/routes")).status_code == 401


async def test_a_stream_ends_with_its_session(guarded: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A logout ends the streams of the session within seconds."""
    monkeypatch.setattr(authenticator, "RECHECK_S", 0.05)
    await log_in(guarded)
    async with asyncio.timeout(TIMEOUT_SECONDS), notices(guarded) as stream:
        await anext(stream)
        cookies = dict(guarded.client.cookies)
        await guarded.client.request("DELETE", "/session", headers=SAME_ORIGIN)
        assert cookies
        assert [notice async for notice in stream] == []


async def test_notices_say_what_is_new(web: Web) -> None:
    """A stream begins with a heartbeat; then each notice has its topics, the instant and the newest generation."""
    async with asyncio.timeout(TIMEOUT_SECONDS), notices(web) as stream:
        same = {"sent_at": rfc3339(NOW_AT), "refresh_us": 1_000_000, "generation": 48, "stale_since_at": None}
        assert await anext(stream) == {"topics": [], **same}
        web.sources.changes.add(Topic.SAMPLES)
        web.sources.changes.add(Topic.ALERTS)
        assert await anext(stream) == {"topics": ["samples", "alerts"], **same}
        web.sources.changes.close()
        assert [notice async for notice in stream] == []


async def test_streams_of_one_caller_are_limited(start_web: StartWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further stream is refused with 503."""
    monkeypatch.setattr(streams, "MAX_PAGES", 1)
    web = await guarded_by(await start_web(required=True))
    await log_in(web)
    async with asyncio.timeout(TIMEOUT_SECONDS), notices(web) as stream:
        await anext(stream)
        assert (await web.get("/v1/changes")).status_code == 503


@shares_web
async def test_pages_share_answers(shared_web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that accepts an answer of some age may get that of another one, with its age; others never do."""
    monkeypatch.setattr(queries, "MIN_SHARED_S", 1000.0)
    path = "/v1/leaderboard?window=3h"
    first = await shared_web.get(path, cache_control="max-age=1000")
    second = await shared_web.get(path, cache_control="max-age=1000")
    assert "age" not in first.headers
    assert int(second.headers["age"]) >= 1
    assert second.json()["window"] == first.json()["window"]
    assert "age" not in (await shared_web.get(path)).headers
