"""Requests through LiteLLM's real proxy, configured by a table whose first choice refuses connections."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.result import Tally
from fixtures.litellm import Proxy, Tables, deployment, has_proxy, plugin_settings, proxy
from fixtures.simulator import running
from testdata.ports import dead_url
from testdata.waiting import eventually

REQUESTS = 10
DEAD, SECOND, OTHER = "sim/dead", "sim/none", "sim/crlf"
_PATIENCE_S = 10.0


def litellm_dead_first_choice() -> Tally | str:
    """Return how many of ten requests in a row the second choice served; `skipped` without LiteLLM."""
    if not has_proxy():
        return "skipped"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(running()).base_url
        tables = Tables()
        tables.server.start()
        stack.callback(tables.server.stop)
        tables.publish(OTHER, SECOND)
        models = [
            deployment("chat", DEAD, "none", dead_url()),
            *(deployment("chat", name, name.removeprefix("sim/"), url) for name in (SECOND, OTHER)),
        ]
        settings = plugin_settings(tables, folder) | {"regions": []}
        consumer = proxy(models, settings, folder)
        stack.callback(consumer.stop)
        consumer.start()
        eventually(_PATIENCE_S, lambda: consumer.ask() == OTHER, "the first table is followed")
        tables.publish(DEAD, SECOND, OTHER)
        found = [_first_by_next_table(consumer), *(consumer.ask() for _ in range(REQUESTS - 1))]
    return Tally(found.count(SECOND), REQUESTS)


def _first_by_next_table(consumer: Proxy) -> str:
    """Send requests until one is not served by the first choice of the first table; return what served it."""
    found = [OTHER]

    def is_followed() -> bool:
        found.append(consumer.ask())
        return found[-1] != OTHER

    eventually(_PATIENCE_S, is_followed, "the table with a dead first choice is followed")
    return found[-1]
