"""A program that sends requests through LiteLLM's `Router` with Isochrone's callback, run by a Python that has LiteLLM.

Its argument is a file with the arguments of both. Commands are lines of JSON: a request, which is answered by the id of
the deployment that served it, or `metrics`. Another callback gives requests with `only` to that deployment.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import litellm
from litellm.integrations.custom_logger import CustomLogger
from prometheus_client import generate_latest

from isochrone.litellm import RegionalRouting


class Other(CustomLogger):  # type: ignore[misc]  # LiteLLM is not installed where types are checked
    """A callback that has the last word on the deployments."""

    def __init__(self, model_list: list[dict[str, Any]]) -> None:
        super().__init__()
        self.model_list = model_list
        self.only: str | None = None

    async def async_filter_deployments(self, healthy_deployments: Any, **_: Any) -> Any:
        """Return the deployment that the request names."""
        named = [one for one in self.model_list if self.only and one.get("model_info", {}).get("id") == self.only]
        return named or healthy_deployments


async def ask(router: litellm.Router, *, model: str, region: str | None, api: str) -> str:
    """Return the deployment that served a request, or its error."""
    metadata = {"client_region": region} if region else {}
    text = "[0123456789ab] Hi"
    try:
        if api == "responses":
            answer = await router.aresponses(model=model, input=text, litellm_metadata=metadata)
        else:
            messages = [{"role": "user", "content": text}]
            answer = await router.acompletion(model=model, messages=messages, max_tokens=3, metadata=metadata)
    except Exception as error:  # noqa: BLE001  # the test shows it
        return f"error: {error!r}"
    return str(answer._hidden_params["model_id"])


async def main(config: dict[str, Any]) -> None:
    other = Other(config["model_list"])
    litellm.callbacks = [RegionalRouting(**config["plugin"]), other]
    routers = {
        name: litellm.Router(model_list=config["model_list"], **settings)
        for name, settings in config["routers"].items()
    }
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        if command == "metrics":
            answer = generate_latest().decode()
        else:
            other.only = command.pop("only")
            answer = await ask(routers[command.pop("router")], **command)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
