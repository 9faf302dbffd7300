"""The public page of a real collector: the status and badges need no credential, everything else does."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import httpx
import pytest

from fixtures.collector import Caller, Collector, StartCollector
from fixtures.web import StartWeb
from isochrone_collector.auth import limits
from isochrone_collector.clock import now_at
from isochrone_collector.http_api import page, queries
from isochrone_common import identity_file
from isochrone_wire.model import MINUTE_US, Vantage
from testdata.pushed_rounds import FIRST, PLAN, SECOND, SG, THIRD, US, Fleet, rounds_until
from testdata.waiting import eventually

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
        """The headers of the collector's operator."""
        found = identity_file.read(self.collector.data_dir / "operator.json")
        return {"Authorization": f"Bearer {found.credential}"}

    def status(self) -> dict[str, Any]:
        """Return the status."""
        found: dict[str, Any] = self.http.get("/v1/status").raise_for_status().json()
        return found


def latency(target: str, region: str) -> int | None:
    """The third target fails from Singapore."""
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
    """Return the state of a target from a region."""
    (state,) = [row["state"] for row in found["rows"] if (row["target"], row["region"]) == (target, region)]
    return str(state)


def test_the_public_sees_the_status(public: Public) -> None:
    """Each target has its state, its success and its median per region, and an open incident its regions; nothing else
    of the plan, the vantages and the errors is in the answer.
    """
    eventually(30, lambda: state_of(public.status(), THIRD, SG) == "failing", "the incident is shown")
    found = public.status()
    assert found["schema"] == "isochrone.status/1"
    assert {(row["target"], row["region"]) for row in found["rows"]} == {
        (target, region) for target in (FIRST, SECOND, THIRD) for region in (US, SG)
    }
    assert state_of(found, FIRST, US) == "ok"
    first = found["rows"][0]
    assert set(first) == {
        "target",
        "provider",
        "region",
        "state",
        "success",
        "ttft_p50_us",
        "recent_ttft_p50_us",
        "newest_at",
    }
    assert first["ttft_p50_us"] == pytest.approx(200_000, rel=0.1)
    (incident,) = found["incidents"]
    assert {name: incident[name] for name in ("target", "kind", "regions")} == {
        "target": THIRD,
        "kind": "failing",
        "regions": [SG],
    }
    text = json.dumps(found)
    assert [word for word in ("us-1", "sg-1", "http://", "overloaded", "usd", "version") if word in text] == []


def test_every_other_path_needs_a_credential(public: Public) -> None:
    """The allow list is the status and its badges: all other paths of the interface answer 401, and the same to a
    caller with a credential is no 401.
    """
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
    """A target that --private-target matches is in no answer, also to a reader, nor is a region that measures no other:
    its badge is that of a target which the plan does not have, byte for byte.
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
            lambda: {row["target"] for row in http.get("/v1/status").json()["rows"]} == {FIRST, THIRD},
            "two targets",
        )
        for headers in ({}, {"Authorization": f"Bearer {operator}"}):
            status_of_all = http.get("/v1/status", headers=headers)
            assert [word for word in (SECOND.partition("/")[0], "eu-central-1") if word in status_of_all.text] == []
            private, unknown = (
                http.get(f"/badge/{target}/{US}.svg", headers=headers) for target in (SECOND, "delta/m")
            )
            assert (private.status_code, private.content) == (404, unknown.content)
            assert _without_date(private) == _without_date(unknown)
            assert http.get(f"/badge/{FIRST}/{US}.svg", headers=headers).status_code == 200


def _without_date(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}


def test_the_status_is_compressed(public: Public) -> None:
    """It is as every answer: compressed for clients that accept it, under the same tag, and caches learn of it."""
    packed, plain = (public.http.get("/v1/status", headers={"Accept-Encoding": coding}) for coding in ("gzip", "br"))
    assert [one.headers.get("content-encoding") for one in (packed, plain)] == ["gzip", None]
    assert {one.headers["vary"] for one in (packed, plain)} == {"Accept-Encoding"}
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    known = public.http.get("/v1/status", headers={"If-None-Match": "*"})
    assert (known.status_code, known.headers["vary"]) == (304, "Accept-Encoding")


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
