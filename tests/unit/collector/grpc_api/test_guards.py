"""Guards: inflating within limits, and the table of roles."""

import asyncio
import gzip
import threading
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from isochrone_collector.errors import BadRequest, Forbidden, MessageTooLarge
from isochrone_collector.grpc_api import discovery, guards
from isochrone_collector.grpc_api.guards import INLINE_BYTES, inflate, inflate_beside_loop, is_compressed, roles_of
from isochrone_wire.operations import Role
from isochrone_wire.v1 import fleet_pb2, operations_pb2

LIMIT = 1 << 20
PLAIN = b"\x0a" * 1000


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, lambda content: zlib.compress(content, 9)])
def test_both_encodings_of_grpc_are_inflated(compress: object) -> None:
    """Agents use gzip; any gRPC client may use deflate, which is zlib."""
    assert callable(compress)
    assert inflate(compress(PLAIN), LIMIT) == PLAIN
    assert inflate(PLAIN, LIMIT) == PLAIN
    assert inflate(b"", LIMIT) == b""


def test_a_bomb_is_refused_after_the_limit() -> None:
    """Half a gigabyte of zeros is refused, and no more than a few times the limit is ever allocated."""
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    content = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(512)) + bomb.flush()
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge, match="larger than max"):
            inflate(content, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT
    finally:
        tracemalloc.stop()


def test_gzip_is_refused_by_the_size_that_it_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bomb that states its size costs nothing, and one that states less is inflated no further than that."""
    bomb = gzip.compress(bytes(64 * LIMIT))
    tracemalloc.start()
    try:
        with pytest.raises(BadRequest, match="cannot inflate"):
            inflate(bomb[:-4] + (1000).to_bytes(4, "little"), LIMIT)
        assert tracemalloc.get_traced_memory()[1] < LIMIT // 2
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(zlib, "decompressobj", None)
    with pytest.raises(MessageTooLarge, match="larger than max"):
        inflate(bomb, LIMIT)


def test_the_limit_itself_is_allowed() -> None:
    """A request of exactly the maximum size is accepted, compressed or not."""
    content = b"\x0a" * LIMIT
    assert inflate(gzip.compress(content), LIMIT) == inflate(content, LIMIT) == content
    with pytest.raises(MessageTooLarge):
        inflate(content + b"\x0a", LIMIT)


@pytest.mark.parametrize("cut", range(2, len(gzip.compress(PLAIN, mtime=0))))
def test_damaged_content_is_refused(cut: int) -> None:
    """Content that is cut at any byte is refused, and so are bytes after its end."""
    with pytest.raises((BadRequest, MessageTooLarge)):
        inflate(gzip.compress(PLAIN, mtime=0)[:cut], LIMIT)
    with pytest.raises(BadRequest, match="cannot inflate"):
        inflate(zlib.compress(PLAIN)[: cut // 2 + 2], LIMIT)
    with pytest.raises(BadRequest, match="extra bytes"):
        inflate(gzip.compress(PLAIN) + bytes(8), LIMIT)
    with pytest.raises(BadRequest, match="extra bytes"):
        inflate(zlib.compress(PLAIN) + b"x", LIMIT)


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
async def test_only_small_results_are_inflated_in_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    """The size of the result decides: large ones are inflated in one thread, one at a time."""
    threads = []

    def recorded(content: bytes, max_bytes: int) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            threads.append(threading.current_thread())
        return inflate(content, max_bytes)

    monkeypatch.setattr(guards, "inflate", recorded)
    large = b"\x0a" * (INLINE_BYTES + 1)
    for content in (PLAIN, large[1:], large):
        assert await inflate_beside_loop(content, LIMIT) == content
        assert await inflate_beside_loop(compress(content), LIMIT) == content
    assert len(threads) == 1
    with pytest.raises(MessageTooLarge):
        await inflate_beside_loop(compress(large), 1_000)
    with pytest.raises(MessageTooLarge):
        await inflate_beside_loop(large, 1_000)
    assert len(threads) == 1
    await asyncio.gather(*(inflate_beside_loop(compress(large), LIMIT) for _ in range(8)))
    assert len(threads) == 9
    assert len(set(threads)) == 1


def test_no_request_looks_compressed() -> None:
    """A message begins with the key of its first field: 0x78 would be a field 15, and 0x1f is not a key."""
    requests = [
        method.input_type
        for module in (fleet_pb2, operations_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    assert len(requests) >= 19
    assert [request.full_name for request in requests if 15 in request.fields_by_number] == []
    assert not is_compressed(bytes((0x78, 0x00)))


SERVICES = [
    service for module in (fleet_pb2, operations_pb2) for service in module.DESCRIPTOR.services_by_name.values()
]
METHODS = [f"/{service.full_name}/{method.name}" for service in SERVICES for method in service.methods]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_its_roles(method: str) -> None:
    """Only joining needs no credential; all roles renew theirs; a reader may see vantages only."""
    roles = roles_of(method)
    if method == "/isochrone.v1.Fleet/Join":
        assert roles is None
        return
    if method == "/isochrone.v1.Fleet/Renew":
        assert set(roles or ()) == set(Role)
        return
    assert roles
    assert (Role.VANTAGE in roles) == ("/isochrone.v1.Fleet/" in method)
    assert (Role.READER in roles) == (method == "/isochrone.v1.Operations/ListVantages")


@pytest.mark.parametrize("method", discovery.METHODS)
def test_envoy_reads_like_other_readers(method: str) -> None:
    """Envoy's services take the credential of a reader or an operator, never that of a vantage or none."""
    assert roles_of(method) == (Role.READER, Role.OPERATOR)


def test_a_method_that_the_table_lacks_is_refused() -> None:
    """A new service is refused until it is in the table; health is not an Isochrone service and needs no credential."""
    with pytest.raises(Forbidden):
        roles_of("/isochrone.v1.Tomorrow/Read")
    with pytest.raises(Forbidden):
        roles_of("/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets")
    assert roles_of("/grpc.health.v1.Health/Check") is None
