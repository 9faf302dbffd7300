"""Route tables over HTTP: documents, caching, long polls, errors, and the resources for Envoy."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import jsonschema
import pytest

from fixtures.web import ELSEWHERE, StartWeb, Web, first, shares_web, until
from isochrone_collector.errors import DatabaseUnavailable
from isochrone_collector.http_api.route_tables import MAX_BODY_BYTES
from isochrone_wire.json_format import to_json_value
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteTable
from isochrone_wire.text import MAX_SHOWN_CHARS
from testdata.insights import NOW_AT
from testdata.routes import CHAT, VOICE

US = "/v1/routes/us-east-2"


def next_table(table: RouteTable, generation: int) -> RouteTable:
    return replace(table, generation=generation, etag=f"{generation}-new")


@shares_web
async def test_a_region_is_one_document(shared_web: Web) -> None:
    """All tables of a region come in one document, with the newest generation in the headers."""
    answer = await shared_web.get(US)
    told = answer.json()
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-isochrone-generation"] == "48"
    assert "x-isochrone-stale-since" not in answer.headers
    assert "date" in answer.headers
    assert "server" not in answer.headers
    assert (told["client_region"], told["generation"]) == ("us-east-2", 48)
    assert told["tables"] == [to_json_value(CHAT), to_json_value(VOICE)]
    assert told["tables"][0]["built_at"].endswith("Z")


@shares_web
async def test_the_overview_has_every_table(shared_web: Web) -> None:
    """The overview has each table in force, with its weights, under the newest generation of all of them."""
    told = (await shared_web.get("/v1/routes")).json()
    assert (told["generation"], told["routes"]) == (48, ["batch", "chat", "voice"])
    assert told["client_regions"] == ["eu-central-1", "us-east-2"]
    assert [(one["client_region"], one["route"], one["generation"]) for one in told["tables"]] == [
        ("eu-central-1", "chat", 46),
        ("us-east-2", "chat", 48),
        ("us-east-2", "voice", 47),
    ]
    assert told["tables"][1]["weights"] == {entry.target: entry.weight for entry in CHAT.entries}


@shares_web
@pytest.mark.parametrize(
    "path", ["/v1/routes", US, "/v1/routes/mars", "/v1/diff", "/v1/openapi.json", "/healthz", "/readyz", "/nowhere"]
)
async def test_a_document_ends_its_line(shared_web: Web, path: str) -> None:
    """Every JSON document, of an error too, ends with one newline, so that a shell shows the next one below it."""
    answer = await shared_web.get(path)
    assert answer.content.endswith(b"}\n")
    assert answer.content.count(b"\n") == 1
    assert int(answer.headers["content-length"]) == answer.num_bytes_downloaded


@shares_web
@pytest.mark.parametrize("metric", ["tokens_per_second", "tokens-per-second", "TTFT"])
async def test_a_metric_has_several_spellings(shared_web: Web, metric: str) -> None:
    """A metric is found with `-` in place of `_`, as the leaderboard writes it, and in any case."""
    assert (await shared_web.get(f"/v1/diff?metric={metric}")).status_code == 200


@shares_web
async def test_one_route_may_be_asked_for(shared_web: Web) -> None:
    """With `route` the document has only that table, under its own tag."""
    answer = await shared_web.get(f"{US}?route=voice&format=json")
    assert [table["route"] for table in answer.json()["tables"]] == ["voice"]
    assert answer.headers["etag"] == f'"{VOICE.etag}"'
    assert answer.headers["x-isochrone-generation"] == "47"


async def test_a_known_document_is_not_sent_again(web: Web) -> None:
    """The tag gives 304 until a table of the region changes, or an older one leaves the plan."""
    tag = (await web.get(US)).headers["etag"]
    for said in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = await web.get(US, if_none_match=said)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag), said
    for said in ('"other"', tag.strip('"'), f"{tag}, garbage", '"', "W/", "\xff\xfe", '"' * 5_000):
        headers = [(b"If-None-Match", said.encode("latin-1"))]
        assert (await web.client.get(US, headers=headers)).status_code == 200, said
    await web.publish(next_table(VOICE, 49))
    assert (await web.get(US, if_none_match=tag)).status_code == 200
    tag = (await web.get(US)).headers["etag"]
    plan = web.local.plans.current
    assert plan is not None
    web.local.plans.current = replace(plan, routes=tuple(route for route in plan.routes if route.name != "voice"))
    assert (await web.get(US, if_none_match=tag)).status_code == 200


async def test_the_same_tables_are_the_same_bytes(web: Web) -> None:
    """A strong tag stands for bytes: the same tables are encoded equally at any time."""
    before = await web.get(US)
    web.local.clock.at += 7 * SECOND_US
    after = await web.get(US)
    assert (before.content, before.headers["etag"]) == (after.content, after.headers["etag"])


@pytest.mark.parametrize(
    ("later_us", "expected"),
    [
        (0, "max-age=5, stale-while-revalidate=583, stale-if-error=1783"),
        (586 * SECOND_US, "max-age=2, stale-while-revalidate=0, stale-if-error=1200"),
        (600 * SECOND_US, "max-age=0, stale-while-revalidate=0, stale-if-error=1188"),
        (9_000 * SECOND_US, "max-age=0, stale-while-revalidate=0, stale-if-error=0"),
    ],
)
async def test_caches_are_told_how_long(web: Web, later_us: int, expected: str) -> None:
    """What a cache may do follows the instants of the table, a few seconds at a time."""
    web.local.clock.at = NOW_AT + later_us
    assert (await web.get(f"{US}?route=chat")).headers["cache-control"] == expected


async def test_without_the_database_the_old_table_is_served(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its database a collector serves the same bytes with their old instants, and reports since when."""
    before = await web.get(US)

    def away() -> None:
        raise DatabaseUnavailable("away")

    monkeypatch.setattr(web.local.database, "connection", away)
    with pytest.raises(DatabaseUnavailable):
        await web.publisher.refresh()
    after = await web.get(US)
    assert (after.status_code, after.content, after.headers["etag"]) == (200, before.content, before.headers["etag"])
    assert after.headers["x-isochrone-stale-since"] == "2026-11-21T08:00:00.000000Z"
    assert (await web.get("/readyz")).json()["stale_since_at"] == "2026-11-21T08:00:00.000000Z"
    assert (await web.get("/v1/explain/us-east-2/chat")).status_code == 503


