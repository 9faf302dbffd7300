"""The routing client passes the cases that all clients share, `clients/cases.json`."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isochrone.routing import subscription
from isochrone.routing.attempts import (
    Cooldowns,
    HedgeBudget,
    HedgePlan,
    attempt_limit_s,
    first_token_limit_s,
    order,
    plan_hedge,
)
from isochrone.routing.documents import TableError, read_table
from isochrone.routing.effectiveness import Effectiveness, followed
from isochrone.routing.engine import retry_after_s
from isochrone.routing.requests import ProviderRequest
from isochrone.routing.subscription import CollectorClock
from isochrone_common.route_consumer import FollowedTables, TableCursor
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteTable
from testdata.client_cases import CASES, NOT_LITELLM, cases
from testdata.insights import NOW_AT

TESTS = Path(__file__).resolve().parents[2]
SOURCES = {
    "Python": sorted(path for path in TESTS.rglob("isochrone/**/test_*.py") if path.parent.name != "litellm"),
    "LiteLLM": sorted(path for path in TESTS.rglob("isochrone/litellm/test_*.py")),
    "TypeScript": sorted((TESTS.parent / "clients" / "typescript" / "test").glob("*.test.ts")),
}


@pytest.mark.parametrize("language", SOURCES)
def test_every_client_passes_every_group(language: str) -> None:
    """A group of cases that the tests of one client leave out is an error, unless the file says why it cannot apply."""
    texts = [path.read_text() for path in SOURCES[language]]
    used = {name for text in texts for name in re.findall(r'\b(?:cases(?:_of_litellm)?\(|CASES\[)"(\w+)"', text)}
    left_out = set(NOT_LITELLM) if language == "LiteLLM" else set()
    assert used == set(CASES) - left_out
    assert left_out < set(CASES)


def instant(seconds: float) -> str:
    return rfc3339(NOW_AT + round(seconds * SECOND_US))


def document(
    *,
    weights: dict[str, Any],
    generation: int = 1,
    built: float = 0,
    fresh: float | None = None,
    stale: float = 100,
    static_order: tuple[str, ...] = (),
    state: str = "ok",
    move_within: float = 0,
    unassigned: float = 0,
) -> dict[str, Any]:
    """A table of a case as the JSON of a collector."""
    common = {"dialect": "openai-chat", "credential_ref": None, "hedge": None}
    entries = [
        {"rank": rank, "weight": weight, "target": name, "provider": name, "model": f"model-{name}", **common}
        | {"base_url": f"https://{name}.example/v1"}
        for rank, (name, weight) in enumerate(weights.items(), start=1)
    ]
    return {
        "schema": "isochrone.routes/1",
        "generation": generation,
        "etag": f"g{generation}",
        "client_region": "us-east-2",
        "route": "chat",
        "built_at": instant(built),
        "fresh_until_at": instant(stale if fresh is None else fresh),
        "stale_until_at": instant(stale),
        "state": state,
        "entries": entries,
        "static_order": list(static_order),
        "unassigned": unassigned,
        "move_within_us": round(move_within * SECOND_US),
    }


def table(**fields: Any) -> RouteTable:
    return read_table(json.dumps(document(**fields)))


@cases("order")
def test_order(case: dict[str, Any]) -> None:
    """The first member is drawn by weight, the others follow by rank; see the law of each case."""
    (entry,) = table(weights={"a": 1}).entries
    found = order(
        [replace(entry, target=name, weight=weight) for name, weight in case["weights"].items()],
        unassigned=case.get("unassigned", 0),
        draw=case["draw"],
        throttled=case.get("throttled", ()),
        failing=case.get("failing", ()),
    )
    assert [entry.target for entry in found] == case["order"]


@cases("tables")
def test_tables(case: dict[str, Any]) -> None:
    """Switches, expiry and the static order; see the law of each case."""
    tables = FollowedTables(share=case["share"])
    for step in case["steps"]:
        if "receive" in step:
            tables.receive(table(**step["receive"]))
            continue
        now_at = NOW_AT + round(step["at"] * SECOND_US)
        if "planned" in step:
            tables.forget_removed(step["planned"], now_at)
            continue
        found = tables.at(now_at)
        if step["generation"] is None:
            assert found == ()
            continue
        (one,) = found
        assert one.generation == step["generation"]
        assert {entry.target: entry.weight for entry in one.entries} == step["weights"]
        assert [entry.target for entry in one.entries] == list(step["weights"])
        assert (one.state == "insufficient_data") is step.get("is_static", False)


@cases("newer")
def test_newer(case: dict[str, Any]) -> None:
    """Which tables replace those seen before; see the law of each case."""
    cursor = TableCursor()
    for generation, built in case["seen"]:
        cursor = cursor.advance(table(weights={"a": 1}, generation=generation, built=built))
    generation, built = case["table"]
    received = table(weights={"a": 1}, generation=generation, built=built)
    assert cursor.compare(received).value == case["relation"]


@cases("hedge")
def test_hedge(case: dict[str, Any]) -> None:
    """When a second request is sent; see the law of each case."""
    plain = document(weights={name: float(name == case["order"][0]) for name in case["order"]})
    plain["entries"][0]["hedge"] = case["published"]
    plain["state"] = case.get("state", "ok")
    one = read_table(json.dumps(plain))
    found = plan_hedge(
        one,
        one.entries,
        is_streamed=case.get("is_streamed", True),
        has_effects=case.get("has_effects", False),
        allow_effects=case.get("allow_effects", False),
    )
    if isinstance(found, HedgePlan):
        assert {"delay_us": found.delay_us, "target": found.entry.target} == case["hedge"]
    else:
        assert found.value == case["refused"]


@cases("effective")
def test_effective(case: dict[str, Any]) -> None:
    """Which share of the requests follows the weights, and after which requests an error says so."""
    noted, reported, requests = Effectiveness(), list[int](), 0
    for step in case["steps"]:
        entries = [
            replace(table(weights={"a": 1}).entries[0], target=name, weight=weight)
            for name, weight in step["weights"].items()
        ]
        for _ in range(step["times"]):
            requests += 1
            share = followed(entries, usable=step["usable"], resting=step.get("resting", ()))
            if share is not None and noted.add(share):
                reported.append(requests)
    assert (None if noted.share is None else round(noted.share, 3)) == case["share"]
    assert reported == case["reported"]


@cases("effects")
def test_effects(case: dict[str, Any]) -> None:
    """Which requests must not be sent twice; see the law of each case."""
    dialect = case.get("dialect", "openai-chat")
    request = ProviderRequest(dialect=dialect, endpoint="", document=case["document"])
    assert request.has_effects is case["has_effects"]


@cases("limits")
def test_limits(case: dict[str, Any]) -> None:
    """How long a member may be without content; see the law of each case."""
    plain = document(weights={"a": 1})
    plain["entries"][0] |= case["entry"]
    (entry,) = read_table(json.dumps(plain)).entries
    options = {"is_streamed": case.get("is_streamed", True), "max_tokens": case.get("max_tokens")}
    first_token_s = first_token_limit_s(entry, body_bytes=case["body_bytes"], **options)
    left_s, is_last = case.get("left", math.inf), case.get("is_last", False)
    assert attempt_limit_s(first_token_s, left_s=left_s, is_last=is_last) == (case["seconds"] or math.inf)


@cases("clock")
def test_clock(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What time it is at the collector, by the clocks of Linux, of which one stops while the machine is suspended."""
    read = {"wall": 0, "steady": 0, "suspended": 0}
    clocks: Any = SimpleNamespace(
        CLOCK_MONOTONIC=1,
        CLOCK_BOOTTIME=7,
        time_ns=lambda: 1000 * NOW_AT + read["wall"] * 10**9,
        monotonic_ns=lambda: read["steady"] * 10**9,
        clock_gettime_ns=lambda one: (
            (read["steady"] + (read["suspended"] if one == clocks.CLOCK_BOOTTIME else 0)) * 10**9
        ),
    )
    monkeypatch.setattr(subscription, "time", clocks)
    clock = CollectorClock()
    for step in case["steps"]:
        read |= step
        if "date" in step:
            clock.set(step["date"])
        else:
            assert clock.now_at() == NOW_AT + step["now"] * SECOND_US


