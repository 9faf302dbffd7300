"""The HTTP interface of real collectors: credentials, certificates, and the same tables as over gRPC."""

import json
import socket
import ssl
import time
from pathlib import Path

import httpx
import pytest

from fixtures.collector import Collector, StartCollector
from isochrone_client.client import ReadClient
from isochrone_collector.server import certificates
from isochrone_common import enrolment, identity_file
from isochrone_common.address import parse_address
from isochrone_wire.json_format import to_json_value
from testdata.pushed_rounds import FIRST, PLAN, US, Fleet, rounds_until
from testdata.waiting import eventually

OPEN = ("--http-listen", "127.0.0.1:0")
PATIENCE = 30.0


def get(collector: Collector, path: str, *, ask: str = "") -> httpx.Response:
    """Return the response of a path, with the certificate of the collector's data folder, and a credential."""
    context = ssl.create_default_context()
    pem = collector.data_dir / "tls" / "certificate.pem"
    if pem.exists():
        context.load_verify_locations(pem)
    headers = [(b"Authorization", b"Bearer " + ask.encode())] if ask else []
    return httpx.get(collector.http + path, headers=headers, verify=context, timeout=PATIENCE)


def credential(collector: Collector, name: str, role: str) -> str:
    """Return the credential of a new member with a role."""
    token = collector.call.invite(name, role=role, region="us-east-2" if role == "vantage" else None)
    return enrolment.join(parse_address(collector.address), token, version="test").credential


def test_a_credential_is_required_with_tls(start_collector: StartCollector) -> None:
    """With TLS, readers and operators have access, vantages and unknown credentials do not; health is open to all."""
    collector = start_collector(more=("--tls", *OPEN))
    assert collector.http.startswith("https://")
    operator = identity_file.read(collector.data_dir / "operator.json").credential
    reader, vantage = credential(collector, "ida", "reader"), credential(collector, "sg-1", "vantage")
    for ask, status in (
        (operator, 200),
        (reader, 200),
        (vantage, 403),
        ("", 401),
        ("nonsense", 401),
        (reader[:-4] + "AAAA", 401),
        ("é" * 9, 401),
    ):
        answer = get(collector, "/v1/routes", ask=ask)
        assert answer.status_code == status, (ask[:12], answer.text)
        assert ("www-authenticate" in answer.headers) == (status == 401)
        assert reader not in answer.text
    assert get(collector, "/v1/openapi.json").status_code == 401
    assert [get(collector, path).status_code for path in ("/healthz", "/readyz")] == [200, 200]
    assert collector.call.revoke("ida") == 1
    assert get(collector, "/v1/routes", ask=reader).status_code == 401
    assert reader not in collector.log()


def test_a_new_certificate_is_shown(start_collector: StartCollector, tmp_path: Path) -> None:
    """HTTP presents the same certificate as gRPC, even after its files have changed."""
    pair = tmp_path / "certificate.pem", tmp_path / "key.pem"
    write_pair(*pair)
    collector = start_collector(more=("--certificate", str(pair[0]), "--key", str(pair[1]), *OPEN))
    before = shown(collector)
    assert before == pair[0].read_text()
    write_pair(*pair)
    eventually(PATIENCE, lambda: shown(collector) == pair[0].read_text(), "the new certificate is shown")
    assert shown(collector) != before


def write_pair(certificate: Path, key: Path) -> None:
    chain, secret = certificates._self_signed("127.0.0.1")
    key.write_bytes(secret)
    certificate.write_bytes(chain)


def shown(collector: Collector) -> str:
    """Return the certificate that HTTP presents, in PEM."""
    url = httpx.URL(collector.http)
    assert url.port is not None
    return ssl.get_server_certificate((url.host, url.port))


def test_a_taken_port_does_not_stop_the_collector(start_collector: StartCollector) -> None:
    """A collector that cannot listen for HTTP logs it and answers on its Unix socket."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        collector = start_collector(more=("--http-listen", f"127.0.0.1:{taken.getsockname()[1]}"), trusting=False)
        assert collector.http == ""
        assert "http.unavailable" in collector.log()
        with ReadClient(f"unix:{collector.data_dir}/collector.sock") as client:
            assert client.list_targets().plan_version == 0
        assert collector.call.apply(PLAN).problems == ()
    assert collector.stop() == 0


def test_http_grpc_and_metrics_have_the_same_tables(start_collector: StartCollector) -> None:
    """HTTP, gRPC and Prometheus report the same generations, and the explanation over HTTP replays."""
    collector = start_collector(more=OPEN)
    collector.call.apply(PLAN)
    fleet = Fleet({target.name: target.id for target in collector.call.targets().targets})
    fleet.push_rounds(collector.call, rounds_until(time.time_ns() // 1000, 40))
    eventually(
        PATIENCE, lambda: get(collector, f"/v1/routes/{US}").status_code == 200 and leads(collector), f"{FIRST} leads"
    )
    with ReadClient(collector.http_address) as client:
        told = client.get_tables(US, "chat")
        document = get(collector, f"/v1/routes/{US}?route=chat")
        serve_metrics = collector.scrape()
        explained = client.explain_route(US, "chat", generation=told.generation)
    labels = f'client_region="{US}",route="chat"'
    member = f'{labels},target="{FIRST}",provider="alpha",model="m"'.split(",")
    assert document.json()["tables"] == to_json_value(told.tables)
    assert document.headers["etag"] == f'"{told.etag}"'
    assert serve_metrics[f"isochrone_route_generation{{{labels}}}"] == told.generation
    assert serve_metrics[f'isochrone_route_state{{{labels},state="ok"}}'] == 1
    assert serve_metrics["isochrone_route_watchers"] == 0
    lines = {name: value for name, value in serve_metrics.items() if all(label in name for label in member)}
    kinds = {name.partition("{")[0]: value for name, value in lines.items()}
    entry = told.tables[0].entries[0]
    assert kinds["isochrone_route_rank"] == 1
    assert kinds["isochrone_route_weight"] == entry.weight
    assert kinds["isochrone_route_samples"] == entry.n
    assert entry.ttft_p50_us is not None
    [p50] = [value for name, value in lines.items() if 'quantile="0.5"' in name]
    assert p50 == pytest.approx(entry.ttft_p50_us.value / 1e6)
    answer = get(collector, f"/v1/explain/{US}/chat?generation={told.generation}").json()
    assert answer == to_json_value(explained)
    assert answer["replays"] is True
    assert json.loads(answer["inputs"])


def leads(collector: Collector) -> bool:
    entries = get(collector, f"/v1/routes/{US}").json()["tables"][0]["entries"]
    return bool(entries) and entries[0]["target"] == FIRST


def test_streams_do_not_hold_up_a_stop(start_collector: StartCollector) -> None:
    """A stopping collector ends its streams and exits at once, without warnings in its log."""
    collector = start_collector(more=OPEN)
    collector.call.apply(PLAN)
    fleet = Fleet({target.name: target.id for target in collector.call.targets().targets})
    fleet.push_rounds(collector.call, rounds_until(time.time_ns() // 1000, 40))
    eventually(PATIENCE, lambda: get(collector, f"/v1/routes/{US}").status_code == 200, "there is a table")
    with httpx.stream("GET", f"{collector.http}/v1/routes/{US}/watch", timeout=PATIENCE) as response:
        assert next(response.iter_lines()) == "retry: 2000"
        assert collector.stop() == 0
    assert "Traceback" not in collector.log()