@shares_web
@pytest.mark.parametrize(
    ("path", "status", "kind", "names"),
    [
        ("/v1/routes/us-east-1", 404, "unknown-name", (["eu-central-1", "us-east-2"], "us-east-2")),
        ("/v1/routes/us-east-2?route=chatt", 404, "unknown-name", (["batch", "chat", "voice"], "chat")),
        ("/v1/routes/us-east-2?route=batch", 503, "not-built", None),
        ("/v1/routes/us-east-2/watch?route=batch", 503, "not-built", None),
        ("/v1/routes/mars/watch", 404, "unknown-name", (["eu-central-1", "us-east-2"], None)),
        ("/v1/routes/us-east-2?format=xml", 400, "bad-request", None),
        ("/v1/routes/us-east-2?rotue=chat", 400, "bad-request", None),
        ("/v1/routes/us-east-2?route=chat&route=voice", 400, "bad-request", None),
        ("/v1/routes/us-east-2?wait=90s&after=1", 400, "bad-request", None),
        ("/v1/routes/us-east-2?wait=30&after=1", 400, "bad-request", None),
        ("/v1/routes/us-east-2?wait=30s&after=-1", 400, "bad-request", None),
        ("/v1/routes/us-east-2/watch?after=latest", 400, "bad-request", None),
        ("/v1/explain/mars/chat", 404, "unknown-name", (["eu-central-1", "us-east-2"], None)),
        ("/v1/explain/us-east-2/chat?generation=7", 404, "unknown-name", None),
        ("/v1/diff?baseline=mars", 404, "unknown-name", (["us"], None)),
        ("/v1/diff?window=24h&from=2026-11-21T00:00:00Z", 400, "bad-request", None),
        ("/v1/diff?metric=tfft", 400, "bad-request", None),
        ("/v1/route", 404, None, None),
    ],
)
async def test_a_wrong_request_is_a_problem(
    shared_web: Web, path: str, status: int, kind: str | None, names: tuple[list[str], str | None] | None
) -> None:
    """An unknown name gets a problem document, with the known names and the most similar one."""
    answer = await shared_web.get(path)
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), problem
    assert (problem["status"], problem["type"]) == (status, f"urn:isochrone:problem:{kind}" if kind else "about:blank")
    assert problem["detail"]
    assert ((problem["known"], problem["nearest"]) if "known" in problem else None) == names
    assert ("retry-after" in answer.headers) == (status == 503)


async def test_before_the_first_table_clients_should_retry(start_web: StartWeb) -> None:
    """A planned route without a table yet is 503 with Retry-After, not 404."""
    web = await start_web()
    answer = await web.get(US)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert (await web.get("/v1/routes")).json()["tables"] == []


