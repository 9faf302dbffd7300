"""The Portkey gateway with the file of `isochrone routes export --follow`: the real program of npm, before simulated
providers.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from fixtures.fake_collector import FakeCollector
from fixtures.portkey import Portkey, StartPortkey, requires_portkey
from fixtures.simulator import API_KEY, Simulator
from isochrone_client.gateways import gateway
from isochrone_client.window import now_at
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable
from testdata.ports import dead_url
from testdata.reading import following
from testdata.routes import CHAT
from testdata.waiting import eventually

PATIENCE = 10.0
REGION, OTHER_REGION = "us-east-2", "eu-central-1"
# Models of the simulator that answer.
FIRST, SECOND, THIRD = "fault-none", "fault-no-usage", "fault-crlf"
# The path of requests, and how the last line of a stream begins.
ENDS = {
    "openai-chat": ("/v1/chat/completions", "data: [DONE]"),
    "openai-responses": ("/v1/responses", 'data: {"type":"response.completed"'),
}
DIALECTS = ("openai-chat", "anthropic", "gemini", "cohere")
pytestmark = requires_portkey


def entry(simulator: Simulator, model: str, weight: float = 0.0, **changes: Any) -> RouteEntry:
    dialect = changes.get("dialect", "openai-chat")
    return RouteEntry(
        rank=1,
        weight=weight,
        target=f"sim/{model}/{dialect}",
        provider="sim",
        model=model,
        **{"dialect": dialect, "base_url": simulator.base_url_of(dialect)} | changes,
    )


def table(generation: int, *entries: RouteEntry, seconds: float = 600, **changes: Any) -> RouteTable:
    """A table built now, with all traffic at its first member unless one has a weight."""
    if not any(one.weight for one in entries):
        entries = (replace(entries[0], weight=1.0), *entries[1:])
    stale_at = now_at() + round(seconds * SECOND_US)
    fields = {
        "generation": generation,
        "etag": f"{generation}-e",
        "built_at": now_at(),
        "fresh_until_at": stale_at,
        "stale_until_at": stale_at,
        "entries": tuple(replace(one, rank=rank) for rank, one in enumerate(entries, start=1)),
        "static_order": tuple(one.target for one in entries),
        "race": None,
    }
    return replace(CHAT, **{**fields, **changes})


def written(file: Path, *tables: RouteTable) -> Path:
    """The file with the export of these tables, replaced as `--follow` replaces it."""
    region = RegionTables(client_region=REGION, generation=48, etag="e", answered_at=now_at(), tables=tables)
    beside = file.with_suffix(".new")
    beside.write_text(gateway("portkey").render(region)[""])
    beside.replace(file)
    return file


def models(gateway: Portkey, count: int, **headers: str) -> Counter[str | None]:
    answers = [gateway.ask(**headers) for _ in range(count)]
    assert {answer.status for answer in answers} == {200}, answers
    return Counter(answer.model for answer in answers)


@pytest.mark.consumer("Portkey", "regions differ")
@pytest.mark.consumer("Portkey", "change moves traffic within 2 s")
def test_traffic_follows_the_tables_of_the_region(
    routing: FakeCollector,
    fault_simulator: Simulator,
    start_portkey: StartPortkey,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """The gateway of each region has its own first choice, and a new table moves its traffic without a restart."""
    here = [entry(fault_simulator, name) for name in (FIRST, SECOND, THIRD)]
    there = list(reversed(here))
    routing.restart(table(50, *here), table(51, *there, client_region=OTHER_REGION))
    files = {region: tmp_path / f"{region}.json" for region in (REGION, OTHER_REGION)}
    with (
        following(routing.address, files[REGION], kind="portkey"),
        following(routing.address, files[OTHER_REGION], "--region", OTHER_REGION, kind="portkey"),
    ):
        eventually(PATIENCE, lambda: all(file.exists() for file in files.values()), "the files")
        ours, theirs = (start_portkey(file) for file in files.values())
        assert models(ours, 5) == {FIRST: 5}
        assert models(theirs, 5) == {THIRD: 5}
        routing.publish(table(52, here[1], here[0], here[2]))
        record_property("moved_s", ours.until(SECOND))
        assert models(ours, 5) == {SECOND: 5}
        assert models(theirs, 5) == {THIRD: 5}
        assert ours.process.poll() is None


@pytest.mark.consumer("Portkey", "first choice dead")
@pytest.mark.parametrize("death", ["fault-500", "fault-503", "fault-429", "refuses"])
def test_requests_survive(fault_simulator: Simulator, start_portkey: StartPortkey, tmp_path: Path, death: str) -> None:
    """If the first choice fails, throttles or refuses connections, the next one serves ten of ten requests."""
    dead = entry(fault_simulator, FIRST if death == "refuses" else death)
    if death == "refuses":
        dead = replace(dead, base_url=dead_url())
    members = [dead, entry(fault_simulator, SECOND), entry(fault_simulator, THIRD)]
    gateway = start_portkey(written(tmp_path / "portkey.json", table(50, *members)))
    assert models(gateway, 10) == {SECOND: 10}


@pytest.mark.consumer("Portkey", "collector gone")
def test_without_a_collector_the_last_table_stays_until_it_is_stale(
    routing: FakeCollector, fault_simulator: Simulator, start_portkey: StartPortkey, tmp_path: Path
) -> None:
    """Without a collector the last table is followed until `stale_until`, and then the static order."""
    members = [entry(fault_simulator, name) for name in (FIRST, SECOND)]
    file = tmp_path / "portkey.json"
    routing.restart(table(50, *members))
    with following(routing.address, file, kind="portkey"):
        eventually(PATIENCE, file.exists, "the file")
        gateway = start_portkey(file)
        assert models(gateway, 3) == {FIRST: 3}
        last = table(51, members[1], members[0], seconds=8, static_order=tuple(one.target for one in members))
        routing.publish(last)
        gateway.until(SECOND)
        routing.breaking = [0] * 1000
        routing.starts += 1
        assert gateway.ask().model == SECOND
        assert now_at() < last.stale_until_at
        gateway.until(FIRST)
        assert now_at() >= last.stale_until_at


@pytest.mark.consumer("Portkey", "unknown model")
def test_other_requests_are_left_alone(fault_simulator: Simulator, start_portkey: StartPortkey, tmp_path: Path) -> None:
    """A model that is no route reaches no member; a request with a provider or config of its own goes there."""
    gateway = start_portkey(written(tmp_path / "portkey.json", table(50, entry(fault_simulator, FIRST))))
    served = len(fault_simulator.truth())
    assert gateway.ask("elsewhere").status >= 400
    assert len(fault_simulator.truth()) == served
    own = {
        "x_portkey_provider": "openai",
        "x_portkey_custom_host": fault_simulator.base_url,
        "authorization": "Bearer k",
    }
    assert gateway.ask(SECOND, **own).model == SECOND
    config = {"provider": "openai", "api_key": "k", "custom_host": fault_simulator.base_url}
    assert gateway.ask(SECOND, x_portkey_config=json.dumps(config)).model == SECOND


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "no JSON",
        "[]",
        "null",
        '{"strategy": {"mode": "single"}, "targets": []}',
        '{"strategy": {"mode": "single"}, "targets": [{"provider": "openai"}]}',
    ],
)
@pytest.mark.consumer("Portkey", "garbage table")
def test_a_garbage_file_is_ignored_and_reported(
    fault_simulator: Simulator, start_portkey: StartPortkey, tmp_path: Path, garbage: str
) -> None:
    """A file that is no config changes nothing and is reported once; the next good one is used."""
    first, second = (entry(fault_simulator, name) for name in (FIRST, SECOND))
    file = written(tmp_path / "portkey.json", table(50, first))
    gateway = start_portkey(file)
    assert models(gateway, 1) == {FIRST: 1}
    file.write_text(garbage)
    assert models(gateway, 3) == {FIRST: 3}
    assert gateway.log.read_text().count("portkey.json is ignored") == 1
    file.unlink()
    assert models(gateway, 1) == {FIRST: 1}
    written(file, table(51, second))
    assert models(gateway, 1) == {SECOND: 1}


@pytest.mark.consumer("Portkey", "garbage table")
def test_a_garbage_table_is_ignored_and_reported(
    routing: FakeCollector, fault_simulator: Simulator, start_portkey: StartPortkey, tmp_path: Path
) -> None:
    """A table on which nobody can act leaves the file as it is and is reported; the next good one is followed."""
    first, second = (entry(fault_simulator, name) for name in (FIRST, SECOND))
    file = tmp_path / "portkey.json"
    routing.restart(table(50, first))
    with following(routing.address, file, kind="portkey") as messages:
        eventually(PATIENCE, file.exists, "the file")
        gateway = start_portkey(file)
        routing.publish(table(51, replace(second, base_url="javascript:alert(1)")))
        eventually(PATIENCE, lambda: "chat: generation 51 is ignored" in messages.read_text(), "a message")
        assert models(gateway, 3) == {FIRST: 3}
        routing.publish(table(52, second))
        gateway.until(SECOND)


def test_weights_split_the_traffic(fault_simulator: Simulator, start_portkey: StartPortkey, tmp_path: Path) -> None:
    """Of 80 requests about three in four go to the first member, the others to the second, and none to the third."""
    members = [entry(fault_simulator, name, weight) for name, weight in ((FIRST, 0.75), (SECOND, 0.25), (THIRD, 0.0))]
    served = models(start_portkey(written(tmp_path / "portkey.json", table(50, *members))), 80)
    assert set(served) == {FIRST, SECOND}
    assert 42 <= served[FIRST] <= 75


def test_keys_are_of_the_gateway(simulator_with_key: Simulator, start_portkey: StartPortkey, tmp_path: Path) -> None:
    """Each member gets its key of the gateway's environment. One whose key is missing is left out and reported."""
    members = [
        entry(simulator_with_key, FIRST, credential_ref="absent"),
        entry(simulator_with_key, SECOND, credential_ref="of-sim.2"),
    ]
    gateway = start_portkey(written(tmp_path / "portkey.json", table(50, *members)), {"OF_SIM_2_API_KEY": API_KEY})
    assert models(gateway, 5) == {SECOND: 5}
    assert "ABSENT_API_KEY" in gateway.log.read_text()
    assert API_KEY not in gateway.log.read_text()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_members_of_each_dialect_answer(
    fault_simulator: Simulator, start_portkey: StartPortkey, tmp_path: Path, dialect: str
) -> None:
    """A chat completion is translated for a member of another dialect, at that member's address."""
    gateway = start_portkey(
        written(tmp_path / "portkey.json", table(50, entry(fault_simulator, FIRST, dialect=dialect)))
    )
    answer = gateway.ask()
    assert answer.status == 200, answer
    assert json.loads(answer.body)["choices"][0]["message"]["content"]


