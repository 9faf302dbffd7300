"""A program with the callback by itself, and with it in LiteLLM's `Router`, run by a Python that has LiteLLM.

Its argument is a file with the arguments of the callback. Commands are lines of JSON: the name of a function below, and
its arguments; its result is the answer. No time passes for what rests, unless a command moves the clock.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import litellm

from isochrone.litellm import regional_routing
from isochrone.litellm.regional_routing import RegionalRouting

CLOCK = {"now_s": 1000.0}
ROUTER: Any = {"num_retries": 2, "disable_cooldowns": True, "enable_weighted_failover": True}
OF_ANOTHER = "of another route"


class FailedError(Exception):
    """A failure as LiteLLM reports it."""

    def __init__(self, status_code: int, headers: dict[str, str]) -> None:
        self.status_code, self.litellm_response_headers = status_code, headers


class Reports(logging.Handler):
    """Counts what is logged."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002  # logging's
        """Count a record."""
        self.count += 1


class Program:
    """The callback, and what the test asks it."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.plugin = RegionalRouting(**arguments)
        litellm.callbacks = [self.plugin]
        vars(regional_routing)["time"] = SimpleNamespace(monotonic=lambda: CLOCK["now_s"])
        logging.basicConfig(level=logging.WARNING)
        self.reports = Reports(logging.ERROR)
        logging.getLogger("isochrone.routing").addHandler(self.reports)

    async def follows(self, route: str) -> bool:
        """Whether the route has a table."""
        (routes,) = self.plugin._routes.values()
        return routes.table(route) is not None

    async def chosen(self, route: str, ids: list[str], **request: Any) -> list[str]:
        """The deployments of the next attempt."""
        offered = [{"model_info": {"id": one}, "litellm_params": {}} for one in ids]
        found = await self.plugin.async_filter_deployments(route, offered, request_kwargs=request)
        return [one["model_info"]["id"] for one in found]

    async def fail(self, deployment: str, status: int, headers: dict[str, str]) -> None:
        request = {"model_info": {"id": deployment}}
        await self.plugin.async_post_call_failure_deployment_hook(request, FailedError(status, headers))

    async def fail_of(self, route: str, deployment: str) -> None:
        """Note a failure of one of the deployments of a route."""
        await self.chosen(route, [deployment])
        await self.fail(deployment, 500, {})

    async def order(
        self, route: str, names: list[str], draw: float, throttled: list[str], failing: list[str]
    ) -> list[str]:
        """The members of a request whose attempts all fail."""
        ids = deployments(route, names)
        await self.chosen(route, ids)
        for deployment in deployments(route, throttled):
            await self.fail(deployment, 429, {"retry-after": "600"})
        for deployment in deployments(route, failing):
            await self.fail(deployment, 500, {})
        regional_routing._attempts.set(attempts := regional_routing._Attempts(route, number=draw))
        found = list[str]()
        while len(found) < len(ids):
            (one,) = await self.chosen(route, ids, litellm_trace_id=route)
            found.append(one)
            attempts.failed.add(one)
        return [one.partition("@")[0] for one in found]

    async def effective(self, route: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
        """The share of the requests that follow the weights, and after which an error says that it is too small."""
        reported, requests, before = [], 0, self.reports.count
        for step in steps:
            resting = step.get("resting", [])
            # A deployment that is missing later on rests, and requests without any go elsewhere.
            ids = deployments(route, sorted({*step["usable"], *resting} or step["weights"]))
            await self.chosen(route, ids)
            for deployment in deployments(route, resting):
                await self.fail(deployment, 429, {"retry-after": "600"})
            for _ in range(step["times"]):
                requests += 1
                found = await self.chosen(route, ids)
                sent = found[0] if step["usable"] else OF_ANOTHER
                await self.plugin.async_pre_call_check({"model_info": {"id": sent}})
                if self.reports.count > before:
                    before = self.reports.count
                    reported.append(requests)
        (routes,) = self.plugin._routes.values()
        share = routes.effective.get(route)
        return {"share": None if share is None else round(share, 3), "reported": reported}

    async def rests(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """After each step, the deployments that rest."""
        found, cooldowns = [], self.plugin._cooldowns
        cooldowns._rests.clear()
        for step in steps:
            now_s = CLOCK["now_s"] = step["at"]
            vars(regional_routing)["random"] = SimpleNamespace(random=lambda step=step: step.get("draw", 0))
            for _ in range(step.get("times", 1)):
                for name, status in (("throttle", 429), ("fail", 500)):
                    if name in step:
                        self.plugin._routed.add(step[name])
                        headers = {"retry-after": str(step["retry_after"])} if "retry_after" in step else {}
                        await self.fail(step[name], status, step.get("headers", headers))
                if "succeed" in step:
                    params = {"model_info": {"id": step["succeed"]}}
                    await self.plugin.async_log_success_event({"litellm_params": params}, None, None, None)
            found.append({"throttled": cooldowns.throttled(now_s), "failing": sorted(cooldowns.failing(now_s))})
        return found

    async def ask(self, route: str, models: list[dict[str, Any]], *, stream: bool) -> Any:
        """The text of the answer that LiteLLM's `Router` returns, its status, or `broken`."""
        router = litellm.Router(model_list=models, **ROUTER)
        message = {"role": "user", "content": "Hi"}
        answer: Any = ""
        try:
            got = await router.acompletion(model=route, messages=[message], stream=stream)
            if stream:
                async for chunk in got:
                    answer += chunk.choices[0].delta.content or ""
            else:
                answer = got.choices[0].message.content
        except Exception as error:  # noqa: BLE001  # the test shows it
            answer = "broken" if answer else getattr(error, "status_code", repr(error))
        return answer


def deployments(route: str, names: Iterable[str]) -> list[str]:
    """The ids of deployments of members, which no other route has."""
    return [f"{name}@{route}" for name in names]


async def main(config: dict[str, Any]) -> None:
    program = Program(config)
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, arguments = json.loads(line)
        answer = await asyncio.create_task(getattr(program, name)(**arguments))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
