"""Envoy, configured by a collector as in the examples of `deploy/envoy`, in each form of the protocol: it follows the
tables of its region, serves every request while the first choice is dead, and keeps its last tables.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest

from fixtures.envoy import CREDENTIAL, PATIENCE, Envoy, Provider, StartEnvoy, example, requires_envoy, table_of
from fixtures.web import StartWeb, Web
from isochrone_collector.grpc_api.discovery import DiscoveryServices
from isochrone_collector.grpc_api.guards import AuthInterceptor
from isochrone_common import envoy as mapping
from isochrone_common.channel import SERVER_OPTIONS
from isochrone_wire.routes import RegionTables, RouteTable

pytestmark = requires_envoy

EAST, WEST = "us-east-2", "us-west-1"
REVERSED = ("second", "first", "third")


class ControlPlane:
    """A collector's interfaces for Envoy, with tables that the test publishes."""

    def __init__(self, web: Web, stack: AsyncExitStack) -> None:
        self.web = web
        self.grpc_port = 0
        self.credentials: set[str | None] = set()
        self._stack = stack

    async def listen(self) -> None:
        sources, authenticator = self.web.sources, self.web.sources.authenticator
        authenticate = authenticator.authenticate

        async def recorded(metadata: Any, roles: Any) -> Any:
            self.credentials.add(dict(metadata).get("authorization"))
            return await authenticate(metadata, roles)

        authenticator.authenticate = recorded  # type: ignore[method-assign]  # to see what Envoy sends
        server = grpc.aio.server(
            interceptors=[AuthInterceptor(authenticator, on_refused=lambda *_: None)], options=SERVER_OPTIONS
        )
        services = DiscoveryServices(
            snapshots=sources.snapshots, publisher=sources.publisher, rejections=sources.rejections
        )
        services.add_to_server(server)
        self.grpc_port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        self._stack.push_async_callback(server.stop, None)
        self._stack.callback(self.web.publisher.close)

    async def publish(self, *tables: RouteTable) -> None:
        first = self.web.publisher.generation + 1
        numbered = (
            replace(one, generation=number, etag=f"{number}-e") for number, one in enumerate(tables, start=first)
        )
        await self.web.publish(*numbered)

    async def stop(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def control_plane(start_web: StartWeb) -> AsyncIterator[ControlPlane]:
    async with AsyncExitStack() as stack:
        made = ControlPlane(await start_web(), stack)
        await made.listen()
        yield made


@dataclass(frozen=True, slots=True)
class Form:
    """A form of the protocol, and its bootstrap."""

    name: str
    bootstrap: Callable[[ControlPlane, str], dict[str, Any]]

    def __str__(self) -> str:
        return self.name


def _over_grpc(api_type: str) -> Callable[[ControlPlane, str], dict[str, Any]]:
    def bootstrap(control_plane: ControlPlane, region: str) -> dict[str, Any]:
        made = example("grpc.yaml", port=control_plane.grpc_port, region=region)
        made["dynamic_resources"]["ads_config"]["api_type"] = api_type
        return made

    return bootstrap


def _over_rest(control_plane: ControlPlane, region: str) -> dict[str, Any]:
    return example("rest.yaml", port=control_plane.web.address.port, region=region)


def _separate_streams(api_type: str) -> Callable[[ControlPlane, str], dict[str, Any]]:
    """Without aggregation: a stream for the clusters and one for the routes."""

    def bootstrap(control_plane: ControlPlane, region: str) -> dict[str, Any]:
        made = example("grpc.yaml", port=control_plane.grpc_port, region=region)
        config = made["dynamic_resources"].pop("ads_config") | {"api_type": api_type}
        source = {"api_config_source": config, "resource_api_version": "V3"}
        made["dynamic_resources"]["cds_config"] = source
        listener = made["static_resources"]["listeners"][0]
        listener["filter_chains"][0]["filters"][0]["typed_config"]["rds"]["config_source"] = source
        return made

    return bootstrap


FORMS = [
    Form("rest", _over_rest),
    Form("state of the world", _over_grpc("GRPC")),
    Form("delta", _over_grpc("DELTA_GRPC")),
    Form("separate streams", _separate_streams("GRPC")),
    Form("separate deltas", _separate_streams("DELTA_GRPC")),
]


@pytest.fixture(params=FORMS, ids=str)
def form(request: pytest.FixtureRequest) -> Form:
    return request.param  # type: ignore[no-any-return]  # pytest's parameters have no type


async def started(start: StartEnvoy, control_plane: ControlPlane, form: Form, region: str = EAST) -> Envoy:
    return await asyncio.to_thread(start, form.bootstrap(control_plane, region))


async def served(envoy: Envoy, count: int = 10) -> Mapping[tuple[int, str], int]:
    return await asyncio.to_thread(envoy.served, count)


@pytest.mark.consumer("Envoy", "regions differ")
@pytest.mark.consumer("Envoy", "change moves traffic within 2 s")
@pytest.mark.consumer("Envoy", "collector gone")
async def test_an_envoy_follows_the_tables_of_its_region(
    control_plane: ControlPlane,
    form: Form,
    start_envoy: StartEnvoy,
    providers: dict[str, Provider],
    record_property: Callable[[str, object], None],
) -> None:
    """A new table moves the traffic of its region only; after the collector's end both Envoys serve as before."""
    only_first, only_second = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
    await control_plane.publish(
        table_of(providers, only_first, client_region=EAST),
        table_of(providers, (1.0, 0.0, 0.0), names=REVERSED, client_region=WEST),
    )
    east = await started(start_envoy, control_plane, form, EAST)
    west = await started(start_envoy, control_plane, form, WEST)
    assert await served(east) == {(200, "first"): 10}
    assert await served(west) == {(200, "second"): 10}
    assert (await asyncio.to_thread(east.ask, "elsewhere"))[0] == 404

    await control_plane.publish(table_of(providers, only_second, client_region=EAST))
    record_property("moved_s", await east.until(lambda answer: answer == (200, "second", "3")))
    assert await served(west) == {(200, "second"): 10}

    await control_plane.stop()
    assert await served(east) == await served(west) == {(200, "second"): 10}
    assert control_plane.web.sources.rejections.counts == {}


@pytest.mark.consumer("Envoy", "first choice dead")
async def test_every_request_is_served_while_the_first_choice_is_dead(
    control_plane: ControlPlane, form: Form, start_envoy: StartEnvoy, providers: dict[str, Provider]
) -> None:
    """Requests that the first choice fails, or does not accept, go to the next member before any new table."""
    await control_plane.publish(table_of(providers, (1.0, 0.0, 0.0)))
    envoy = await started(start_envoy, control_plane, form)
    providers["first"].status = 500
    assert await served(envoy, 20) == {(200, "second"): 20}


async def test_envoy_sends_its_credential(
    control_plane: ControlPlane, start_envoy: StartEnvoy, providers: dict[str, Provider]
) -> None:
    """The examples send the credential in the environment, in a header over HTTP and in metadata over gRPC."""
    await control_plane.publish(table_of(providers, (1.0, 0.0, 0.0)))
    for form in (FORMS[0], FORMS[2]):
        control_plane.credentials.clear()
        await started(start_envoy, control_plane, form)
        assert control_plane.credentials == {f"Bearer {CREDENTIAL}"}, form


async def test_a_stalling_first_choice_is_hedged(
    control_plane: ControlPlane, start_envoy: StartEnvoy, providers: dict[str, Provider]
) -> None:
    """The hedge delay of the table is in force, as in the export."""
    await control_plane.publish(table_of(providers, (1.0, 0.0, 0.0), delay_us=200_000))
    envoy = await started(start_envoy, control_plane, FORMS[2])
    stalled = providers["first"].stalled = threading.Event()
    try:
        assert await served(envoy, 1) == {(200, "second"): 1}
    finally:
        stalled.set()


async def test_a_member_that_joins_and_one_that_leaves_lose_no_request(
    control_plane: ControlPlane, form: Form, start_envoy: StartEnvoy, providers: dict[str, Provider]
) -> None:
    """While tables with other members follow one another, every request is served."""
    await control_plane.publish(table_of(providers, (1.0, 0.0), names=("first", "second")))
    envoy = await started(start_envoy, control_plane, form)
    found: list[tuple[int, str, str | None]] = []

    def ask_on() -> None:
        while len(found) < 3 or found[-1][1] != "third":
            found.append(envoy.ask())

    asking = asyncio.create_task(asyncio.to_thread(ask_on))
    await control_plane.publish(table_of(providers, (0.0, 1.0, 0.0), names=("second", "first", "third")))
    async with asyncio.timeout(PATIENCE):
        while "third" not in await asyncio.to_thread(envoy.clusters):
            await asyncio.sleep(0.05)
        await control_plane.publish(table_of(providers, (1.0, 0.0), names=("third", "second")))
        await asking
    assert {status for status, _, _ in found} == {200}


@pytest.mark.consumer("Envoy", "garbage table")
@pytest.mark.parametrize("form", FORMS[1:3], ids=str)
async def test_what_envoy_rejects_changes_nothing(
    control_plane: ControlPlane,
    form: Form,
    start_envoy: StartEnvoy,
    providers: dict[str, Provider],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An invalid cluster is rejected once and counted; Envoy keeps what it has until there are valid ones."""
    await control_plane.publish(table_of(providers, (1.0, 0.0, 0.0)))
    envoy = await started(start_envoy, control_plane, form)
    rejections, clusters_of = control_plane.web.sources.rejections.counts, mapping.clusters

    def invalid(tables: RegionTables) -> list[dict[str, Any]]:
        return [one | {"connect_timeout": "-5s"} for one in clusters_of(tables)]

    monkeypatch.setattr(mapping, "clusters", invalid)
    await control_plane.publish(table_of(providers, (0.0, 1.0, 0.0)))
    async with asyncio.timeout(PATIENCE):
        while not rejections:
            await asyncio.sleep(0.02)
    assert await served(envoy) == {(200, "first"): 10}
    assert rejections == {(EAST, "clusters"): 1}

    monkeypatch.undo()
    await control_plane.publish(table_of(providers, (0.0, 0.0, 1.0)))
    await envoy.until(lambda answer: answer[:2] == (200, "third"))
    assert rejections == {(EAST, "clusters"): 1}
