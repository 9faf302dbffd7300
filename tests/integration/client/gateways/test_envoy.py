"""The export for Envoy, run by Envoy: it is accepted, splits by weight, fails over and hedges."""

import json
import subprocess
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.envoy import ENVOY, HANG_UP, Heard, Provider, StartEnvoy, requires_envoy, table_of
from isochrone_client.gateways import gateway
from isochrone_client.gateways.envoy import CLUSTERS
from isochrone_wire.routes import RegionTables, RouteTable
from testdata.insights import NOW_AT
from testdata.ports import free_port
from testdata.routes import CHAT, VOICE

_API = "type.googleapis.com/envoy"
pytestmark = requires_envoy


def region(*tables: RouteTable) -> RegionTables:
    return RegionTables(client_region="us-east-2", generation=48, etag="e", answered_at=NOW_AT, tables=tables)


def bootstrap(tables: RegionTables) -> dict[str, Any]:
    """Envoy's bootstrap: the export's clusters and routes behind a listener on a free port."""
    texts = gateway("envoy").render(tables)
    routes, clusters = (json.loads(texts[part])["resources"] for part in ("", CLUSTERS))
    for resource in (*routes, *clusters):
        del resource["@type"]
    manager = {
        "@type": f"{_API}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "test",
        "route_config": routes[0],
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{_API}.extensions.filters.http.router.v3.Router"}}
        ],
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    listener = {"name": "in", "address": address, "filter_chains": [chain]}
    return {
        "node": {"id": "test", "cluster": "test"},
        "admin": {"address": address},
        "static_resources": {"listeners": [listener], "clusters": clusters},
    }