@shares_web
async def test_only_get_and_head_are_known(shared_web: Web) -> None:
    """HEAD answers as GET without a body; any other method is refused with those there are."""
    head, got = await shared_web.client.head(US), await shared_web.get(US)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", got.headers["etag"])
    assert head.headers["content-length"] == str(len(got.content))
    assert (await shared_web.client.head(f"{US}/watch")).status_code == 200
    refused = await shared_web.client.post(US, content=b"{}")
    assert (refused.status_code, refused.json()["status"]) == (405, 405)
    assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_a_long_poll_ends_with_the_news(web: Web) -> None:
    """A long poll ends as soon as a table of its region changes, and not by another region's."""
    waiting = asyncio.create_task(web.get(f"{US}?wait=30s&after=48"))
    await until(lambda: web.publisher.watchers == 1)
    await web.publish(next_table(ELSEWHERE, 49))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await web.publish(next_table(CHAT, 50))
    answer = await waiting
    assert (answer.status_code, answer.json()["generation"]) == (200, 50)
    await until(lambda: web.publisher.watchers == 0)


async def test_a_long_poll_does_not_wait_for_what_is_there(web: Web) -> None:
    """A long poll does not wait for what is there; without changes it ends with 204, or 304 with the tag."""
    for path in (f"{US}?wait=30s&after=47", f"{US}?wait=30s", f"{US}?wait=30s&after=0"):
        answer = await asyncio.wait_for(web.get(path), 10)
        assert answer.json()["generation"] == 48, path
    tag = (await web.get(US)).headers["etag"]
    by_number, by_tag = await asyncio.gather(
        web.get(f"{US}?wait=1s&after=48"), web.get(f"{US}?wait=1s", if_none_match=tag)
    )
    assert (by_number.status_code, by_number.content, by_number.headers["x-isochrone-generation"]) == (204, b"", "48")
    assert (by_tag.status_code, by_tag.headers["x-isochrone-generation"]) == (304, "48")
    waiting = asyncio.create_task(web.get(f"{US}?wait=60s&after=48"))
    await until(lambda: web.publisher.watchers == 1)
    waiting.cancel()
    await asyncio.wait({waiting})
    await web.client.aclose()
    await until(lambda: web.publisher.watchers == 0)


ANSWERS = [
    ("/v1/routes", "/v1/routes"),
    ("/v1/routes/{client_region}", US),
    ("/v1/diff", "/v1/diff"),
    ("/v1/rate-limits", "/v1/rate-limits?window=1h&points=10"),
    ("/v1/openapi.json", "/v1/openapi.json"),
    ("/healthz", "/healthz"),
    ("/readyz", "/readyz"),
]


async def description(web: Web) -> dict[str, Any]:
    told: dict[str, Any] = (await web.get("/v1/openapi.json")).json()
    return told


def check(instance: object, schema: dict[str, Any], document: dict[str, Any]) -> None:
    whole = {**schema, "components": document["components"]}
    validator = jsonschema.Draft202012Validator(whole, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    validator.validate(instance)


@shares_web
@pytest.mark.parametrize(("path", "asked"), ANSWERS)
async def test_responses_match_the_document(shared_web: Web, path: str, asked: str) -> None:
    """A real answer of every path that answers in JSON is one that the OpenAPI document allows."""
    document = await description(shared_web)
    answer = await shared_web.get(asked)
    responses = document["paths"][path]["get"]["responses"]
    if answer.status_code == 200:
        check(answer.json(), responses["200"]["content"]["application/json"]["schema"], document)
    else:
        check(answer.json(), responses["default"]["content"]["application/problem+json"]["schema"], document)


async def test_problems_and_events_are_as_described(web: Web) -> None:
    """So are a problem with names, and the data of an event."""
    document = await description(web)
    named = {"$ref": "#/components/schemas/Problem"}
    check((await web.get("/v1/routes/mars")).json(), named, document)
    async with web.watch(f"{US}/watch") as events:
        (event, _) = await first(events, 2)
    check(event.data, {"$ref": "#/components/schemas/RouteTable"}, document)
    with pytest.raises(jsonschema.ValidationError):
        check({**event.data, "built_at": 7}, {"$ref": "#/components/schemas/RouteTable"}, document)


CLUSTERS, ROUTES = "/v3/discovery:clusters", "/v3/discovery:routes"
TYPE = "type.googleapis.com/envoy.config"


def request(region: str = "us-east-2", **changes: Any) -> dict[str, Any]:
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
