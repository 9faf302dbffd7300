"""Envoy's discovery services over HTTP."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from fixtures.web import Web, shares_web
from isochrone_collector.http_api.route_tables import MAX_BODY_BYTES
from isochrone_wire.model import SECOND_US
from isochrone_wire.text import MAX_SHOWN_CHARS
from testdata.routes import CHAT

CLUSTERS, ROUTES = "/v3/discovery:clusters", "/v3/discovery:routes"
TYPE = "type.googleapis.com/envoy.config"


def request(region: str = "us-east-2", **changes: Any) -> dict[str, Any]:
    """A request as Envoy sends it."""
    node = {"id": "n", "locality": {"region": region}, "user_agent_name": "envoy", "extensions": [{"name": "x"}]}
    return {"node": node, **changes}


async def post(web: Web, path: str, **changes: Any) -> httpx.Response:
    return await web.client.post(path, json=request(**changes))


@shares_web
async def test_each_region_has_its_resources(shared_web: Web) -> None:
    """The region is that of the node; clusters and routes have a version and a type."""
    clusters, routes = (await post(shared_web, CLUSTERS)).json(), (await post(shared_web, ROUTES)).json()
    assert clusters["type_url"] == f"{TYPE}.cluster.v3.Cluster"
    assert routes["type_url"] == f"{TYPE}.route.v3.RouteConfiguration"
    assert clusters["version_info"] != routes["version_info"]
    (configuration,) = routes["resources"]
    named = [one["name"] for one in configuration["virtual_hosts"][0]["routes"]]
    assert (configuration["name"], named) == ("isochrone", ["chat", "voice"])
    other = (await post(shared_web, ROUTES, region="eu-central-1")).json()
    assert other["version_info"] != routes["version_info"]


@shares_web
async def test_a_current_version_is_not_sent(shared_web: Web) -> None:
    """A request with the newest version is a 304 without a body."""
    version = (await post(shared_web, ROUTES, resource_names=["isochrone"])).json()["version_info"]
    again = await post(shared_web, ROUTES, resource_names=["isochrone"], version_info=version)
    assert (again.status_code, again.content) == (304, b"")
    assert (await post(shared_web, ROUTES, version_info="older")).status_code == 200


@shares_web
@pytest.mark.parametrize(
    ("changes", "status", "detail"),
    [
        ({"region": "mars"}, 404, "unknown client region 'mars'"),
        ({"region": ""}, 400, "node.locality.region"),
        ({"type_url": f"{TYPE}.cluster.v3.Cluster"}, 400, "has no"),
        ({"version_info": 7.5}, 400, "not a DiscoveryRequest"),
        ({"node": 7}, 400, "not a DiscoveryRequest"),
        ({"node": {"locality": True}}, 400, "not a DiscoveryRequest"),
    ],
)
async def test_other_requests_are_refused(shared_web: Web, changes: Any, status: int, detail: str) -> None:
    """A region is never guessed, and a request has to be one."""
    region = changes.pop("region", "us-east-2")
    answer = await shared_web.client.post(ROUTES, json=request(region, **changes))
    assert (answer.status_code, detail in answer.json()["detail"]) == (status, True)


@shares_web
@pytest.mark.parametrize("body", [b"", b"{", b"[" * 10_000, b"\xff", b"null", b'{"node": {"id": "\\ud800"}}'])
async def test_garbage_is_refused(shared_web: Web, body: bytes) -> None:
    """A body that is no request is a 400."""
    assert (await shared_web.client.post(ROUTES, content=body)).status_code == 400


@shares_web
async def test_a_large_body_is_refused(shared_web: Web) -> None:
    """A body above the limit is not read on."""
    answer = await shared_web.client.post(ROUTES, content=b" " * (MAX_BODY_BYTES + 1))
    assert answer.status_code == 413


@shares_web
async def test_a_rejection_is_counted(shared_web: Web) -> None:
    """A request with an error is a rejection."""
    await post(shared_web, ROUTES, error_detail={"code": 13, "message": "no"})
    assert shared_web.sources.rejections.counts["us-east-2", "routes"] == 1


@shares_web
async def test_a_rejection_of_an_unknown_region_leaves_nothing(shared_web: Web) -> None:
    """A reader cannot fill the memory, the metrics and the log with regions that do not exist."""
    rejections = shared_web.sources.rejections
    before = len(rejections.counts)
    answer = await post(shared_web, ROUTES, region="x" * 1_000, error_detail={"code": 13, "message": "no"})
    assert (answer.status_code, len(rejections.counts)) == (404, before)


@shares_web
async def test_a_refusal_repeats_little_of_the_request(shared_web: Web) -> None:
    """A long name is cut in the problem document."""
    answer = await post(shared_web, ROUTES, type_url="x" * 100_000)
    assert answer.status_code == 400
    assert len(answer.json()["detail"]) <= MAX_SHOWN_CHARS


async def test_a_stale_table_becomes_the_static_order(web: Web) -> None:
    """Once no table may be used any more, the routes have the static order, under another version."""
    entries = tuple(replace(entry, base_url="https://x.example/v1") for entry in CHAT.entries)
    table = replace(CHAT, entries=entries, static_order=(entries[1].target,), generation=60, etag="60-e")
    await web.publish(table)
    before = (await post(web, ROUTES)).json()
    web.local.clock.at = table.stale_until_at + SECOND_US
    after = (await post(web, ROUTES)).json()

    def clusters(answer: Any) -> list[tuple[str, int]]:
        parts = answer["resources"][0]["virtual_hosts"][0]["routes"][0]["route"]["weighted_clusters"]["clusters"]
        return [(part["name"], part["weight"]) for part in parts]

    assert len(clusters(before)) == 2
    assert clusters(after) == [(f"chat: {entries[1].target} first", 10_000)]
    assert before["version_info"] != after["version_info"]
