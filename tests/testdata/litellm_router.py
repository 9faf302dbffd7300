"""A program that sends requests through LiteLLM's `Router` with Isochrone's callback, run by a Python that has LiteLLM.

Its argument is a file with the arguments of both. Commands are lines of JSON: a request, which is answered by the id of
the deployment that served it, or `metrics`.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import litellm
from prometheus_client import generate_latest

from isochrone.litellm import RegionalRouting


async def ask(router: litellm.Router, *, model: str, region: str | None) -> str:
    """Return the deployment that served a request, or its error."""
    metadata = {"client_region": region} if region else {}
    messages = [{"role": "user", "content": "[0123456789ab] Hi"}]
    try:
        answer = await router.acompletion(model=model, messages=messages, max_tokens=3, metadata=metadata)
    except Exception as error:  # noqa: BLE001  # the test shows it
        return f"error: {error!r}"
    return str(answer._hidden_params["model_id"])


async def main(config: dict[str, Any]) -> None:
    litellm.callbacks = [RegionalRouting(**config["plugin"])]
    routers = {
        name: litellm.Router(model_list=config["model_list"], **settings)
        for name, settings in config["routers"].items()
    }
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        if command == "metrics":
            answer = generate_latest().decode()
        else:
            answer = await ask(routers[command.pop("router")], **command)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
