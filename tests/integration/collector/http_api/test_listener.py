"""The HTTP listener: what it serves over TLS and plain text, and clients that mean no good."""

import asyncio
import json
import socket
import ssl
import time
from pathlib import Path

import httpx
import pytest

from fixtures.collector import Collector, StartCollector
from fixtures.web import Web, shares_web
from isochrone_client.client import ReadClient
from isochrone_collector.http_api import listener
from isochrone_collector.server import certificates
from isochrone_common import enrolment, identity_file
from isochrone_common.address import parse_address
from isochrone_wire.json_format import to_json_value
from isochrone_wire.model import SECOND_US
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


TABLES = "/v1/routes/us-east-2"


async def said(web: Web, request: bytes) -> bytes:
    """Return the response to bytes, until the connection is closed or silent."""
    reader, writer = await asyncio.open_connection(web.address.host, web.address.port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        return error.partial if isinstance(error, asyncio.IncompleteReadError) else b""
    finally:
        writer.close()


@shares_web
@pytest.mark.parametrize(
    "target",
    [
        "/v1/routes/%zz",
        "/v1/routes/%",
        "/v1/routes/%ff%fe",
        "/v1/routes/us%0d%0aSet-Cookie:%20a=b",
        "/v1/routes/us%00east",
        f"{TABLES}?route=%zz",
        f"{TABLES}?route=%ff",
        f"{TABLES}?route=a%0d%0aX-Evil:%201",
        f"{TABLES}?after=99999999999999999999",
        f"{TABLES}?after=1e3",
        f"{TABLES}?after=%D9%A1",
        f"{TABLES}?wait=999999999999999999999d",
        f"{TABLES}?" + "&".join(["route=a"] * 500),
        "/v1/diff?window=0s",
        "/v1/diff?window=999999999999d",
        "/v1/diff?from=0001-01-01T00:00:00Z&until=9999-12-31T23:59:59Z",
        "/v1/diff?from=2026-11-21T08:00:00",
        "/v1/diff?until=2026-11-21T08:00:00Z",
        "/v1/explain/a/b?generation=-1",
    ],
)
async def test_malformed_requests_are_bad_requests(shared_web: Web, target: str) -> None:
    """Broken escapes, other encodings, control characters and numbers out of range are 400, in a problem document."""
    answer = await said(shared_web, f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"application/problem+json" in answer
    assert b"Set-Cookie" not in answer
    assert b"X-Evil" not in answer


@shares_web
@pytest.mark.parametrize(
    "target",
    [
        "/v1/routes/..%2f..%2f..%2fetc%2fpasswd",
        "/v1/routes/../../etc/passwd",
        "/v1/routes/' OR 1=1 --".replace(" ", "%20"),
        "/v1/routes/" + "a" * 8_000,
        "/v1/routes/%E2%80%AEus",
        "/v1/routes/us-east-2%20",
        "/v1/routes/US-EAST-2",
        "//v1/routes",
        "/v1/routes/us-east-2/",
    ],
)
async def test_strange_names_are_unknown_names(shared_web: Web, target: str) -> None:
    """A region is only compared with the known names, whatever it looks like."""
    answer = await said(shared_web, f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"404", b"400"), answer


@shares_web
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /v1/routes?" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /v1/routes HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /v1/routes HTTP/1.1\r\nHost: h\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(20_000)) + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v1/routes HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
        b"\x00" * 1_000,
    ],
)
async def test_what_is_no_request_is_refused(shared_web: Web, request_bytes: bytes) -> None:
    """Heads beyond 16 kB, other protocols and contradictions get 400 or are cut off, what can be read is read."""
    answer = await said(shared_web, request_bytes)
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"404", b"200"), answer
    assert (await shared_web.get("/healthz")).status_code == 200


async def test_an_upgrade_is_ignored(web: Web) -> None:
    """A request for a web socket gets the document."""
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n"
    answer = await said(web, f"GET {TABLES} HTTP/1.1\r\nHost: h\r\n{upgrade}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_idle_connections_are_closed(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a whole request ends after a while, also when it trickles, and one that waits stays."""
    monkeypatch.setattr(listener, "IDLE_US", SECOND_US // 2)
    async with web.watch(f"{TABLES}/watch"):
        silent, silent_writer = await asyncio.open_connection(web.address.host, web.address.port)
        trickling, trickle = await asyncio.open_connection(web.address.host, web.address.port)
        trickle.write(b"GET /v1/routes HTTP/1.1\r\n")
        for _ in range(40):
            if trickling.at_eof():
                break
            trickle.write(b"X: y\r\n")
            await asyncio.sleep(0.1)
        for reader in (silent, trickling):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), 10)
        silent_writer.close()
        trickle.close()
        assert web.publisher.watchers == 1


async def test_there_is_no_cors(web: Web) -> None:
    """Pages of other origins may not read responses."""
    answer = await web.get(TABLES, origin="https://evil.example")
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert (await web.client.options(TABLES)).status_code == 405
