"""LiteLLM's proxy and its `Router` follow route tables with `isochrone.litellm`; the simulator is the provider."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fixtures.litellm import (
    KEY_OF_OTHER_REGION,
    OTHER_REGION,
    REGION,
    Proxy,
    RouterProgram,
    Tables,
    deployment,
    plugin_settings,
    proxy,
    requires_litellm,
)
from fixtures.simulator import Simulator
from fixtures.table_server import TableServer
from isochrone_client.window import now_at
from testdata.ports import dead_url
from testdata.waiting import eventually

pytestmark = [requires_litellm, pytest.mark.slow]

PATIENCE = 10.0

Consumer = Proxy | RouterProgram


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    tables = Tables()
    tables.server.start()
    for region in (REGION, OTHER_REGION):
        tables.publish("sim/none", "sim/crlf", region=region)
    yield tables
    tables.server.stop()


def model_list(simulator: Simulator) -> list[dict[str, Any]]:
    """The route `chat`, one whose deployments have orders, one without ids, and a model that is no route."""
    url = simulator.base_url
    good = [deployment("chat", f"sim/{one}", one, url) for one in ("none", "crlf", "401", "403", "429", "500", "503")]
    good += [deployment("chat", f"sim/{one}", one, url) for one in ("comments", "empty-data", "in-band-error-first")]
    hung = deployment("chat", "sim/silence", "silence", url, timeout=1)
    dead = [deployment("chat", f"sim/{name}", "none", dead_url()) for name in ("dead", "dead-2")]
    names = ("503", "none", "crlf")
    ordered = [deployment("ordered", f"sim/{one}@ordered", one, url, order=o) for o, one in enumerate(names, start=1)]
    plain = [deployment("plain", f"plain-{one}", "none", url, order=one) for one in (1, 2)]
    return [*good, hung, *dead, *ordered, *plain, deployment("unnamed", None, "none", url)]


def router(models: list[dict[str, Any]], settings: dict[str, Any], folder: Path) -> RouterProgram:
    """A program with two routers, with retries and with failover, in which LiteLLM itself leaves out no deployment."""
    settings_of_both = {"disable_cooldowns": True}
    failover = {"num_retries": 0, "enable_weighted_failover": True}
    routers = {"retries": settings_of_both, "failover": settings_of_both | failover}
    return RouterProgram({"model_list": models, "plugin": settings, "routers": routers}, folder)


@pytest.fixture(scope="module", params=[proxy, router])
def consumer(
    request: pytest.FixtureRequest,
    tables: Tables,
    fault_simulator: Simulator,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Consumer]:
    """The running proxy, and then the program."""
    folder = tmp_path_factory.mktemp("litellm")
    consumer: Consumer = request.param(model_list(fault_simulator), plugin_settings(tables, folder), folder)
    consumer.start()
    yield consumer
    consumer.stop()
    # LiteLLM logs errors of callbacks, and goes on.
    assert "RegionalRouting." not in consumer.log.read_text()


def served(ask: Callable[[], str], count: int) -> Counter[str]:
    return Counter(ask() for _ in range(count))


def metric(consumer: Consumer, name: str, **labels: str) -> float:
    """The sum of the samples of a metric with these labels."""
    families = text_string_to_metric_families(consumer.metrics())
    whole = name if name.startswith("isochrone_") else f"isochrone_litellm_{name}"
    samples = (sample for family in families for sample in family.samples if sample.name == whole)
    return sum(one.value for one in samples if labels.items() <= one.labels.items())


def served_until(target: str, ask: Callable[[], str]) -> list[str]:
    """The deployments that served requests, up to the first by the target."""
    found: list[str] = []

    def is_served() -> bool:
        found.append(ask())
        return found[-1] == target

    eventually(PATIENCE, is_served, f"{target} serves requests")
    return found


def first_is(consumer: Consumer, target: str, **how: Any) -> None:
    served_until(target, lambda: consumer.ask(**how))


@pytest.mark.consumer("LiteLLM", "regions differ")
def test_regions_have_different_first_choices(consumer: Consumer, tables: Tables) -> None:
    """The region of a request decides; without one, it is the default."""
    tables.publish("sim/none", "sim/crlf")
    tables.publish("sim/crlf", "sim/none", region=OTHER_REGION)
    first_is(consumer, "sim/none", region=REGION)
    first_is(consumer, "sim/crlf", region=OTHER_REGION)
    for region, target in ((REGION, "sim/none"), (OTHER_REGION, "sim/crlf"), (None, "sim/none")):
        assert served(lambda region=region: consumer.ask(region=region), 5) == {target: 5}  # type: ignore[misc]  # its default


@pytest.mark.consumer("LiteLLM", "change moves traffic within 2 s")
def test_a_change_moves_traffic(consumer: Consumer, tables: Tables, record_property: Any) -> None:
    """Requests follow the next table without a restart."""
    tables.publish("sim/none", "sim/crlf")
    first_is(consumer, "sim/none")
    began = time.monotonic()
    tables.publish("sim/crlf", "sim/none")
    first_is(consumer, "sim/crlf")
    record_property("moved_s", time.monotonic() - began)


def test_traffic_is_split_by_the_weights(consumer: Consumer, tables: Tables) -> None:
    """Of 60 requests about three in four go to the first member."""
    tables.publish("sim/crlf", "sim/none", weights=(0.75, 0.25))
    first_is(consumer, "sim/none")
    found = served(consumer.ask, 60)
    assert 32 <= found["sim/crlf"] <= 57
    assert found.total() == found["sim/crlf"] + found["sim/none"] == 60


@pytest.mark.consumer("LiteLLM", "first choice dead")
@pytest.mark.parametrize(
    ("first", "how"),
    [
        ("sim/dead", {}),
        ("sim/429", {}),
        ("sim/500", {}),
        ("sim/401", {}),
        ("sim/silence", {}),
        ("sim/dead-2", {"proxy": {"stream": True}, "router": {"router": "failover"}}),
        ("sim/503", {"proxy": {"stream": True}, "router": {"router": "failover"}}),
        ("sim/403", {"proxy": {"stream": True}, "router": {"router": "failover"}}),
    ],
    ids=["refuses", "429", "500", "401", "hangs", "refuses-2", "503-2", "403-2"],
)
def test_a_dead_first_costs_no_request(consumer: Consumer, tables: Tables, first: str, how: dict[str, Any]) -> None:
    """All requests are served, ten of ten by the second choice: answers and streams, with and without retries."""
    options = how.get("proxy" if isinstance(consumer, Proxy) else "router", {})
    tables.publish("sim/crlf", first)
    first_is(consumer, "sim/crlf", **options)
    before = metric(consumer, "failovers_total")
    tables.publish(first, "sim/none", "sim/crlf")
    found = served_until("sim/none", lambda: consumer.ask(**options))
    found += [consumer.ask(**options) for _ in range(9)]
    assert found[-10:] == ["sim/none"] * 10
    assert set(found) <= {"sim/none", "sim/crlf"}
    # A deployment whose provider fails rests, so that not every request begins with it.
    assert 1 <= metric(consumer, "failovers_total") - before <= 9


@pytest.mark.parametrize("consumer", [proxy], indirect=True)
def test_litellm_judges_the_streams(consumer: Consumer, tables: Tables) -> None:
    """The frames of a stream reach no callback. A comment that keeps the connection alive is no answer. An empty data
    line is, and LiteLLM fails on it; that and an error in place of the first token end a request without failover, and
    the deployment does not rest.
    """
    assert isinstance(consumer, Proxy)
    tables.publish("sim/comments", "sim/none")
    first_is(consumer, "sim/comments", stream=True)
    assert served(lambda: consumer.ask(stream=True), 5) == {"sim/comments": 5}
    for failing in ("sim/empty-data", "sim/in-band-error-first"):
        tables.publish(failing, "sim/none")
        eventually(PATIENCE, lambda: consumer.ask(stream=True).startswith("error"), "an error for the caller")
        before = metric(consumer, "failovers_total")
        assert all(consumer.ask(stream=True).startswith("error") for _ in range(5))
        assert metric(consumer, "failovers_total") == before


@pytest.mark.consumer("LiteLLM", "first choice dead")
def test_orders_of_the_configuration_are_replaced(consumer: Consumer, tables: Tables) -> None:
    """If the deployments have orders of their own, a request whose first choice fails goes on by the table, too."""
    tables.publish("sim/crlf", "sim/none", route="ordered")
    first_is(consumer, "sim/crlf@ordered", model="ordered")
    tables.publish("sim/503", "sim/crlf", "sim/none", route="ordered")
    assert served(lambda: consumer.ask("ordered"), 5) == {"sim/crlf@ordered": 5}
    if isinstance(consumer, RouterProgram):
        assert served(lambda: consumer.ask("ordered", router="failover"), 5) == {"sim/crlf@ordered": 5}


@pytest.mark.parametrize("consumer", [router], indirect=True)
def test_requests_that_go_elsewhere_are_noticed(consumer: Consumer, tables: Tables) -> None:
    """If LiteLLM sends requests elsewhere, they do not count as routed, and an error says once that routing is not
    effective; requests that follow the table make it so again.
    """
    assert isinstance(consumer, RouterProgram)
    here = {"client_region": OTHER_REGION, "route": "chat"}
    tables.publish("sim/none", "sim/crlf", region=OTHER_REGION)
    first_is(consumer, "sim/none", region=OTHER_REGION)
    before = metric(consumer, "requests_total", outcome="table", **here)
    assert served(lambda: consumer.ask(region=OTHER_REGION, only="sim/crlf"), 40) == {"sim/crlf": 40}
    assert metric(consumer, "requests_total", outcome="table", **here) == before
    assert metric(consumer, "requests_total", outcome="not_followed", **here) == 40
    effective = metric(consumer, "isochrone_routing_effective", **here)
    assert 0 < effective < 0.9
    assert consumer.log.read_text().count(f"routing of chat from {OTHER_REGION} is not effective") == 1
    assert served(lambda: consumer.ask(region=OTHER_REGION), 20) == {"sim/none": 20}
    assert metric(consumer, "isochrone_routing_effective", **here) > effective


@pytest.mark.consumer("LiteLLM", "regions differ")
def test_requests_that_follow_the_table_are_effective(consumer: Consumer, tables: Tables) -> None:
    """With split weights and a member that fails, each first attempt goes where the table sends it."""
    tables.publish("sim/none", "sim/500", "sim/crlf", weights=(0.5, 0.5), region=OTHER_REGION)
    eventually(PATIENCE, lambda: consumer.ask(region=OTHER_REGION) == "sim/none", "the member answers")
    assert set(served(lambda: consumer.ask(region=OTHER_REGION), 30)) <= {"sim/none", "sim/crlf"}
    tables.publish("sim/none", "sim/crlf", weights=(0.5, 0.5), region=OTHER_REGION)
    assert set(served(lambda: consumer.ask(region=OTHER_REGION), 30)) == {"sim/none", "sim/crlf"}


def test_a_request_that_no_member_can_take(consumer: Consumer, tables: Tables) -> None:
    """OpenAI's Responses API on a route for chat completions is an error that names the route and its dialects; members
    that speak it are asked.
    """
    route = "chat"
    tables.publish("sim/none", "sim/crlf", route=route)
    first_is(consumer, "sim/none", model=route)
    refused = consumer.ask(route, api="responses")
    assert "no member of the route 'chat' can take a request of the Responses API" in refused
    assert "sim/none speaks openai-chat, sim/crlf speaks openai-chat" in refused
    assert metric(consumer, "requests_total", outcome="dialect", route=route) >= 1
    tables.publish("sim/none", "sim/crlf", route=route, dialect="openai-responses")
    eventually(PATIENCE, lambda: consumer.ask(route, api="responses") == "sim/none", "an answer")


@pytest.mark.consumer("LiteLLM", "unknown model")
def test_an_unknown_model_is_untouched(consumer: Consumer, tables: Tables) -> None:
    """A model that is no route keeps the orders of its deployments."""
    before = metric(consumer, "requests_total", outcome="unknown_route")
    assert served(lambda: consumer.ask("plain"), 5) == {"plain-1": 5}
    assert metric(consumer, "requests_total", outcome="unknown_route") == before + 5


def test_an_unknown_region_is_untouched(consumer: Consumer, tables: Tables) -> None:
    """A region is never guessed: LiteLLM routes the request, which is counted."""
    assert consumer.ask("plain", region="mars") == "plain-1"
    assert metric(consumer, "requests_total", outcome="unknown_region") == 1
    assert "no tables are followed for the region 'mars'" in consumer.log.read_text()


def test_a_model_without_members_is_reported(consumer: Consumer, tables: Tables) -> None:
    """If no deployment of a route is a member, LiteLLM routes the request, and the log shows what to set."""
    tables.publish("sim/none", "sim/crlf", route="unnamed")
    no_member = {"outcome": "no_member", "route": "unnamed", "client_region": REGION}
    eventually(
        PATIENCE, lambda: bool(consumer.ask("unnamed") and metric(consumer, "requests_total", **no_member)), "a count"
    )
    log = consumer.log.read_text()
    assert "none of its deployments" in log
    assert "'sim/none', 'sim/crlf': set `model_info.id` of each deployment to its member" in log


@pytest.mark.consumer("LiteLLM", "garbage table")
def test_garbage_is_ignored_and_reported(consumer: Consumer, tables: Tables) -> None:
    """Neither text that is no table nor a table whose weights do not add up to 1 changes a request."""
    ignored = {"event": "tables_ignored", "client_region": REGION}
    tables.publish("sim/none", "sim/crlf")
    first_is(consumer, "sim/none")
    before = metric(consumer, "table_events_total", **ignored)
    tables.publish("sim/crlf", "sim/none", weights=(0.5,))
    tables.server.publish_line(b"{nonsense")
    eventually(PATIENCE, lambda: metric(consumer, "table_events_total", **ignored) == before + 2, "both are counted")
    assert served(consumer.ask, 5) == {"sim/none": 5}
    log = consumer.log.read_text()
    assert "not JSON" in log
    assert "weights and unassigned add up to 0.5, not to 1" in log


@pytest.mark.parametrize("consumer", [proxy], indirect=True)
def test_the_region_of_a_key(consumer: Consumer, tables: Tables) -> None:
    """A key of the proxy may have a region in its metadata; the header of a request comes first."""
    assert isinstance(consumer, Proxy)
    tables.publish("sim/none", "sim/crlf")
    tables.publish("sim/crlf", "sim/none", region=OTHER_REGION)
    first_is(consumer, "sim/none")
    first_is(consumer, "sim/crlf", key=KEY_OF_OTHER_REGION)
    assert consumer.ask(key=KEY_OF_OTHER_REGION, region=REGION) == "sim/none"


@pytest.mark.consumer("LiteLLM", "collector gone")
def test_without_the_collector(consumer: Consumer, tables: Tables) -> None:
    """The last table stays in use until it is stale; then requests follow the static order."""
    order = ("sim/none", "sim/crlf")
    tables.publish(*order)
    first_is(consumer, "sim/none")
    tables.publish("sim/crlf", "sim/none", seconds=8, static_order=order)
    first_is(consumer, "sim/crlf")
    tables.server.stop()
    try:
        found = served_until("sim/none", consumer.ask)
        assert now_at() >= tables.stale_at
        assert set(found[:-1]) <= {"sim/crlf"}
        assert served(consumer.ask, 5) == {"sim/none": 5}
        assert metric(consumer, "requests_total", outcome="static_order") >= 5
        assert "; the last tables stay in use" in consumer.log.read_text()
    finally:
        tables.server.start()


@pytest.mark.consumer("LiteLLM", "collector gone")
def test_a_restart_without_the_collector(table_server: TableServer, fault_simulator: Simulator, tmp_path: Path) -> None:
    """The last tables are on disk: a program that starts while the collector is away follows them."""
    tables = Tables(table_server)
    settings = {**plugin_settings(tables, tmp_path), "regions": []}
    tables.publish("sim/crlf", "sim/none", static_order=("sim/none", "sim/crlf"))
    for _ in range(2):
        program = router(model_list(fault_simulator), settings, tmp_path)
        program.start()
        try:
            assert served(program.ask, 5) == {"sim/crlf": 5}
        finally:
            program.stop()
        table_server.stop()


def test_bad_settings_stop_the_proxy(tmp_path: Path) -> None:
    """A proxy whose settings cannot be right does not start, and shows what to correct."""
    consumer = proxy([deployment("chat", None, "none", "http://127.0.0.1:1")], {"urls": "http://127.0.0.1:1"}, tmp_path)
    try:
        with pytest.raises(AssertionError, match="`urls` is not a setting: use url, default_region, regions"):
            consumer.start()
    finally:
        consumer.stop()