@cases("budget")
def test_budget(case: dict[str, Any]) -> None:
    """How many second requests are sent: `r` is a request, `h` asks for a hedge; see the law of each case."""
    budget = HedgeBudget(ratio=case["ratio"], burst=case["burst"])
    granted = ""
    for ask in case["asks"]:
        if ask == "r":
            budget.add_request()
        granted += "." if ask == "r" else "y" if budget.take() else "n"
    assert granted == case["granted"]


@cases("cooldowns")
def test_cooldowns(case: dict[str, Any]) -> None:
    """How long a member rests after a 429 or a failure; see the law of each case."""
    cooldowns = Cooldowns()
    for step in case["steps"]:
        now_s, draw = step["at"], step.get("draw", 0)
        for _ in range(step.get("times", 1)):
            if "throttle" in step:
                retry_after = step.get("retry_after")
                cooldowns.fail(step["throttle"], is_throttled=True, retry_after_s=retry_after, now_s=now_s, draw=draw)
            if "fail" in step:
                cooldowns.fail(step["fail"], now_s=now_s, draw=draw)
            if "succeed" in step:
                cooldowns.succeed(step["succeed"])
        assert cooldowns.throttled(now_s) == step.get("throttled", cooldowns.throttled(now_s))
        assert cooldowns.failing(now_s) == frozenset(step.get("failing", cooldowns.failing(now_s)))


@cases("retry_after")
def test_retry_after(case: dict[str, Any]) -> None:
    """How long a provider asks to wait; see the law of each case."""
    headers = [(name.title().encode(), value.encode()) for name, value in case["headers"].items()]
    assert retry_after_s(headers) == case["seconds"]


@cases("garbage")
def test_garbage(case: dict[str, Any]) -> None:
    """Documents on which no client acts."""
    plain = document(weights=case.get("weights", {"a": 1, "b": 0}))
    if "weights" not in case:
        read_table(json.dumps(plain))
    plain |= case.get("change", {})
    plain.pop(case.get("remove", ""), None)
    if "entry" in case:
        plain["entries"][0] |= case["entry"]
    with pytest.raises(TableError):
        read_table(case.get("text", json.dumps(plain)))
