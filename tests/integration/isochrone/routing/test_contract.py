"""Each SDK with a transport of `isochrone.routing`: the cases that every consumer of route tables passes."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from fixtures.routing_client import MESSAGES, PATIENCE, World
from fixtures.web import StartWeb
from isochrone.routing import Routes
from isochrone.routing.httpx2 import Transport
from isochrone_client.window import now_at
from testdata import sdks
from testdata.ports import dead_url
from testdata.waiting import eventually

Ask = Callable[[str], str]
EAST, WEST = "us-east-2", "us-west-1"


@pytest.fixture(scope="module", autouse=True)
def _import_the_sdks() -> None:
    """Import what takes seconds before a test's event loop serves tables, which it would hold up."""
    for name in ("anthropic", "langchain_openai", "openai"):
        getattr(sdks, name)


def of_openai(http_client: Any, own_url: str) -> Ask:
    client: Any = sdks.openai.OpenAI(http_client=http_client, base_url=own_url, api_key="caller", max_retries=0)
    return lambda model: client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=3).model


def of_anthropic(http_client: Any, own_url: str) -> Ask:
    own_url = own_url.removesuffix("/v1")
    client: Any = sdks.anthropic.Anthropic(http_client=http_client, base_url=own_url, api_key="caller", max_retries=0)
    return lambda model: client.messages.create(model=model, messages=MESSAGES, max_tokens=3).model


def of_langchain(http_client: Any, own_url: str) -> Ask:
    options: Any = {"http_client": http_client, "base_url": own_url, "api_key": "caller", "max_retries": 0}

    def ask(model: str) -> str:
        answer = sdks.langchain_openai.ChatOpenAI(model=model, max_tokens=3, **options).invoke(MESSAGES)
        return str(answer.response_metadata["model_name"])

    return ask


@dataclass(frozen=True, slots=True)
class Sdk:
    """An SDK and the dialect of its requests. `of` makes a function that returns the model which answered a request."""

    name: str
    dialect: str
    of: Callable[[Any, str], Ask]

    def ask(self, routes: Routes, own_url: str = "") -> Ask:
        return self.of(httpx2.Client(transport=Transport(routes)), own_url or dead_url())


SDKS = (
    Sdk("openai", "openai-chat", of_openai),
    Sdk("anthropic", "anthropic", of_anthropic),
    Sdk("LangChain", "openai-chat", of_langchain),
)


def each_sdk(*cases: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "sdk",
        [
            pytest.param(sdk, id=sdk.name, marks=[pytest.mark.consumer(sdk.name, case) for case in cases])
            for sdk in SDKS
        ],
    )


def publish(world: World, sdk: Sdk, first: str, second: str, **more: Any) -> Any:
    """Publish a table with all traffic at the first model, and the second as its fallback."""
    return world.publish(*members(world, sdk, first, second), **more)


def members(world: World, sdk: Sdk, first: str, second: str) -> Any:
    return world.entry(first, weight=1.0, dialect=sdk.dialect), world.entry(second, dialect=sdk.dialect)


@each_sdk("regions differ", "change moves traffic within 2 s")
async def test_requests_follow_the_tables_of_the_region(
    world: World, sdk: Sdk, start_web: StartWeb, record_property: Callable[[str, object], None]
) -> None:
    """Clients of two regions have different first choices, and a new table moves its region's requests only."""
    web = await start_web()
    await web.publish(
        world.table(*members(world, sdk, "none", "crlf"), client_region=EAST),
        world.table(*members(world, sdk, "crlf", "none"), client_region=WEST),
    )

    def routes(region: str) -> Routes:
        world.opened.append(Routes(f"http://{web.address}", region, cache_folder=None, send_callers_key=True))
        return world.opened[-1]

    east, west = (sdk.ask(routes(region)) for region in (EAST, WEST))
    assert await asyncio.to_thread(east, "chat") == "fault-none"
    assert await asyncio.to_thread(west, "chat") == "fault-crlf"

    await web.publish(world.table(*members(world, sdk, "crlf", "none"), client_region=EAST))
    began = time.monotonic()
    await asyncio.to_thread(eventually, PATIENCE, lambda: east("chat") == "fault-crlf", "the other member")
    record_property("moved_s", time.monotonic() - began)
    assert await asyncio.to_thread(west, "chat") == "fault-crlf"


@each_sdk("first choice dead")
def test_a_dead_first_choice_costs_no_request(world: World, sdk: Sdk) -> None:
    """If nothing listens at the first choice, ten of ten requests are served by the second."""
    first = world.entry("crlf", weight=1.0, dialect=sdk.dialect, url=dead_url())
    world.publish(first, world.entry("none", dialect=sdk.dialect))
    ask = sdk.ask(world.routes())
    assert [ask("chat") for _ in range(10)] == ["fault-none"] * 10


@each_sdk("collector gone")
def test_without_the_collector_the_last_table_stays(world: World, sdk: Sdk) -> None:
    """Until `stale_until_at` requests follow the last table; afterwards, the static order of the plan."""
    table = publish(world, sdk, "none", "crlf", seconds=3, static_order=("sim/crlf", "sim/none"))
    ask = sdk.ask(world.routes())
    world.server.stop()
    assert ask("chat") == "fault-none"
    eventually(PATIENCE, lambda: ask("chat") == "fault-crlf", "the static order")
    assert now_at() >= table.stale_until_at


@each_sdk("unknown model")
def test_an_unknown_model_is_untouched(world: World, sdk: Sdk) -> None:
    """A model that names no route goes to the address of the SDK, as it is."""
    publish(world, sdk, "none", "crlf")
    routes = world.routes()
    assert sdk.ask(routes, world.simulator.base_url)("fault-comments") == "fault-comments"
    assert routes.counters["passed_through"] == 1


@each_sdk("garbage table")
def test_garbage_is_ignored_and_counted(world: World, sdk: Sdk) -> None:
    """What is no table changes nothing, and the next table is followed."""
    publish(world, sdk, "none", "crlf")
    routes = world.routes()
    ask = sdk.ask(routes)
    world.server.publish_line(b"garbage")
    eventually(PATIENCE, lambda: routes.counters["tables_ignored"] == 1, "one ignored")
    assert ask("chat") == "fault-none"
    publish(world, sdk, "crlf", "none")
    eventually(PATIENCE, lambda: ask("chat") == "fault-crlf", "the next table")
