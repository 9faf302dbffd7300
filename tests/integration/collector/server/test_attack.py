"""Attacks by callers without a credential: memory and connections stay bounded, and others are served."""

import resource
import socket
import ssl
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fixtures.collector import Collector, StartCollector
from isochrone_common.address import parse_address
from isochrone_common.channel import open_channel
from isochrone_common.trust import presented_certificate

BOMB_MIB = 512
LONG_MIB = 256
SPARE_KIB = 128 << 10
TIMEOUT_S = 30.0


def peak_kib(collector: Collector) -> int:
    """Return the most memory that the process has had."""
    lines = Path(f"/proc/{collector.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def is_healthy(channel: grpc.Channel) -> bool:
    answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def bomb(mib: int) -> bytes:
    """Return a gzip of so many zeros, of a thousandth of their size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(mib)) + packer.flush()


def test_a_bomb_does_not_grow_the_collector(start_collector: StartCollector) -> None:
    """Gzips of many zeros, many times: refused, and never inflated."""
    collector = start_collector(more=["--tls"])
    address, before_kib = parse_address(collector.address), peak_kib(collector)
    with open_channel(address, presented_certificate(address).pinned) as channel:
        for method, mib, code in (
            ("Fleet/Join", 8, grpc.StatusCode.RESOURCE_EXHAUSTED),
            # More than the collector reads without a credential.
            ("Fleet/Join", BOMB_MIB, grpc.StatusCode.DEADLINE_EXCEEDED),
            ("Fleet/Push", BOMB_MIB, grpc.StatusCode.UNAUTHENTICATED),
            ("Operations/ListVantages", BOMB_MIB, grpc.StatusCode.UNAUTHENTICATED),
        ):
            call: Any = channel.unary_unary(f"/isochrone.v1.{method}")
            refusals = [call.future(bomb(mib), timeout=TIMEOUT_S) for _ in range(3)]
            assert {refusal.code() for refusal in refusals} == {code}
        assert is_healthy(channel)
    assert peak_kib(collector) - before_kib < SPARE_KIB


@pytest.mark.parametrize("method", ["Fleet/Join", "Fleet/Push"])
def test_a_long_request_is_refused_by_its_stated_length(start_collector: StartCollector, method: str) -> None:
    """A quarter of a gigabyte without compression is refused before it has arrived."""
    collector = start_collector()
    before_kib = peak_kib(collector)
    with grpc.insecure_channel(collector.address) as channel:
        call: Any = channel.unary_unary(f"/isochrone.v1.{method}")
        with pytest.raises(grpc.RpcError) as refusal:
            call(bytes(LONG_MIB << 20), timeout=TIMEOUT_S)
        answer: Any = refusal.value
        assert answer.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert is_healthy(channel)
    assert peak_kib(collector) - before_kib < SPARE_KIB


def test_idle_connections_cost_little(start_collector: StartCollector) -> None:
    """Five hundred silent connections cost little memory and no log lines, and other clients are served."""
    collector = start_collector(more=["--tls"])
    soft, hard = resource.prlimit(collector.pid, resource.RLIMIT_NOFILE)
    assert soft == hard
    address, before_kib = parse_address(collector.address), peak_kib(collector)
    trust = presented_certificate(address).pinned
    with open_channel(address, trust) as channel, ExitStack() as stack:
        assert is_healthy(channel)
        for _ in range(500):
            stack.enter_context(socket.create_connection((address.host, address.port)))
        assert is_healthy(channel)
        with open_channel(address, trust) as another:
            assert is_healthy(another)
    assert peak_kib(collector) - before_kib < SPARE_KIB
    assert len(collector.log().splitlines()) < 200


def test_https_connections_without_a_handshake_cost_little(start_collector: StartCollector) -> None:
    """Hundreds of connections with the first byte of TLS cost little memory, and a client that goes on is served."""
    collector = start_collector(more=["--tls", "--http-listen", "127.0.0.1:0"])
    url, before_kib = httpx.URL(collector.http), peak_kib(collector)
    context = ssl.create_default_context(cafile=collector.data_dir / "tls" / "certificate.pem")
    with ExitStack() as stack:
        for _ in range(700):
            attacker = stack.enter_context(socket.create_connection((url.host, url.port or 0)))
            attacker.sendall(b"\x16")
        assert httpx.get(f"{collector.http}/healthz", verify=context, timeout=TIMEOUT_S).status_code == 200
    assert peak_kib(collector) - before_kib < SPARE_KIB
    assert len(collector.log().splitlines()) < 200
