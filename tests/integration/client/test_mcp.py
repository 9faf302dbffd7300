"""`isochrone mcp`, asked by the official SDK's client, with a real collector; and the section of docs/http.md on it."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from fixtures.collector import Collector, StartCollector
from fixtures.fake_collector import FakeCollector
from isochrone_client.client import ReadClient
from isochrone_client.errors import RefusedError
from isochrone_wire.answers import Window
from isochrone_wire.model import MINUTE_US
from testdata.documented_commands import ROOT, blocks_of, make_checkout, section
from testdata.pushed_rounds import FIRST, PLAN, SG, THIRD, US, Fleet, rounds_until, without
from testdata.reading import printed
from testdata.routes import EXPLANATION
from testdata.waiting import eventually

if TYPE_CHECKING:
    # Every worker collects this module, and one runs it: the import takes longer than any other.
    from mcp import Client
    from mcp_types import CallToolResult

TOOLS = {"leaderboard", "diff", "routes", "explain", "status", "incidents", "estimate"}
PATIENCE = 30.0
NOBODY = "127.0.0.1:1"

pytestmark = pytest.mark.consumer("MCP", "tools answer")
shares_assistant = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def connected(address: str, *options: str) -> "AsyncIterator[Client]":
    from mcp import Client, StdioServerParameters

    command = ["-m", "isochrone_client", "mcp", "--collector", address, *options]
    environment = {name: os.environ[name] for name in ("PYTHONPATH", "XDG_CONFIG_HOME") if name in os.environ}
    async with Client(StdioServerParameters(command=sys.executable, args=command, env=environment)) as client:
        yield client


def text_of(result: "CallToolResult") -> str:
    from mcp_types import TextContent

    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def document(client: "Client", tool: str, **inputs: Any) -> dict[str, Any]:
    """The structured content of an answer that is no error."""
    result = await client.call_tool(tool, inputs)
    assert not result.is_error, text_of(result)
    content: dict[str, Any] = result.structured_content
    return content


async def refusal(client: "Client", tool: str, **inputs: Any) -> str:
    result = await client.call_tool(tool, inputs)
    assert result.is_error
    return text_of(result)


@pytest.fixture(scope="module")
def measured(shared_collector: Collector) -> Collector:
    """A collector with 70 rounds of three targets from two regions, route tables, and an incident of the third."""
    call = shared_collector.call
    call.apply(PLAN)
    fleet = Fleet({target.name: target.id for target in call.targets().targets})
    now_at = time.time_ns() // 1000
    fleet.push_rounds(call, rounds_until(now_at - 5 * MINUTE_US, 70))
    fleet.push_rounds(call, rounds_until(now_at, 5), without(THIRD))
    with ReadClient(shared_collector.http_address) as client:

        def has_tables() -> bool:
            with suppress(RefusedError):
                return all(client.get_tables(region).tables for region in (US, SG))
            return False

        def has_incident() -> bool:
            return bool(
                client.list_incidents(
                    Window(from_at=now_at - 60 * MINUTE_US, until_at=now_at + 60 * MINUTE_US)
                ).incidents
            )

        eventually(PATIENCE, has_tables, "tables in both regions")
        eventually(PATIENCE, has_incident, "an incident")
    return shared_collector


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def assistant(measured: Collector) -> "AsyncIterator[Client]":
    """A client of one command for all tests that only ask, marked with `shares_assistant`."""
    client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    is_over = asyncio.Event()

    async def hold() -> None:
        """Connect and disconnect in one task, as the SDK requires; a fixture begins and ends in two."""
        async with connected(measured.http_address) as one:
            client.set_result(one)
            await is_over.wait()

    held = asyncio.create_task(hold())
    either: list[asyncio.Future[Any]] = [held, client]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if client.done():
        yield client.result()
    is_over.set()
    await held


@shares_assistant
async def test_every_tool_says_what_it_takes(assistant: "Client") -> None:
    """Each question is a read-only tool with a description, and each input has a type and a description."""
    tools = {tool.name: tool for tool in (await assistant.list_tools()).tools}
    assert assistant.server_info is not None
    assert assistant.server_info.name == "isochrone"
    assert set(tools) == TOOLS
    for tool in tools.values():
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.description
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["additionalProperties"] is False
        for name, one in tool.input_schema["properties"].items():
            assert one["description"], (tool.name, name)
            assert {"type", "enum"} & set(one), (tool.name, name)
            assert "$ref" not in str(one), (tool.name, name)


@shares_assistant
async def test_answers_are_those_of_the_commands(assistant: "Client", measured: Collector) -> None:
    """Over the same window, the structured content of a tool is the document that the command prints."""
    today = datetime.now(UTC).date()
    window = f"{today - timedelta(days=1)}..{today + timedelta(days=2)}"
    day = ["--window", window]
    address = measured.http_address
    asked: list[tuple[str, dict[str, Any], list[str]]] = [
        ("leaderboard", {"by": "e2e"}, ["leaderboard", "--by", "e2e"]),
        (
            "diff",
            {"baseline": SG, "metric": "e2e", "targets": [FIRST]},
            ["diff", "--baseline", SG, "--metric", "e2e", "--target", FIRST],
        ),
        ("diff", {"explain": FIRST}, ["diff", "--explain", FIRST]),
        ("incidents", {"past": True}, ["incidents", "--past"]),
        ("estimate", {"answer_tokens": 100, "limit_seconds": 5}, ["slo", "--answer", "100", "--limit", "5"]),
    ]
    for tool, inputs, arguments in asked:
        # An incident grows while it is detected: two answers that differ are asked for again.
        for left in reversed(range(20)):
            answer = await document(assistant, tool, **inputs, window=window)
            shown = printed(address, *arguments, *day)
            answered = stable({name: answer[name] for name in shown})
            if answered == stable(shown) or not left:
                break
            await asyncio.sleep(0.5)
        assert answer["rows"]
        assert answered == stable(shown), arguments


def stable(document: dict[str, Any]) -> str:
    """The document without the ages in its sentences, which change from second to second."""
    rows = [{name: value for name, value in row.items() if name != "story"} for row in document["rows"]]
    return json.dumps(document | {"rows": rows}, sort_keys=True)


@shares_assistant
async def test_tables_and_their_reasons(assistant: "Client") -> None:
    """The tables of a region name its first choice, and the decision behind one replays, without its stored inputs."""
    tables = await document(assistant, "routes", regions=["us-east"])
    reasons = await assistant.call_tool("explain", {"region": US, "route": "chat"})
    assert [(row["client_region"], row["route"]) for row in tables["rows"]] == [(US, "chat")]
    assert tables["rows"][0]["entries"][0]["target"] == FIRST
    content = reasons.structured_content
    assert content["replays"] is True
    assert content["steps"]
    assert "inputs" not in content
    assert "gives the same table, byte for byte" in text_of(reasons)


@shares_assistant
async def test_texts_are_for_reading(assistant: "Client") -> None:
    """The text is a table with units; an explanation has sentences and the phases."""
    ranking = text_of(await assistant.call_tool("leaderboard", {"regions": [US]}))
    story = text_of(await assistant.call_tool("diff", {"explain": FIRST}))
    failing = text_of(await assistant.call_tool("incidents", {}))
    assert "ttft p50 (ms)" in ranking
    assert SG not in ranking
    assert "| explanation |" in story
    assert THIRD in failing


@shares_assistant
async def test_fields_shorten_an_answer(assistant: "Client") -> None:
    """Only the named fields are in the text and in the rows."""
    result = await assistant.call_tool("leaderboard", {"fields": ["rank", "target", "ttft_p50_us.value"]})
    assert {tuple(row) for row in result.structured_content["rows"]} == {("rank", "target", "ttft_p50_us.value")}
    assert "| rank | target | ttft\\_p50\\_us.value |" in text_of(result)


@pytest.mark.parametrize(
    ("tool", "inputs", "sentences"),
    [
        (
            "leaderboard",
            {"regions": ["us-aest-2"]},
            ("unknown region 'us-aest-2'", "did you mean 'us-east-2'?", "hint: "),
        ),
        ("leaderboard", {"targets": ["alfa/m"]}, ("alfa/m", "did you mean 'alpha/m'?")),
        ("leaderboard", {"window": "24"}, ("'24' has no unit", "hint: write 24h")),
        ("leaderboard", {"by": "latency"}, ("ttft",)),
        ("leaderboard", {"fields": ["rnk"]}, ("unknown field 'rnk'", "did you mean 'rank'?")),
        ("leaderboard", {"region": US}, ("region", "Extra inputs are not permitted")),
        ("explain", {"region": US, "route": "chatt"}, ("unknown route 'chatt'", "chat")),
        ("incidents", {"incident": "x"}, ("'x' is not the id of an incident", "hint: ")),
        ("estimate", {"answer_tokens": 0}, ("answer_tokens", "greater than or equal to 1")),
        ("leaderboard", {"window": "2026-01-01..2026-01-02"}, ("no samples between",)),
    ],
)
@shares_assistant
async def test_errors_have_hints(assistant: "Client", tool: str, inputs: dict[str, Any], sentences: list[str]) -> None:
    """An answer that cannot be given is an error of the tool, with the nearest name or what to do."""
    text = await refusal(assistant, tool, **inputs)
    for sentence in sentences:
        assert sentence in text


@shares_assistant
async def test_too_little_data_is_a_note(assistant: "Client") -> None:
    """An answer without any decision is an answer, with a note of what would help."""
    answer = await document(assistant, "estimate", answer_tokens=100, window="3m")
    assert {row["eligible"] for row in answer["rows"]} == {"unknown"}
    assert "no latency target has a verdict yet" in answer["note"]
    assert answer["hint"]


async def test_without_samples_the_agent_to_start_is_named(start_collector: StartCollector) -> None:
    """On a collector with a plan and without samples, each question is answered with what is missing."""
    collector = start_collector()
    collector.call.apply(PLAN)
    async with connected(collector.http_address) as client:
        assert f"no samples from {US}: start an agent there" in await refusal(client, "leaderboard")
        assert "isochrone-agent run --vantage" in await refusal(client, "diff")
        async with asyncio.timeout(PATIENCE):
            while (tables := await client.call_tool("routes", {})).is_error:
                await asyncio.sleep(0.1)  # the first ones are built after the plan
        assert "no table is usable" in tables.structured_content["note"]
        assert "no samples" in await refusal(client, "estimate", answer_tokens=100)
        found = await document(client, "status")
        assert (found["verdict"], found["rows"], found["note"]) == ("too_young", [], "it is too early to judge")
        assert text_of(await client.call_tool("status", {})).startswith("too young: nothing was measured yet")
        assert (await document(client, "incidents"))["rows"] == []


async def test_a_collector_that_is_away_is_asked_again(start_collector: StartCollector) -> None:
    """While no collector answers, each question is an error with a hint; later ones are answered as usual."""
    collector = start_collector()
    collector.call.apply(PLAN)
    async with connected(collector.http_address, "--timeout", "2") as client:
        assert (await document(client, "incidents"))["rows"] == []
        collector.stop()
        text = await refusal(client, "incidents")
        assert f"no collector answers at {collector.http_address}" in text
        assert "hint: is it running? start one with `isochrone-collector serve`" in text
        start_collector(port=collector.port, http_port=collector.http_port)
        assert (await document(client, "incidents"))["rows"] == []


async def test_a_decision_that_does_not_replay_is_noted(routing: FakeCollector) -> None:
    """An explanation whose repetition gives another table is shown with that note."""
    routing.explanation = replace(EXPLANATION, replays=False)
    async with connected(routing.address) as client:
        result = await client.call_tool("explain", {"region": US, "route": "chat"})
    assert not result.is_error
    assert "does not give generation" in result.structured_content["note"]
    assert "note: repeating the decision from the stored inputs does not give" in text_of(result)


def test_the_end_of_the_input_is_the_end() -> None:
    """When the assistant closes standard input, the command exits with 0 and has printed nothing."""
    command = [sys.executable, "-m", "isochrone_client", "mcp", "--collector", NOBODY]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_the_extra_one_line_names_it() -> None:
    """Without the SDK the command ends with one error, whose hint installs it."""
    code = (
        "import sys; sys.modules['mcp'] = None; sys.argv[1:] = ['mcp']; from isochrone_client.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: isochrone mcp needs the package mcp, which is not installed\nhint: pip install 'isochrone[mcp]'\n"
    )


PAGE = section("http.md", "Assistants")


@pytest.fixture
def environment(observatory: FakeCollector, tmp_path: Path) -> dict[str, str]:
    """The variables of a reader whose commands ask a fake collector, in a folder that looks like a checkout."""
    make_checkout(tmp_path)
    # The SDK's client passes few variables on, which is why the program has the path of this checkout.
    module_path = os.pathsep.join(filter(None, sys.path))
    program = f"#!/bin/sh\nPYTHONPATH='{module_path}' exec {sys.executable} -m isochrone_client \"$@\"\n"
    (tmp_path / "bin" / "isochrone").write_text(program)
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "ISOCHRONE_COLLECTOR": observatory.address}


def test_the_commands_of_the_page(environment: dict[str, str], tmp_path: Path) -> None:
    """The extra that is installed exists with the SDK, and the command that follows gets an answer."""
    (block,) = blocks_of(PAGE)
    install, *others = block.splitlines()
    assert install == "pip install 'isochrone[mcp]'"
    assert re.search(r'^mcp = \["mcp>=', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for line in others:
        done = subprocess.run(["bash", "-ec", line], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


async def test_the_file_of_the_page_starts_the_server(environment: dict[str, str]) -> None:
    """The program of the file answers an assistant, and the table of the page has its tools with their inputs."""
    from mcp import Client, StdioServerParameters

    (file,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (server,) = json.loads(file)["mcpServers"].values()
    async with Client(StdioServerParameters(**server, env=environment)) as client:
        tools = (await client.list_tools()).tools
        answer = await client.call_tool("leaderboard", {})
    assert not answer.is_error
    rows = re.findall(r"^\| `(\w+)` \|.*\| (`.*`) \|$", PAGE, re.MULTILINE)
    described = {name: re.findall(r"`(\w+)`", inputs) for name, inputs in rows}
    assert described == {tool.name: list(tool.input_schema["properties"]) for tool in tools}


def test_the_program_of_the_page(environment: dict[str, str]) -> None:
    """The example prints the ranking as text."""
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert 'args=["mcp"]' in example
    collector = environment["ISOCHRONE_COLLECTOR"]
    program = example.replace('["mcp"]', f'["mcp", "--collector", "{collector}"]')
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "leaderboard by median ttft" in done.stdout
