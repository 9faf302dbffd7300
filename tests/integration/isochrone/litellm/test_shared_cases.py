"""The callback of LiteLLM passes the cases of `clients/cases.json` that can apply to it."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fixtures.litellm import RouterProgram, Tables, deployment, plugin_settings, requires_litellm
from fixtures.peer import peer
from fixtures.scripted_member import member
from testdata.client_cases import CASES, cases_of_litellm
from testdata.waiting import eventually

pytestmark = [requires_litellm, pytest.mark.slow]

PATIENCE = 10.0
Case = dict[str, Any]
NAMES, WITNESS = ("first", "second"), "sim/witness"
numbers = count()


class Callback:
    """The program with the callback, and the tables that it follows."""

    def __init__(self, folder: Path) -> None:
        self.tables = Tables()
        self.tables.server.start()
        settings = {**plugin_settings(self.tables, folder), "regions": [], "cache_folder": None}
        self.program = RouterProgram(settings, folder, "litellm_callback.py")
        self.program.start()

    def follow(self, weights: dict[str, float], *, unassigned: float = 0.0) -> str:
        """A new route with these members; one without a deployment has the weight that they leave."""
        route, left = f"route-{next(numbers)}", 1 - unassigned - sum(weights.values())
        weights = {**weights, "absent": left} if left > 0.001 else weights
        self.tables.publish(*weights, route=route, weights=tuple(weights.values()), unassigned=unassigned)
        eventually(PATIENCE, lambda: self.call("follows", route=route), "the table")
        return route

    def call(self, name: str, **arguments: Any) -> Any:
        return self.program.command([name, arguments])


@pytest.fixture(scope="module")
def callback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callback]:
    callback = Callback(tmp_path_factory.mktemp("litellm"))
    yield callback
    callback.program.stop()
    callback.tables.server.stop()


@cases_of_litellm("order")
def test_order(callback: Callback, case: Case) -> None:
    """To which members the attempts of a request go, one after the other; see the law of each case."""
    route = callback.follow(case["weights"], unassigned=case.get("unassigned", 0.0))
    more = {name: case.get(name, []) for name in ("throttled", "failing")}
    found = callback.call("order", route=route, names=list(case["weights"]), draw=case["draw"], **more)
    assert found == case["order"]


@cases_of_litellm("effective")
def test_effective(callback: Callback, case: Case) -> None:
    """Which share of the requests follows the weights, and after which requests an error says so."""
    route = callback.follow(case["steps"][0]["weights"])
    found = callback.call("effective", route=route, steps=case["steps"])
    assert found == {"share": case["share"], "reported": case["reported"]}


@cases_of_litellm("cooldowns")
def test_cooldowns(callback: Callback, case: Case) -> None:
    """How long a deployment rests after a 429 or a failure; see the law of each case."""
    for step, found in zip(case["steps"], callback.call("rests", steps=case["steps"]), strict=True):
        assert found | {name: step[name] for name in found if name in step} == found


@cases_of_litellm("retry_after")
def test_retry_after(callback: Callback, case: Case) -> None:
    """How long a provider asks to wait, by the headers of its refusal: without that, for a second."""
    (found,) = callback.call("rests", steps=[{"at": 0, "throttle": "a", "headers": case["headers"]}])
    seconds = 1.0 if case["seconds"] is None else case["seconds"]
    assert found["throttled"] == ({"a": seconds} if seconds else {})


@pytest.mark.consumer("LiteLLM", "first choice dead")
@pytest.mark.parametrize("is_streamed", [False, True], ids=["answer", "stream"])
@cases_of_litellm("failover")
async def test_failover(callback: Callback, case: Case, *, is_streamed: bool) -> None:
    """Which member answers, what rests, and what the log states; LiteLLM's own router makes the attempts."""
    if is_streamed not in case.get("stream", [False, True]):
        return
    async with AsyncExitStack() as stack:
        number, models = next(numbers), []
        names = {name: f"sim/{name}-{number}" for name in NAMES}
        weights = {names["first"]: 1.0, names["second"]: 0.0, WITNESS: 0.0}
        route = await asyncio.to_thread(callback.follow, weights)
        for name, target in names.items():
            port = await stack.enter_async_context(peer(member(name, case.get(name, {}), is_streamed=is_streamed)))
            models.append(deployment(route, target, name, f"http://127.0.0.1:{port}/v1", max_retries=0))
        if case.get("failed_before"):
            await asyncio.to_thread(callback.call, "fail_of", route=route, deployment=names["first"])
        answer = await asyncio.to_thread(callback.call, "ask", route=route, models=models, stream=is_streamed)
        # No request is sent to the deployment that shows whether the first one rests.
        following = await asyncio.to_thread(callback.call, "chosen", route=route, ids=[names["first"], WITNESS])
    assert answer == case["answer"]
    assert following == [WITNESS if case["rest"] else names["first"]]
    line = (case.get("logged") or "").replace("route chat", f"route {route}").replace("sim/first", names["first"])
    assert line.replace("fault-first", f"fault-first-{number}") in callback.program.log.read_text()


def test_a_reason_is_stated() -> None:
    """A case that cannot apply has a sentence."""
    reasons = [case["litellm"] for cases in CASES.values() for case in cases if isinstance(case.get("litellm"), str)]
    assert all(len(reason.split()) > 3 for reason in reasons)
