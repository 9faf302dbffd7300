"""Envoy that watches the files of `isochrone routes export --follow`: traffic moves without a restart of Envoy, and at
`stale_until` to the static order.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.envoy import EXAMPLES, NAMES, Provider, StartEnvoy, requires_envoy, table_of
from fixtures.fake_collector import FakeCollector
from isochrone_client.gateways.envoy import CLUSTERS
from isochrone_client.window import now_at
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteTable
from testdata.reading import following
from testdata.waiting import eventually

PATIENCE = 10.0
pytestmark = requires_envoy


def bootstrap(routes: Path) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((EXAMPLES / "files.yaml").read_text())
    made["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}
    listener = made["static_resources"]["listeners"][0]
    listener["address"]["socket_address"]["port_value"] = 0
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    for source, path in (
        (made["dynamic_resources"]["cds_config"], routes.with_suffix(f".{CLUSTERS}.json")),
        (manager["rds"]["config_source"], routes),
    ):
        source["path_config_source"]["path"] = str(path)
    return made


def published(providers: dict[str, Provider], generation: int, *names: str, seconds: float = 600) -> RouteTable:
    stale_at = now_at() + round(seconds * SECOND_US)
    weights = (1.0,) + (0.0,) * (len(names) - 1)
    instants: dict[str, Any] = {"built_at": now_at(), "fresh_until_at": stale_at, "stale_until_at": stale_at}
    return table_of(
        providers, weights, names=names, generation=generation, static_order=tuple(reversed(names)), **instants
    )


@pytest.mark.consumer("Envoy", "change moves traffic within 2 s")
@pytest.mark.consumer("Envoy", "collector gone")
async def test_envoy_reads_the_followed_files_again(
    routing: FakeCollector,
    providers: dict[str, Provider],
    start_envoy: StartEnvoy,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """The next table moves the traffic; without a collector the last serves until `stale_until`, then static order."""
    routing.restart(published(providers, 50, *NAMES))
    file = tmp_path / "routes.json"
    with following(routing.address, file, kind="envoy"):
        await asyncio.to_thread(eventually, PATIENCE, file.exists, "the files")
        envoy = await asyncio.to_thread(start_envoy, bootstrap(file))
        await envoy.until(lambda answer: answer == (200, "first", "50"))
        last = published(providers, 51, "second", "third", "first", seconds=8)
        routing.publish(last)
        record_property("moved_s", await envoy.until(lambda answer: answer == (200, "second", "51")))
        routing.breaking = [0] * 1000
        routing.restart(*routing.tables)
        assert (await asyncio.to_thread(envoy.ask))[:2] == (200, "second")
        await envoy.until(lambda answer: answer[:2] == (200, "first"))
        assert now_at() >= last.stale_until_at
