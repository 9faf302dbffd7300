"""The page: its files, its sessions, and what the public may read."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import httpx
import pytest

from fixtures.collector import Caller, Collector, StartCollector
from fixtures.web import TIMEOUT_SECONDS, StartWeb, Web, shares_web
from isochrone_collector.auth import authenticator, limits
from isochrone_collector.auth.authenticator import LIFETIME_US
from isochrone_collector.clock import now_at
from isochrone_collector.http_api import page, queries, streams
from isochrone_collector.publishing.changes import Topic
from isochrone_collector.store import access
from isochrone_collector.store.access import CredentialRow
from isochrone_common import identity_file
from isochrone_common.credentials import Credential, hash_secret
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import MINUTE_US, Vantage
from isochrone_wire.operations import Role
from testdata.insights import NOW_AT
from testdata.pushed_rounds import FIRST, PLAN, SECOND, SG, THIRD, US, Fleet, rounds_until
from testdata.waiting import eventually

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


async def link(web: Web, credential: object = READER) -> httpx.Response:
    headers = {"Authorization": f"Bearer {credential}"} if credential else {}
    return await web.client.post("/session/link", headers=headers)


async def follow(web: Web, token: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return await web.client.post("/session", data={"link": token}, headers=SAME_ORIGIN if headers is None else headers)


async def test_a_link_begins_one_session(guarded: Web) -> None:
    """Its token reads nothing itself, is kept by no cache, begins one session within a minute, and is used then."""
    answer = await link(guarded)
    token = answer.json()["token"]
    assert (answer.headers["cache-control"], "set-cookie" in answer.headers) == ("no-store", False)
    assert (await guarded.get("/v1/routes", authorization=f"Bearer {token}")).status_code == 401
    assert (await guarded.get("/v1/routes", cookie=f"isochrone-session={token}")).status_code == 401
    assert (await follow(guarded, token, headers={"Sec-Fetch-Site": "cross-site"})).status_code == 403
    assert (await follow(guarded, token)).status_code == 204
    assert (await guarded.get("/session")).json()["name"] == "the reader"
    again = await follow(guarded, token)
    assert (again.status_code, token in again.text) == (401, False)
    old = (await link(guarded)).json()["token"]
    guarded.local.clock.at += authenticator.LINK_LIFETIME_US
    assert (await follow(guarded, old)).status_code == 401


async def test_a_link_needs_a_credential(guarded: Web, start_web: StartWeb) -> None:
    """Neither a session nor another role gets one; where no credential is required, none is needed."""
    await log_in(guarded)
    assert [(await link(guarded, of)).status_code for of in ("", VANTAGE, "isochrone-key-AAAA")] == [401, 403, 401]
    assert (await link(await start_web(), "")).json() == {"token": ""}


async def test_a_link_of_a_revoked_credential_reads_nothing(guarded: Web) -> None:
    """The session that it begins is that of the credential."""
    token = (await link(guarded)).json()["token"]
    async with guarded.local.database.connection() as connection:
        await access.revoke_credential(connection, READER.id, revoked_at=NOW_AT)
    await guarded.sources.authenticator.refresh()
    await follow(guarded, token)
    assert (await guarded.get("/v1/routes")).status_code == 401


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
    """A cookie is worth nothing after a revocation of its credential, or when it was kept for longer."""
    await log_in(guarded)
    async with guarded.local.database.connection() as connection:
        await access.revoke_credential(connection, READER.id, revoked_at=NOW_AT)
    await guarded.sources.authenticator.refresh()
    assert (await guarded.get("/v1/routes")).status_code == 401
    assert (await log_in(guarded)).status_code == 401
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


ROUNDS = 40
NAME = "{http://www.w3.org/2000/svg}"
# Paths that need no credential in any collector.
OPEN = {"/healthz", "/readyz"}


@dataclass(frozen=True, slots=True)
class Public:
    """A collector with a public page, in plain text on loopback, and a client without a credential."""

    collector: Collector
    http: httpx.Client

    @property
    def operator(self) -> dict[str, str]:
        found = identity_file.read(self.collector.data_dir / "operator.json")
        return {"Authorization": f"Bearer {found.credential}"}

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get("/v1/status").raise_for_status().json()
        return found


def latency(target: str, region: str) -> int | None:
    return None if (target, region) == (THIRD, SG) else 200_000


def push(collector: Collector) -> None:
    """Push the rounds of the last minutes over the collector's socket."""
    assert collector.call.apply(PLAN).problems == ()
    agents = Caller(f"unix:{collector.data_dir}/collector.sock")
    try:
        fleet = Fleet({target.name: target.id for target in agents.targets().targets})
        fleet.push_rounds(agents, rounds_until(now_at() // MINUTE_US * MINUTE_US, ROUNDS), latency)
    finally:
        agents.close()


@pytest.fixture(scope="module")
def public(shared_public_collector: Collector) -> Iterator[Public]:
    """A public page with rounds of three targets from two regions, of which one fails."""
    collector = shared_public_collector
    push(collector)
    with httpx.Client(base_url=collector.http, trust_env=False, timeout=60) as http:
        yield Public(collector, http)


def state_of(found: dict[str, Any], target: str, region: str) -> str:
    (state,) = [row["state"] for row in found["states"] if (row["target"], row["region"]) == (target, region)]
    return str(state)


def test_the_public_sees_the_status(public: Public) -> None:
    """Each target has its state, success and median per region; nothing else of plan, vantages and errors shows."""
    eventually(30, lambda: state_of(public.status(), THIRD, SG) == "failing", "the incident is shown")
    found = public.status()
    assert found["schema"] == "isochrone.status/1"
    assert {(row["target"], row["region"]) for row in found["states"]} == {
        (target, region) for target in (FIRST, SECOND, THIRD) for region in (US, SG)
    }
    assert state_of(found, FIRST, US) == "ok"
    first = found["states"][0]
    assert set(first) == {
        "target",
        "provider",
        "region",
        "state",
        "success",
        "ttft_p50_us",
        "newest_at",
        "is_early",
    }
    assert first["ttft_p50_us"] == pytest.approx(200_000, rel=0.1)
    (finding,) = found["rows"]
    assert {name: finding[name] for name in ("target", "kind", "regions")} == {
        "target": THIRD,
        "kind": "target_failing",
        "regions": [SG],
    }
    assert found["verdict"] == "critical"
    text = json.dumps(found)
    assert [word for word in ("us-1", "sg-1", "http://", "overloaded", "usd", "version") if word in text] == []


def test_the_status_is_compressed(public: Public) -> None:
    """It is compressed for clients that accept it, and shared caches learn of that, also with 304."""
    packed, plain = (public.http.get("/v1/status", headers={"Accept-Encoding": coding}) for coding in ("gzip", "br"))
    assert [one.headers.get("content-encoding") for one in (packed, plain)] == ["gzip", None]
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    known = public.http.get("/v1/status", headers={"If-None-Match": "*"})
    assert [one.headers["vary"] for one in (packed, plain, known)] == ["Accept-Encoding"] * 3
    assert known.status_code == 304


def test_every_other_path_needs_a_credential(public: Public) -> None:
    """The allow list is the status and its badges: all other paths answer 401 without a credential."""
    document = public.http.get("/v1/openapi.json", headers=public.operator).raise_for_status().json()
    tried = 0
    for path, methods in document["paths"].items():
        for method in methods:
            url = re.sub(r"{\w+}", "x", path)
            answer = public.http.request(method, url)
            if path in OPEN | {"/v1/status"}:
                assert answer.status_code == 200, path
                continue
            assert answer.status_code == 401, (method, path)
            assert answer.json()["type"] == "urn:isochrone:problem:unauthenticated"
            tried += 1
    assert tried > 20
    assert public.http.get("/metrics", headers=public.operator).status_code == 200
    assert (page.STATUS[0].path, page.BADGE) == ("/v1/status", "/badge/{target:path}/{region}.svg")
    for path in ("/v1/status/", "/v1/status/x", "/v1/statusx", "/badge/x", "/badge/a/b.svg/c", "/v1/../v1/targets"):
        assert public.http.get(path).status_code == 401, path


def test_badges(public: Public) -> None:
    """A badge shows what the status does, to all; browsers may keep it, and ask whether it has changed."""
    for metric, value in (("", "ok"), ("?metric=ttft", "ms"), ("?metric=success", "100.0 %")):
        answer = public.http.get(f"/badge/{FIRST}/{US}.svg{metric}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
        assert value in (ET.fromstring(answer.content).findtext(f"{NAME}title") or "")
        assert answer.headers["cache-control"] == "public, max-age=10"
        assert answer.headers["content-security-policy"] == "default-src 'none'"
    again = public.http.get(f"/badge/{FIRST}/{US}.svg", headers={"If-None-Match": "*"})
    assert (again.status_code, again.content) == (304, b"")
    assert public.http.get(f"/badge/{FIRST}/{US}.svg?metric=usd").status_code == 400


@pytest.mark.parametrize("path", [f"{FIRST}/nowhere", f"nothing/{US}", "%3Cscript%3E/%22%3E"])
def test_an_unknown_badge_is_neutral(public: Public, path: str) -> None:
    """It is an image with 404 that repeats nothing of the address."""
    answer = public.http.get(f"/badge/{path}.svg")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "image/svg+xml")
    assert "unknown" in (ET.fromstring(answer.content).findtext(f"{NAME}title") or "")
    assert b"script" not in answer.content
    assert b"nothing" not in answer.content


def test_private_targets_do_not_exist(start_collector: StartCollector) -> None:
    """A private target is in no answer to the public: its badge is that of an unknown target, byte for byte. A reader,
    who may ask for it elsewhere, gets its status, and what is wrong with vantages.
    """
    collector = start_collector(more=["--public-page", "--private-target", "beta*/*"], trusting=False)
    push(collector)
    agents = Caller(f"unix:{collector.data_dir}/collector.sock")
    elsewhere = Fleet({target.name: target.id for target in agents.targets().targets if target.name == SECOND})
    rounds = rounds_until(now_at() // MINUTE_US * MINUTE_US, ROUNDS)
    elsewhere.push_rounds(agents, rounds, vantages=[Vantage(name="eu-1", region="eu-central-1")])
    agents.close()
    operator = identity_file.read(collector.data_dir / "operator.json").credential
    with httpx.Client(base_url=collector.http, trust_env=False, timeout=60) as http:
        eventually(
            30,
            lambda: {row["target"] for row in http.get("/v1/status").json()["states"]} == {FIRST, THIRD},
            "two targets",
        )
        hidden = (SECOND.partition("/")[0], "eu-central-1")
        for headers in ({}, {"Authorization": f"Bearer {operator}"}, {"Authorization": "Bearer wrong"}):
            answer = http.get("/v1/status", headers=headers)
            is_reader = operator in str(headers)
            assert [word in answer.text for word in hidden] == [is_reader] * 2
            assert ("private" in answer.headers["cache-control"]) is is_reader
            private, unknown = (
                http.get(f"/badge/{target}/{US}.svg", headers=headers) for target in (SECOND, "delta/m")
            )
            assert (private.status_code, private.content) == (404, unknown.content)
            assert _without_date(private) == _without_date(unknown)
            assert http.get(f"/badge/{FIRST}/{US}.svg", headers=headers).status_code == 200


def _without_date(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}


def test_it_is_off_by_default(start_collector: StartCollector) -> None:
    """Without the option the same paths need the credential of a reader."""
    collector = start_collector(trusting=False)
    push(collector)
    credential = identity_file.read(collector.data_dir / "operator.json").credential
    with httpx.Client(base_url=collector.http, trust_env=False, timeout=60) as http:
        for path in ("/v1/status", f"/badge/{FIRST}/{US}.svg", "/badge/x/y.svg"):
            assert http.get(path).status_code == 401, path
            answer = http.get(path, headers={"Authorization": f"Bearer {credential}"})
            assert answer.status_code == (404 if "x/y" in path else 200)
            assert answer.headers["cache-control"] == "private, no-cache"
        assert http.get("/session").json()["public"] is False


async def test_the_public_shares_one_answer(start_web: StartWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask for the status and for badges, the query runs once."""
    monkeypatch.setattr(queries, "MIN_SHARED_S", 1_000.0)
    web = await start_web(required=True, public_page=True)
    first = await web.get("/v1/status", cache_control="max-age=0")
    assert first.status_code == 200
    assert "age" not in first.headers
    web.local.clock.at += MINUTE_US
    assert (await web.get("/badge/x/y.svg")).status_code == 404
    again = await web.get("/v1/status", cache_control="no-store")
    assert (int(again.headers["age"]) >= 1, again.content) == (True, first.content)
    assert (await web.get("/v1/status", if_none_match=first.headers["etag"])).status_code == 304
    assert (await web.get("/v1/status?window=7d")).status_code == 400


async def test_requests_of_one_address_are_limited(start_web: StartWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit there is a 503 after a pause; with time the address may ask again. Readers are not limited."""
    monkeypatch.setattr(page, "_BURST", 3.0)
    monkeypatch.setattr(limits, "_PAUSE_S", 0.01)
    web = await start_web(required=True, public_page=True)
    codes = [(await web.get(path)).status_code for path in ("/v1/status", "/v1/status", "/badge/x/y.svg", "/v1/status")]
    assert codes == [200, 200, 404, 503]
    refused = await web.get("/v1/status")
    assert refused.headers["retry-after"] == "1"
    web.local.clock.at += MINUTE_US
    assert (await web.get("/v1/status")).status_code == 200
    closed = await start_web(required=False)
    assert {(await closed.get("/v1/status")).status_code for _ in range(5)} == {200}


async def test_the_public_does_not_see_errors_of_the_database(start_web: StartWeb) -> None:
    """While the database is away, the answer states only that."""
    web = await start_web(required=True, public_page=True)
    await web.local.database.close()
    answer = await web.get("/v1/status")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "the database is unavailable at the moment; try again later"


def test_the_page_has_the_option(public: Public) -> None:
    """The session of a visitor states that the status is public, and that nothing else may be read."""
    assert public.http.get("/session").json() == {"name": None, "reads": False, "ends": False, "public": True}
    assert public.http.get("/status").headers["content-type"] == "text/html; charset=utf-8"