def test_envoy_accepts_the_export(tmp_path: Path) -> None:
    """`envoy --mode validate` accepts the export of several routes with TLS, keys and a hedge."""
    authority = Path("/etc/ssl/certs/ca-certificates.crt")
    if not authority.exists():
        pytest.skip(f"the clusters believe {authority}, which is not there")
    config = tmp_path / "envoy.json"
    config.write_text(json.dumps(bootstrap(region(CHAT, VOICE))))
    done = subprocess.run(
        [str(ENVOY), "--mode", "validate", "-c", str(config)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_traffic_is_split_by_the_weights(providers: dict[str, Provider], start_envoy: StartEnvoy) -> None:
    """Of 100 requests about 80 and 20 go to the weighted members, and none to the unweighted one."""
    envoy = start_envoy(bootstrap(region(table_of(providers, (0.8, 0.2, 0.0)))))
    answers = [envoy.ask() for _ in range(100)]
    served = Counter(name for _, name, _ in answers)
    assert set(served) == {"first", "second"}
    assert 60 <= served["first"] <= 95
    assert {generation for _, _, generation in answers} == {"48"}


def test_each_member_gets_its_own_path_key_and_model(providers: dict[str, Provider], start_envoy: StartEnvoy) -> None:
    """Path, host, key and model are those of the member, on a retry as well; the caller's keys go to no member."""
    providers["first"].status = 503
    envoy = start_envoy(bootstrap(region(table_of(providers, (1.0, 0.0, 0.0)))))
    body = (
        b'{"messages": [{"content": "\\"model\\": \\"x\\\\", "model": "inner"}], "model" :"chat", "n": {"model": "y"}}'
    )
    assert envoy.ask(body=body, x_api_key="the caller's", x_isochrone_member_variable="HOME") == (200, "second", "48")
    for name in ("first", "second"):
        provider = providers[name]
        assert provider.heard == [
            Heard(
                path=f"/{name}/v1/chat/completions?x=1",
                key=f"Bearer key-of-{name}",
                host=f"127.0.0.1:{provider.port}",
                body=body.replace(b'"chat"', f'"model-of-{name}"'.encode()),
                others=("x-isochrone-path",),
            )
        ]


def test_the_query_of_a_base_url_goes_first(providers: dict[str, Provider], start_envoy: StartEnvoy) -> None:
    """Azure's API needs its version in the query; the member tried next has none."""
    providers["first"].status = 503
    table = table_of(providers, (1.0, 0.0, 0.0))
    first, *others = table.entries
    first = replace(first, base_url=f"{first.base_url}?api-version=2024-10-21")
    envoy = start_envoy(bootstrap(region(replace(table, entries=(first, *others)))))
    assert envoy.ask()[:2] == (200, "second")
    heard = [providers[name].heard[0].path for name in ("first", "second")]
    assert heard == ["/first/v1/chat/completions?api-version=2024-10-21&x=1", "/second/v1/chat/completions?x=1"]


def test_a_caller_s_key_goes_to_one_member_only(providers: dict[str, Provider], start_envoy: StartEnvoy) -> None:
    """A caller's key goes to a member without a credential, and if that fails to no other, which has its own."""
    providers["first"].status = 503
    envoy = start_envoy(bootstrap(region(table_of(providers, (1.0, 0.0, 0.0), keys=(None, "second", "third")))))
    assert envoy.ask(x_isochrone_member_variable="HOME")[:2] == (503, "first")
    assert [heard.key for heard in providers["first"].heard] == ["Bearer the-caller-s-own"]
    assert providers["second"].heard == providers["third"].heard == []


WITHOUT_MODEL = (
    b"",
    b"{}",
    b"null",
    b'{"model": null, "a": 1}',
    b'{"model": ["a"]}',
    b'["model", "a"]',
    b'{"a": {"model": "a"}}',
    b'{"a": "model", "b": "x"}',
    b'{"model": "never closed',
    b'{"a": "never closed',
    b'{"a": "\\',
    b"}}}]]] {",
    b"\xff\x00 no text",
)


def test_a_body_without_a_model_is_sent_as_it_is(providers: dict[str, Provider], start_envoy: StartEnvoy) -> None:
    """Only the text `model` of the outermost object is replaced, and only in JSON; the member judges all else."""
    envoy = start_envoy(bootstrap(region(table_of(providers, (1.0, 0.0, 0.0)))))
    for body in WITHOUT_MODEL:
        assert envoy.ask(body=body)[:2] == (200, "first")
    assert envoy.ask(body=b'{"model": "chat"}', content_type="text/plain")[:2] == (200, "first")
    assert [heard.body for heard in providers["first"].heard] == [*WITHOUT_MODEL, b'{"model": "chat"}']


def test_large_requests(providers: dict[str, Provider], start_envoy: StartEnvoy) -> None:
    """A request of several megabytes, such as one with images, fails over with its model; above 32 MiB it is a 413."""
    providers["first"].status = 500
    envoy = start_envoy(bootstrap(region(table_of(providers, (1.0, 0.0, 0.0)))))
    image = b'{"image": "' + b"x" * (8 << 20) + b'", "model": "chat"}'
    assert envoy.ask(body=image)[:2] == (200, "second")
    assert providers["second"].heard[0].body == image.replace(b'"chat"', b'"model-of-second"')
    assert envoy.ask(body=b"x" * (33 << 20))[0] == 413


@pytest.mark.consumer("Envoy", "first choice dead")
@pytest.mark.parametrize("status", [500, 429, HANG_UP, None], ids=["500", "429", "hangs up", "refuses"])
def test_a_dead_first_is_survived(providers: dict[str, Provider], start_envoy: StartEnvoy, status: int | None) -> None:
    """If the first choice fails, ten of ten requests are served by the next member."""
    if status is None:
        providers["first"].port = free_port()
    else:
        providers["first"].status = status
    envoy = start_envoy(bootstrap(region(table_of(providers, (1.0, 0.0, 0.0)))))
    assert {envoy.ask()[:2] for _ in range(10)} == {(200, "second")}


def test_a_failing_member_is_passed_over(providers: dict[str, Provider], start_envoy: StartEnvoy) -> None:
    """After five failures in a row a member is left alone for a while, so that requests lose no time with it."""
    providers["first"].status = 500
    envoy = start_envoy(bootstrap(region(table_of(providers, (1.0, 0.0, 0.0)))))
    assert envoy.served(20) == {(200, "second"): 20}
    assert len(providers["first"].heard) == 5


def test_a_stalling_first_choice_is_hedged(providers: dict[str, Provider], start_envoy: StartEnvoy) -> None:
    """After the hedge delay another member is asked, and the first response wins, even if the other never answers."""
    stalled = providers["first"].stalled = threading.Event()
    envoy = start_envoy(bootstrap(region(table_of(providers, (1.0, 0.0, 0.0), delay_us=200_000))))
    try:
        status, name, _ = envoy.ask()
        assert (status, name) == (200, "second")
        assert len(providers["first"].heard) == 1
    finally:
        stalled.set()


@pytest.mark.consumer("Envoy", "unknown model")
def test_an_unknown_route_is_not_found(providers: dict[str, Provider], start_envoy: StartEnvoy) -> None:
    """A request for an unknown route is a 404."""
    envoy = start_envoy(bootstrap(region(table_of(providers, (1.0, 0.0, 0.0)))))
    assert envoy.ask("elsewhere")[0] == 404