def test_responses_reach_their_dialect(fault_simulator: Simulator, start_portkey: StartPortkey, tmp_path: Path) -> None:
    """A request to the Responses API goes to a member that speaks it."""
    member = entry(fault_simulator, FIRST, dialect="openai-responses")
    gateway = start_portkey(written(tmp_path / "portkey.json", table(50, member)))
    response = httpx.post(f"{gateway.url}/v1/responses", json={"model": "chat", "input": "Hi"}, trust_env=False)
    assert (response.status_code, response.json()["model"]) == (200, FIRST), response.text


@pytest.mark.consumer("Portkey", "first choice dead")
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("first", [FIRST, "fault-500", "fault-429"])
def test_streams_pass(
    fault_simulator: Simulator, start_portkey: StartPortkey, tmp_path: Path, dialect: str, first: str
) -> None:
    """A stream reaches the caller to its end, also that of the next member if the first one fails."""
    members = [entry(fault_simulator, name, dialect=dialect) for name in (first, SECOND)]
    gateway = start_portkey(written(tmp_path / "portkey.json", table(50, *members)))
    path, last = ENDS[dialect]
    body = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": "Hi"}], "input": "Hi"}
    with httpx.stream("POST", f"{gateway.url}{path}", json=body, timeout=PATIENCE, trust_env=False) as response:
        lines = [line for line in response.iter_lines() if line]
    assert (response.status_code, len(lines) > 5, lines[-1][: len(last)]) == (200, True, last), lines


def test_a_name_of_any_characters(fault_simulator: Simulator, start_portkey: StartPortkey, tmp_path: Path) -> None:
    """A route may have any name, and may be named in the metadata of the request instead of its model."""
    name = 'ü — "漢字" {{KEY:x}} \\'
    file = written(tmp_path / "portkey.json", table(50, entry(fault_simulator, FIRST), route=name))
    gateway = start_portkey(file)
    assert gateway.ask(name).model == FIRST
    assert gateway.ask("gpt", x_portkey_metadata=json.dumps({"route": name})).model == FIRST


def test_the_config_in_a_header(fault_simulator: Simulator, start_portkey: StartPortkey, tmp_path: Path) -> None:
    """Without the file, a program can send the exported config itself, with the keys in place of their names."""
    text = written(
        tmp_path / "portkey.json", table(50, entry(fault_simulator, SECOND, credential_ref="sim"))
    ).read_text()
    gateway = start_portkey(tmp_path / "missing.json")
    assert gateway.ask().status == 400
    assert gateway.ask(x_portkey_config=text.strip().replace("{{KEY:sim}}", "k")).model == SECOND
    assert "missing.json is ignored" in gateway.log.read_text()
